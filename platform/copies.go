package platform

import (
	"context"
	"errors"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/store"
)

// The jobs that remove what was pushed, and what was made of it.
const (
	OpDeletePackage = "package.delete"
	OpDeleteDroplet = "droplet.delete"
)

// doDeletePackage removes a package. One that is gone already is fine: the job may
// be done twice.
func (p *Platform) doDeletePackage(_ context.Context, guid string) error {
	if err := p.Packages.Remove(guid); err != nil && !errors.Is(err, droplet.ErrNotFound) {
		return err
	}
	return nil
}

func (p *Platform) doDeleteDroplet(_ context.Context, guid string) error {
	err := p.Builds.Remove(guid, func(tx *store.Tx) error { return NotRun(p.Registry.With(tx), guid) })
	if refused := (*Error)(nil); errors.As(err, &refused) {
		return p.ForJob(refused)
	}
	if err != nil && !errors.Is(err, droplet.ErrNotFound) {
		return err
	}
	return nil
}

// NotRun refuses to remove a droplet that instances are or will be started from.
func NotRun(reg *registry.Registry, guid string) error {
	used, err := reg.DropletsInUse()
	if err != nil {
		return err
	}
	if used[guid] {
		return Refuse("Unable to delete droplet. The app runs it: set another current droplet and restart the app first, and let tasks that run it end, or cancel them.")
	}
	return nil
}

// RecordDroplet keeps an event about a droplet, if its app is there.
func (w Tx) RecordDroplet(event string, d droplet.Droplet) error {
	a, err := w.Registry.App(d.App)
	if err != nil {
		return missing("App", err)
	}
	return w.Record(event, a, map[string]any{"droplet_guid": d.GUID})
}
