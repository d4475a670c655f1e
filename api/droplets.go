package api

import (
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// dropletsEndpoints are the endpoints of this file.
func (s *Server) dropletsEndpoints() []Endpoint {
	return []Endpoint{
		{
			Pattern: "GET /v3/apps/{guid}/relationships/current_droplet", Needs: toRead, Resource: anApp,
			Handler: s.getCurrentRelationship, Shape: gives[v3.CurrentDroplet](200),
		},
		{
			Pattern: "PATCH /v3/apps/{guid}/relationships/current_droplet", Needs: toSupport, Resource: anApp,
			Handler: s.setCurrentDroplet, Shape: gives[v3.CurrentDroplet](200).from(jsonOf[v3.CurrentDroplet]()),
		},
		{Pattern: "GET /v3/apps/{guid}/droplets/current", Needs: toRead, Resource: anApp, Handler: s.getCurrentDroplet, Shape: gives[v3.Droplet](200)},
		{
			Pattern: "GET /v3/apps/{guid}/droplets", Needs: toRead, Resource: anApp,
			Handler: s.listAppDroplets, Shape: pageOf[v3.Droplet]("guids", "states", "current", paramSelector).by(byTime...),
		},
		{
			Pattern: "GET /v3/droplets", Needs: authenticated,
			Handler: s.listDroplets, Shape: pageOf[v3.Droplet]("guids", "states", "app_guids", "space_guids", "organization_guids", paramSelector).by(byTime...),
		},
		{Pattern: "GET /v3/droplets/{guid}", Needs: toRead, Resource: aDroplet, Handler: s.getDroplet, Shape: gives[v3.Droplet](200)},
		{
			Pattern: "PATCH /v3/droplets/{guid}", Needs: toDevelop, Resource: aDroplet,
			Handler: s.updateDroplet, Shape: gives[v3.Droplet](200).from(jsonOf[v3.UpdateMetadata]()),
		},
		{
			Pattern: "GET /v3/droplets/{guid}/download", Needs: toDownload, Resource: aDroplet,
			Handler: s.downloadDroplet, Shape: givesBytes("application/gzip"),
		},
	}
}

func (s *Server) getDroplet(r *http.Request) (any, error) {
	d, err := s.c.Shelf.Get(r.PathValue("guid"))
	if err != nil {
		return nil, missing("Droplet", err)
	}
	return s.showDroplet(r, d)
}

func (s *Server) updateDroplet(r *http.Request) (any, error) {
	body, err := decode[v3.UpdateMetadata](r)
	if err != nil {
		return nil, err
	}
	d, err := s.c.Shelf.UpdateMetadata(r.PathValue("guid"), metadataChange(body.Metadata))
	if err != nil {
		return nil, missing("Droplet", err)
	}
	return s.showDroplet(r, d)
}

func (s *Server) listDroplets(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	apps, err := s.appsSeen(r, q)
	if err != nil {
		return nil, err
	}
	all, err := ofApps(q, apps, s.c.Shelf.OfApp, s.c.Shelf.All)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(d droplet.Droplet) bool { _, seen := apps[d.App]; return !seen })
	return s.pageOfDroplets(r, q, all)
}

// listAppDroplets gives all droplets of an app, or with current the one that its
// next instances run.
func (s *Server) listAppDroplets(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Shelf.OfApp(a.GUID)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(d droplet.Droplet) bool {
		return q.filters["current"] != nil && q.lets("current", "true") && d.GUID != a.Droplet
	})
	return s.pageOfDroplets(r, q, all)
}

func (s *Server) pageOfDroplets(r *http.Request, q query, all []droplet.Droplet) (any, error) {
	open, err := s.secrets(r)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(d droplet.Droplet) bool {
		return !q.lets("guids", d.GUID) || !q.lets("states", cmp.Or(d.State, v3.DropletStaged))
	})
	return list(s.links, r, q, all, look[droplet.Droplet, v3.Droplet]{
		key:     func(d droplet.Droplet) key { return key{d.GUID, d.CreatedAt, updatedAt(d), d.GUID} },
		present: func(d droplet.Droplet) v3.Droplet { return s.presentDroplet(d, open(d.App)) },
		labels:  func(d droplet.Droplet) map[string]string { return d.Metadata.Labels },
	}), nil
}

// showDroplet shows a droplet to who asks.
func (s *Server) showDroplet(r *http.Request, d droplet.Droplet) (any, error) {
	open, err := s.secrets(r)
	if err != nil {
		return nil, err
	}
	return s.presentDroplet(d, open(d.App)), nil
}

// updatedAt is when a droplet was changed last; most never are.
func updatedAt(d droplet.Droplet) time.Time {
	if d.UpdatedAt.IsZero() {
		return d.CreatedAt
	}
	return d.UpdatedAt
}

// downloadDroplet gives the files of a droplet as the platform does, as a tar that
// is compressed on its way.
func (s *Server) downloadDroplet(r *http.Request) (any, error) {
	d, err := s.c.Shelf.Get(r.PathValue("guid"))
	if err != nil {
		return nil, missing("Droplet", err)
	}
	if d.Image == "" {
		return nil, unprocessable("The droplet has no files of its own: there is nothing to download")
	}
	err = s.change(r.Context(), func(w transaction) error { return w.recordDroplet("audit.app.droplet.download", d) })
	if err != nil {
		return nil, err
	}
	image, err := s.c.Shelf.OpenImage(d.Image)
	if err != nil {
		return nil, err
	}
	return answer{status: http.StatusOK, content: compressed(image), contentType: "application/gzip"}, nil
}

// compressed reads from and compresses it. Closing it ends that, also in the midst.
func compressed(from io.ReadCloser) io.ReadCloser {
	out, in := io.Pipe()
	go func() {
		z := gzip.NewWriter(in)
		_, err := io.Copy(z, from)
		in.CloseWithError(errors.Join(err, z.Close(), from.Close()))
	}()
	return out
}

func (s *Server) getCurrentDroplet(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	if a.Droplet == "" {
		return nil, notFound("Droplet")
	}
	d, err := s.c.Shelf.Get(a.Droplet)
	if err != nil {
		return nil, missing("Droplet", err)
	}
	return s.showDroplet(r, d)
}

func (s *Server) getCurrentRelationship(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	if a.Droplet == "" {
		return nil, notFound("Droplet")
	}
	return s.presentCurrent(a), nil
}

// setCurrentDroplet makes a droplet the one that the app's next instances run.
// The app gets the process types that it finds in it and does not have yet.
func (s *Server) setCurrentDroplet(r *http.Request) (any, error) {
	body, err := decode[v3.CurrentDroplet](r)
	if err != nil {
		return nil, err
	}
	if body.Data == nil {
		return nil, unprocessable("data must name a droplet: a current droplet cannot be taken away")
	}
	request := map[string]any{"droplet_guid": body.Data.GUID}
	a, err := s.changeApp(r, "audit.app.droplet.mapped", request, func(w transaction, a *app.App) error {
		d, err := w.droplet(body.Data.GUID)
		if err != nil && !errors.Is(err, droplet.ErrNotFound) {
			return err
		}
		if err != nil || d.App != a.GUID {
			return unprocessable("Unable to assign current droplet. Ensure the droplet exists and belongs to this app.")
		}
		if d.State == droplet.DropletAwaiting {
			return unprocessable("Unable to assign current droplet. Its files were not uploaded yet.")
		}
		if err := notDeploying(w.registry, a.GUID); err != nil {
			return err
		}
		a.Droplet = d.GUID
		if err := w.addProcesses(*a, d); err != nil {
			return err
		}
		return addSidecars(w.registry, a.GUID, d)
	})
	if err != nil {
		return nil, err
	}
	return s.presentCurrent(a), nil
}

// addProcesses gives an app the process types of a droplet, without instances:
// what a Procfile names waits until somebody scales it.
func (w transaction) addProcesses(a app.App, d droplet.Droplet) error {
	ps, err := w.registry.Processes(a.GUID)
	if err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(d.Commands)) {
		if slices.ContainsFunc(ps, func(p app.Process) bool { return p.Type == kind }) {
			continue
		}
		if _, err := w.registry.PutProcess(app.Process{App: a.GUID, Type: kind}); err != nil {
			return err
		}
	}
	return w.recordNew(a, ps, nil)
}

func (s *Server) presentCurrent(a app.App) v3.CurrentDroplet {
	return v3.CurrentDroplet{Data: &v3.GUID{GUID: a.Droplet}, Links: v3.Links{
		"self":    {Href: s.links.Href("v3", "apps", a.GUID, "relationships", "current_droplet")},
		"related": {Href: s.links.Href("v3", "apps", a.GUID, "droplets", "current")},
	}}
}

// presentDroplet shows a droplet; its start commands only to who may read secrets.
func (s *Server) presentDroplet(d droplet.Droplet, open bool) v3.Droplet {
	out := v3.Droplet{
		GUID: d.GUID, CreatedAt: v3.At(d.CreatedAt), UpdatedAt: v3.At(updatedAt(d)), State: v3.DropletStaged,
		Lifecycle: lifecycle(nil, ""), ProcessTypes: map[string]string{}, Stack: d.Stack,
		Buildpacks:    presentUsed(d.Buildpacks),
		Relationships: v3.DropletRelationships{App: v3.To(d.App)},
		Metadata:      presentMetadata(d.Metadata),
		Links: v3.Links{
			"self": {Href: s.links.Href("v3", "droplets", d.GUID)},
			"app":  {Href: s.links.Href("v3", "apps", d.App)},

			"download": {Href: s.links.Href("v3", "droplets", d.GUID, "download")},
			"assign_current_droplet": {
				Href: s.links.Href("v3", "apps", d.App, "relationships", "current_droplet"), Method: http.MethodPatch,
			},
		},
	}
	if d.State != "" {
		out.State = d.State
		out.Links["upload"] = v3.Link{Href: s.links.Href("v3", "droplets", d.GUID, "upload"), Method: http.MethodPost}
	}
	if d.Package != "" {
		out.Links["package"] = v3.Link{Href: s.links.Href("v3", "packages", d.Package)}
	}
	for kind, command := range d.Commands {
		out.ProcessTypes[kind] = concealed(command, open)
	}
	if d.Run != nil {
		showDocker(&out, *d.Run)
	}
	if d.Image != "" {
		out.Checksum = &v3.Checksum{Type: "sha256", Value: d.Image}
	}
	return out
}

// presentUsed shows the buildpacks that have made a droplet.
func presentUsed(used []droplet.UsedBuildpack) []v3.DropletBuildpack {
	if len(used) == 0 { // from a time when there was no other
		used = []droplet.UsedBuildpack{{Name: droplet.BinaryBuildpack}}
	}
	out := []v3.DropletBuildpack{}
	for _, b := range used {
		out = append(out, v3.DropletBuildpack{Name: b.Name, DetectOutput: b.Detected, BuildpackName: strings.TrimSuffix(b.Name, "_buildpack")})
	}
	return out
}
