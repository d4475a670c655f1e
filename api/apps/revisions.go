package apps

import (
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
)

// revisionHandlers answers requests about revisions.
type revisionHandlers struct{ *Handlers }

func (h revisionHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/apps/{guid}/revisions", Needs: access.Read, Resource: access.App,
			Handler: h.listRevisions, Shape: rest.PageOf[v3.Revision]("guids", "versions", "deployable", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "GET /v3/apps/{guid}/revisions/deployed", Needs: access.Read, Resource: access.App,
			Handler: h.listDeployedRevisions, Shape: rest.PageOf[v3.Revision]("guids").OrderedBy(rest.ByTime...),
		},
		{Pattern: "GET /v3/revisions/{guid}", Needs: access.Read, Resource: access.Revision, Handler: h.getRevision, Shape: rest.Returns[v3.Revision](200)},
		{
			Pattern: "PATCH /v3/revisions/{guid}", Needs: access.Develop, Resource: access.Revision,
			Handler: h.updateRevision, Shape: rest.Returns[v3.Revision](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
		{
			Pattern: "GET /v3/revisions/{guid}/environment_variables", Needs: access.ReadSecrets, Resource: access.Revision,
			Handler: h.getRevisionEnv, Shape: rest.Returns[v3.EnvVars](200),
		},
	}
}

func (h revisionHandlers) listRevisions(r *http.Request) (any, error) {
	q, all, err := present.OfApps[app.Revision]{One: h.Platform.Registry.Revisions}.List(h.Present, r)
	if err != nil {
		return nil, err
	}
	return h.pageOfRevisions(r, q, all)
}

// listDeployedRevisions lists the revisions that instances run now. There are several
// during a deployment, and none for an app that is stopped.
func (h revisionHandlers) listDeployedRevisions(r *http.Request) (any, error) {
	q, all, err := present.OfApps[app.Revision]{One: h.Platform.Registry.DeployedRevisions}.List(h.Present, r)
	if err != nil {
		return nil, err
	}
	return h.pageOfRevisions(r, q, all)
}

func (h revisionHandlers) pageOfRevisions(r *http.Request, q rest.Query, all []app.Revision) (any, error) {
	open, err := h.Present.Secrets(r)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{} // whether a deployment can use the revision, by guid
	for _, v := range all {
		if there[v.GUID], err = h.isDeployable(v); err != nil {
			return nil, err
		}
	}
	all = slices.DeleteFunc(all, func(v app.Revision) bool {
		return !q.Matches("guids", v.GUID) || !q.Matches("versions", strconv.Itoa(v.Version)) || !q.Matches("deployable", strconv.FormatBool(there[v.GUID]))
	})
	return rest.List(h.Links, r, q, all, rest.View[app.Revision, v3.Revision]{
		Key: func(v app.Revision) rest.Key {
			return rest.Key{Name: v.GUID, Created: v.CreatedAt, Updated: v.UpdatedAt, GUID: v.GUID}
		},
		Present: func(v app.Revision) v3.Revision { return h.presentRevision(v, there[v.GUID], open(v.App)) },
		Labels:  func(v app.Revision) map[string]string { return v.Metadata.Labels },
	}), nil
}

// isDeployable reports whether the droplet of a revision still exists.
func (h revisionHandlers) isDeployable(v app.Revision) (bool, error) {
	d, err := h.Platform.Droplets.Get(v.Droplet)
	if errors.Is(err, droplet.ErrNotFound) {
		return false, nil
	}
	return err == nil && d.State != droplet.DropletAwaiting, err
}

func (h revisionHandlers) getRevision(r *http.Request) (any, error) {
	v, err := h.Platform.Registry.Revision(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Revision", err)
	}
	return h.showRevision(r, v)
}

func (h revisionHandlers) updateRevision(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateMetadata](r)
	if err != nil {
		return nil, err
	}
	v, err := h.Platform.Registry.UpdateRevision(r.PathValue("guid"), platform.MetadataChange(body.Metadata))
	if err != nil {
		return nil, rest.Missing("Revision", err)
	}
	return h.showRevision(r, v)
}

func (h revisionHandlers) showRevision(r *http.Request, v app.Revision) (any, error) {
	open, err := h.Present.Secrets(r)
	if err != nil {
		return nil, err
	}
	there, err := h.isDeployable(v)
	return h.presentRevision(v, there, open(v.App)), err
}

// getRevisionEnv shows the variables of a revision and records that they were read.
func (h revisionHandlers) getRevisionEnv(r *http.Request) (any, error) {
	v, err := h.Platform.Registry.Revision(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Revision", err)
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		a, err := w.Registry.App(v.App)
		if err != nil {
			return err
		}
		return w.Record("audit.app.revision.environment_variables.show", a, map[string]any{"revision_guid": v.GUID, "revision_version": v.Version})
	})
	if err != nil {
		return nil, err
	}
	self := h.Links.Href("v3", "revisions", v.GUID)
	return v3.EnvVars{Var: variables(app.App{Env: v.Env}), Links: v3.Links{
		"self":     {Href: self + "/environment_variables"},
		"revision": {Href: self},
		"app":      {Href: h.Links.Href("v3", "apps", v.App)},
	}}, nil
}

// presentRevision shows a revision. It hides the commands unless open is true.
func (h revisionHandlers) presentRevision(v app.Revision, deployable, open bool) v3.Revision {
	self := h.Links.Href("v3", "revisions", v.GUID)
	out := v3.Revision{
		GUID: v.GUID, Version: v.Version, Droplet: v3.GUID{GUID: v.Droplet}, Processes: map[string]v3.RevisionProcess{},
		Sidecars: []v3.RevisionSidecar{}, Description: v.Description, Deployable: deployable,
		Relationships: v3.RevisionRelationships{App: v3.To(v.App)},
		CreatedAt:     v3.At(v.CreatedAt), UpdatedAt: v3.At(v.UpdatedAt), Metadata: rest.PresentMetadata(v.Metadata),
		Links: v3.Links{
			"self":                  {Href: self},
			"app":                   {Href: h.Links.Href("v3", "apps", v.App)},
			"environment_variables": {Href: self + "/environment_variables"},
		},
	}
	for kind, command := range v.Commands {
		p := v3.RevisionProcess{}
		if command != "" {
			text := present.HideSecret(command, open)
			p.Command = &text
		}
		out.Processes[kind] = p
	}
	for _, c := range v.Sidecars {
		sidecar := v3.RevisionSidecar{Name: c.Name, Command: present.HideSecret(c.Command, open), ProcessTypes: c.ProcessTypes}
		if c.MemoryMB > 0 {
			sidecar.MemoryInMB = &c.MemoryMB
		}
		out.Sidecars = append(out.Sidecars, sidecar)
	}
	return out
}
