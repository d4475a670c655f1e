package platform

import (
	"context"
	"errors"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// OpDeleteApp is the job that removes an app.
const OpDeleteApp = "app.delete"

// doDeleteApp removes an app and what was made for it. An app that is gone
// already is fine: the job may be done twice.
func (p *Platform) doDeleteApp(ctx context.Context, guid string) error {
	return p.removeApp(ctx, guid, func(Tx, app.App) error { return nil })
}

// deleteApps removes the apps of a space. What was made of their bits goes first: a
// daemon that is killed in between finds the app again, and so the rest.
func (p *Platform) deleteApps(ctx context.Context, space string) error {
	apps, err := p.Registry.AppsIn(space)
	if err != nil {
		return err
	}
	for _, a := range apps {
		made, err := p.bitsOf(a.GUID)
		if err != nil {
			return err
		}
		if err := p.Change(ctx, func(w Tx) error { return w.recordBits(a, made) }); err != nil {
			return err
		}
		if err := p.Builds.Forget(a.GUID); err != nil {
			return err
		}
		if err := p.removeApp(ctx, a.GUID, Tx.RecordDeletion); err != nil {
			return err
		}
	}
	return nil
}

// removeApp removes an app with all that is its own, and records that it went, with
// last to say more.
func (p *Platform) removeApp(ctx context.Context, guid string, last func(w Tx, a app.App) error) error {
	if err := p.unbind(ctx, guid); err != nil {
		return err
	}
	made, err := p.bitsOf(guid)
	if err != nil {
		return err
	}
	err = p.Change(ctx, func(w Tx) error {
		a, err := w.Registry.App(guid)
		if err != nil {
			return gone(err)
		}
		if err := errors.Join(w.recordEnd(a), w.recordBits(a, made), last(w, a)); err != nil {
			return err
		}
		return w.Registry.DeleteApp(guid)
	})
	if err != nil {
		return err
	}
	return p.Builds.Forget(guid)
}

// bits are the packages and droplets of an app.
type bits struct {
	packages []droplet.Package
	droplets []droplet.Droplet
}

func (p *Platform) bitsOf(guid string) (b bits, err error) {
	if b.packages, err = p.Packages.OfApp(guid); err != nil {
		return b, err
	}
	b.droplets, err = p.Droplets.OfApp(guid)
	return b, err
}

func (w Tx) RecordDeletion(a app.App) error {
	return w.Record("audit.app.delete-request", a, map[string]any{"request": map[string]any{"recursive": true}})
}

func (w Tx) recordBits(a app.App, made bits) error {
	for _, p := range made.packages {
		if err := w.Record("audit.app.package.delete", a, map[string]any{"package_guid": p.GUID}); err != nil {
			return err
		}
	}
	for _, d := range made.droplets {
		if err := w.Record("audit.app.droplet.delete", a, map[string]any{"droplet_guid": d.GUID}); err != nil {
			return err
		}
	}
	return nil
}

// recordEnd records what ends with an app: that it runs, its routes, its processes.
func (w Tx) recordEnd(a app.App) error {
	if a.State == app.Started {
		if err := w.Record("audit.app.stop", a, map[string]any{"delete_triggered": true, "reason": "stopped as part of app deletion"}); err != nil {
			return err
		}
	}
	routes, err := w.Registry.RoutesOf(a.GUID)
	if err != nil {
		return err
	}
	for _, rt := range routes {
		left := rt
		left.Destinations = slices.DeleteFunc(slices.Clone(rt.Destinations), func(d app.Destination) bool { return d.App == a.GUID })
		if err := w.RecordMapping(rt, left, nil); err != nil {
			return err
		}
	}
	ps, err := w.Registry.Processes(a.GUID)
	if err != nil {
		return err
	}
	for _, p := range ps {
		if err := w.RecordProcess("delete", a, p, nil); err != nil {
			return err
		}
	}
	return nil
}
