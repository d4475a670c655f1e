package platform

import (
	"cmp"
	"context"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/store"
)

// Tx is a change by a user, with its events, in one transaction: either both are stored
// or neither is.
type Tx struct {
	Registry *registry.Registry
	Events   *registry.Events
	Roles    *auth.Roles
	Droplet  func(guid string) (droplet.Droplet, error)
	Actor    app.Actor

	apiDomain string    // see Platform.APIDomain
	after     *[]func() // functions to call after the commit; see afterwards
}

// afterwards calls fn after the change is stored. It does not call fn if the change is
// refused, because nothing waits for fn then.
func (w Tx) afterwards(fn func()) { *w.after = append(*w.after, fn) }

// Change makes a change in one transaction, on behalf of the user of ctx.
func (p *Platform) Change(ctx context.Context, fn func(w Tx) error) error {
	return p.ChangeAs(ActorOf(ctx), fn)
}

// ChangeAs makes a change in one transaction, on behalf of who. A change that would
// exceed a quota is refused.
func (p *Platform) ChangeAs(who app.Actor, fn func(w Tx) error) error {
	var after []func()
	err := p.DB.Update(func(tx *store.Tx) error {
		w := Tx{
			apiDomain: p.APIDomain,
			Registry:  p.Registry.With(tx), Events: p.Events.With(tx), Roles: p.Roles.With(tx),
			Droplet: func(guid string) (droplet.Droplet, error) { return p.Droplets.GetIn(tx, guid) },
			Actor:   who, after: &after,
		}
		return withinQuotas(w.Registry, func() error { return fn(w) })
	})
	if err != nil {
		return err
	}
	for _, fn := range after {
		fn()
	}
	return nil
}

// Record records an event about an app.
func (w Tx) Record(kind string, a app.App, data map[string]any) error {
	e := app.Event{
		Type: kind, Actor: w.Actor, Data: data, Space: a.Space,
		Target: app.Target{GUID: a.GUID, Type: "app", Name: a.Name},
	}
	if space, err := w.Registry.Space(a.Space); err == nil {
		e.Org = space.Org
	}
	return w.Events.Record(e)
}

// ExitsOf returns the exit records of an app, newest first.
func (p *Platform) ExitsOf(appGUID string) ([]runtime.ExitRecord, error) {
	ps, err := p.Registry.Processes(appGUID)
	if err != nil {
		return nil, err
	}
	var all []runtime.ExitRecord
	for _, process := range ps {
		some, err := p.Exits.Process(process.GUID)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	order := runtime.CrashOrder(all)
	slices.SortStableFunc(all, func(a, b runtime.ExitRecord) int {
		return cmp.Or(order[b.ID()].Compare(order[a.ID()]), cmp.Compare(b.Number, a.Number))
	})
	return all, nil
}

// buildUsage records a usage event for the start or the end of a build.
func (w Tx) buildUsage(a app.App, b droplet.Build, d *droplet.Droplet) error {
	u := app.Usage{
		State: app.UsageStagingStarted, Previous: string(b.State), App: app.Named{GUID: a.GUID, Name: a.Name}, Instances: app.Change{Now: 1, Before: 1},
	}
	if d == nil && b.State != droplet.BuildFailed {
		return w.Registry.RecordUsage(u, a.Space)
	}
	u.State = app.UsageStagingStopped
	if d != nil && len(d.Buildpacks) > 0 {
		last := d.Buildpacks[len(d.Buildpacks)-1]
		u.Buildpack, u.BuildpackGUID = last.Name, last.GUID
	}
	if err := w.Registry.RecordUsage(u, a.Space); err != nil || d == nil {
		return err
	}
	u.State = app.UsageBuildpackSet
	return w.Registry.RecordUsage(u, a.Space)
}

// Exits reads the exit records. runtime.ExitLog implements it.
type Exits interface {
	Process(process string) ([]runtime.ExitRecord, error)
}

// LogToApp writes a message of the platform to an app's log. A log that cannot be
// written must not undo a change that is already stored.
func (p *Platform) LogToApp(appGUID, text string) {
	l, err := p.Logs.App(appGUID)
	if err == nil {
		err = l.Append(logstream.Envelope{Source: logstream.Source{Type: "API"}, Stream: logstream.Out, Text: []byte(text)})
	}
	if err != nil {
		p.Log.Warn("cannot write to the app's log", "app", appGUID, "err", err)
	}
}
