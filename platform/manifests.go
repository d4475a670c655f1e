package platform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// OpApplyManifest is the job that applies a manifest to the apps of a space.
const OpApplyManifest = "space.apply_manifest"

// Application holds the arguments of OpApplyManifest.
type Application struct {
	Space    string    `json:"space"`
	Manifest string    `json:"manifest"`
	Actor    app.Actor `json:"actor"`
	NoRoutes bool      `json:"no_routes,omitempty"` // the caller cannot create routes
	Folders  bool      `json:"folders,omitempty"`   // the caller can use folders of this machine as buildpacks
}

// doApplyManifest applies the manifest and records events in one transaction, so
// running it twice gives the same apps. Then it binds the apps, which needs the
// brokers.
func (p *Platform) doApplyManifest(ctx context.Context, j app.Job) ([]string, error) {
	var args Application
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return nil, fmt.Errorf("cannot read the arguments of job %s: %w", j.GUID, err)
	}
	m, warnings, err := app.ParseManifest([]byte(args.Manifest), nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.checkManifest(args, m), p.ServiceBindings().check(args.Space, m)); err != nil {
		return nil, err
	}
	var made []app.App
	err = p.ChangeAs(args.Actor, func(w Tx) (err error) {
		made, err = w.applyManifest(args, m)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, a := range made {
		p.LogToApp(a.GUID, "Created app with guid "+a.GUID)
	}
	return warnings, p.ForJob(p.ServiceBindings().bind(ctx, args, m))
}

// checkManifest refuses apps that could not be staged, with the messages of Cloud
// Foundry.
func (p *Platform) checkManifest(args Application, m app.Manifest) error {
	for _, a := range m.Applications {
		stack := ""
		if a.Stack != nil {
			stack = *a.Stack
		}
		err := errors.Join(CheckFolders(a.Buildpacks, args.Folders), p.CheckStaging(args.Space, stack, a.Buildpacks))
		if err == nil {
			continue
		}
		detail := err.Error()
		if e := (*Error)(nil); errors.As(err, &e) {
			detail = e.Detail
		}
		return &app.JobError{
			Code: v3.CodeUnprocessable, Title: v3.TitleUnprocessable, Detail: fmt.Sprintf("For application '%s': %s", a.Name, detail),
		}
	}
	return nil
}

// applyManifest applies the manifest, records events and returns the new apps.
func (w Tx) applyManifest(args Application, m app.Manifest) ([]app.App, error) {
	before, err := w.Registry.AllProcesses()
	if err != nil {
		return nil, err
	}
	known := map[string][]app.Process{} // by the guid of the app; every app has some
	for _, p := range before {
		known[p.App] = append(known[p.App], p)
	}
	old, err := w.Registry.Routes()
	if err != nil {
		return nil, err
	}
	if err := w.checkNoDeployments(args.Space, m); err != nil {
		return nil, err
	}
	applied, err := w.Registry.ApplyManifest(args.Space, m)
	if err != nil {
		return nil, err
	}
	made, err := w.recordApplied(applied, known, m)
	if err != nil {
		return nil, err
	}
	return made, w.recordRoutes(old, args.NoRoutes)
}

// recordRoutes records the changes of the routes. With noNew, it refuses new routes.
func (w Tx) recordRoutes(old []app.Route, noNew bool) error {
	now, err := w.Registry.Routes()
	if err != nil {
		return err
	}
	before := map[string]app.Route{}
	for _, rt := range old {
		before[rt.GUID] = rt
	}
	for _, rt := range now {
		was, there := before[rt.GUID]
		if !there && noNew {
			return &app.JobError{Code: 330002, Title: "CF-FeatureDisabled", Detail: "Feature Disabled: " + app.FlagRouteCreation}
		}
		if !there {
			d, err := w.Registry.Domain(rt.Domain)
			if err == nil {
				err = refuseAPIRoute(rt, d, w.apiDomain)
			}
			if err != nil {
				return err
			}
			if err := w.RecordRoute("audit.route.create", rt, nil); err != nil {
				return err
			}
		}
		if err := w.RecordMapping(was, rt, map[string]any{byManifest: true}); err != nil {
			return err
		}
	}
	return nil
}

// recordApplied records the changes of each app, and returns the new apps.
func (w Tx) recordApplied(applied []app.App, known map[string][]app.Process, m app.Manifest) (made []app.App, err error) {
	for _, a := range applied {
		if known[a.GUID] == nil {
			made = append(made, a)
			if err := w.Record("audit.app.create", a, map[string]any{"request": map[string]any{"name": a.Name}}); err != nil {
				return nil, err
			}
		}
		if err := w.RecordNew(a, known[a.GUID], map[string]any{byManifest: true}); err != nil {
			return nil, err
		}
		if err := w.recordDesired(a, m); err != nil {
			return nil, err
		}
		text, err := withoutSecrets(m, a.Name)
		if err != nil {
			return nil, err
		}
		if err := w.Record("audit.app.apply_manifest", a, map[string]any{"request": map[string]any{"manifest": text}}); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// withoutSecrets returns the part of a manifest about one app for events: without
// variables and commands.
func withoutSecrets(m app.Manifest, name string) (string, error) {
	var one app.Manifest
	for _, a := range m.Applications {
		if a.Name != name {
			continue
		}
		a.Env = nil
		hideCommand(&a.ManifestProcess)
		a.Processes, a.Sidecars, a.Services = slices.Clone(a.Processes), slices.Clone(a.Sidecars), slices.Clone(a.Services)
		for i := range a.Services {
			a.Services[i].Parameters = nil
		}
		for i := range a.Processes {
			hideCommand(&a.Processes[i])
		}
		for i := range a.Sidecars {
			a.Sidecars[i].Command = Hidden
		}
		one.Applications = append(one.Applications, a)
	}
	b, err := one.YAML()
	return string(b), err
}

func hideCommand(p *app.ManifestProcess) {
	if p.Command != nil && *p.Command != "" {
		text := Hidden
		p.Command = &text
	}
}
