package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// manifestsEndpoints are the endpoints of this file.
func (s *Server) manifestsEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "POST /v3/spaces/{guid}/manifest_diff", Needs: access.Develop, Resource: access.Space,
			Handler: s.diffManifest, Shape: rest.Returns[v3.ManifestDiff](202).Reads(manifestBody),
		},
		{
			Pattern: "POST /v3/spaces/{guid}/actions/apply_manifest", Needs: access.Develop, Resource: access.Space,
			Handler: s.applyManifest, Shape: rest.StartsJob().Reads(manifestBody),
		},
		{Pattern: "GET /v3/apps/{guid}/manifest", Needs: access.ReadSecrets, Resource: access.App, Handler: s.getManifest, Shape: rest.ReturnsBytes(manifestBody.Kind)},
	}
}

// opApplyManifest is the job that makes the apps of a space as a manifest says.
const opApplyManifest = "space.apply_manifest"

// application are the arguments of opApplyManifest.
type application struct {
	Space    string    `json:"space"`
	Manifest string    `json:"manifest"`
	Actor    app.Actor `json:"actor"`
	NoRoutes bool      `json:"no_routes,omitempty"` // who asks may make none
	Folders  bool      `json:"folders,omitempty"`   // who asks may name those of this machine as buildpacks
}

// readManifest gives the manifest in the body, parsed and as it came, and the
// space it is for.
func (s *Server) readManifest(r *http.Request) (m app.Manifest, raw []byte, err error) {
	if _, err := s.c.Registry.Space(r.PathValue("guid")); err != nil {
		return m, nil, rest.Missing("Space", err)
	}
	if raw, err = io.ReadAll(r.Body); err != nil {
		return m, nil, rest.ReadError(err)
	}
	m, _, err = app.ParseManifest(raw, nil)
	return m, raw, err
}

func (s *Server) diffManifest(r *http.Request) (any, error) {
	m, _, err := s.readManifest(r)
	if err != nil {
		return nil, err
	}
	ds, err := s.c.Registry.DiffManifest(r.PathValue("guid"), m)
	if err != nil {
		return nil, err
	}
	out := v3.ManifestDiff{Diff: []v3.Difference{}}
	for _, d := range ds {
		out.Diff = append(out.Diff, v3.Difference{Op: d.Op, Path: d.Path, Was: d.Was, Value: d.Value})
	}
	more, err := s.diffServices(r.PathValue("guid"), m)
	out.Diff = append(out.Diff, more...)
	return rest.Answer{Status: http.StatusAccepted, Body: out}, err
}

// applyManifest refuses at once what cannot be read, and leaves the rest to a job.
func (s *Server) applyManifest(r *http.Request) (any, error) {
	m, raw, err := s.readManifest(r)
	if err != nil {
		return nil, err
	}
	if err := s.checkDocker(r.Context(), m); err != nil {
		return nil, err
	}
	return s.begin(r.Context(), opApplyManifest, application{
		Space: r.PathValue("guid"), Manifest: string(raw), Actor: access.ActorOf(r.Context()),
		NoRoutes: s.feature(r.Context(), app.FlagRouteCreation) != nil, Folders: access.Principal(r.Context()).Admin(),
	})
}

// doApplyManifest applies and records in one transaction, so doing it twice gives
// the same apps. Then it binds them: that is the brokers' part.
func (s *Server) doApplyManifest(ctx context.Context, j app.Job) ([]string, error) {
	var args application
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return nil, fmt.Errorf("cannot read the arguments of job %s: %w", j.GUID, err)
	}
	m, warnings, err := app.ParseManifest([]byte(args.Manifest), nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.checkManifest(args, m), s.checkServices(args.Space, m)); err != nil {
		return nil, err
	}
	var made []app.App
	err = s.changeAs(args.Actor, func(w transaction) (err error) {
		made, err = w.applyManifest(args, m)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, a := range made {
		s.say(a.GUID, "Created app with guid "+a.GUID)
	}
	return warnings, forJob(s.bindServices(ctx, args, m))
}

// checkManifest refuses apps that could not be staged, in the platform's words.
func (s *Server) checkManifest(args application, m app.Manifest) error {
	for _, a := range m.Applications {
		stack := ""
		if a.Stack != nil {
			stack = *a.Stack
		}
		err := errors.Join(checkFolders(a.Buildpacks, args.Folders), s.checkStaging(args.Space, stack, a.Buildpacks))
		if err == nil {
			continue
		}
		detail := err.Error()
		if e := (*rest.Error)(nil); errors.As(err, &e) {
			detail = e.Detail
		}
		return &app.JobError{
			Code: v3.CodeUnprocessable, Title: v3.TitleUnprocessable, Detail: fmt.Sprintf("For application '%s': %s", a.Name, detail),
		}
	}
	return nil
}

// applyManifest applies and records, and gives the new apps.
func (w transaction) applyManifest(args application, m app.Manifest) ([]app.App, error) {
	before, err := w.registry.AllProcesses()
	if err != nil {
		return nil, err
	}
	known := map[string][]app.Process{} // by the guid of their app; none is without
	for _, p := range before {
		known[p.App] = append(known[p.App], p)
	}
	old, err := w.registry.Routes()
	if err != nil {
		return nil, err
	}
	if err := w.checkUnmoved(args.Space, m); err != nil {
		return nil, err
	}
	applied, err := w.registry.ApplyManifest(args.Space, m)
	if err != nil {
		return nil, err
	}
	made, err := w.recordApplied(applied, known, m)
	if err != nil {
		return nil, err
	}
	return made, w.recordRoutes(old, args.NoRoutes)
}

// recordRoutes records what became of the routes. That there are new ones may be
// forbidden.
func (w transaction) recordRoutes(old []app.Route, noNew bool) error {
	now, err := w.registry.Routes()
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
			if err := w.recordRoute("audit.route.create", rt, nil); err != nil {
				return err
			}
		}
		if err := w.recordMapping(was, rt, map[string]any{byManifest: true}); err != nil {
			return err
		}
	}
	return nil
}

// getManifest describes an app as a manifest that makes it again.
func (s *Server) getManifest(r *http.Request) (any, error) {
	m, err := s.c.Registry.ManifestOf(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("App", err)
	}
	if m.Applications[0].Services, err = s.manifestServices(r.PathValue("guid")); err != nil {
		return nil, err
	}
	if err := s.describeDocker(r.PathValue("guid"), m); err != nil {
		return nil, err
	}
	hide, err := s.envIsHidden(r)
	if err != nil {
		return nil, err
	}
	if hide {
		m.Applications[0].Env = nil
	}
	text, err := m.Text()
	return rest.Answer{Status: http.StatusOK, Raw: text, ContentType: v3.ManifestType}, err
}

// recordApplied records what was done to each app, and gives the new ones.
func (w transaction) recordApplied(applied []app.App, known map[string][]app.Process, m app.Manifest) (made []app.App, err error) {
	for _, a := range applied {
		if known[a.GUID] == nil {
			made = append(made, a)
			if err := w.record("audit.app.create", a, map[string]any{"request": map[string]any{"name": a.Name}}); err != nil {
				return nil, err
			}
		}
		if err := w.recordNew(a, known[a.GUID], map[string]any{byManifest: true}); err != nil {
			return nil, err
		}
		if err := w.recordDesired(a, m); err != nil {
			return nil, err
		}
		text, err := withoutSecrets(m, a.Name)
		if err != nil {
			return nil, err
		}
		if err := w.record("audit.app.apply_manifest", a, map[string]any{"request": map[string]any{"manifest": text}}); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// withoutSecrets is what a manifest says about one app, for everybody to read:
// without its variables and commands.
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
			a.Sidecars[i].Command = hidden
		}
		one.Applications = append(one.Applications, a)
	}
	b, err := one.YAML()
	return string(b), err
}

func hideCommand(p *app.ManifestProcess) {
	if p.Command != nil && *p.Command != "" {
		text := hidden
		p.Command = &text
	}
}

// manifestBody is what apps are pushed with.
var manifestBody = rest.Bytes(v3.ManifestType)
