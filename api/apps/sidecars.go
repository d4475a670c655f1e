package apps

import (
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
)

// sidecarHandlers answers requests about sidecars.
type sidecarHandlers struct{ *Handlers }

func (h sidecarHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /v3/apps/{guid}/sidecars", Needs: access.Read, Resource: access.App, Handler: h.listAppSidecars, Shape: rest.PageOf[v3.Sidecar]("guids")},
		{
			Pattern: "POST /v3/apps/{guid}/sidecars", Needs: access.Develop, Resource: access.App,
			Handler: h.createSidecar, Shape: rest.Returns[v3.Sidecar](201).Reads(rest.JSON[v3.CreateSidecar]()),
		},
		{
			Pattern: "GET /v3/processes/{guid}/sidecars", Needs: access.Read, Resource: access.Process,
			Handler: h.listProcessSidecars, Shape: rest.PageOf[v3.Sidecar]("guids"),
		},
		{
			Pattern: "GET /v3/apps/{guid}/processes/{type}/sidecars", Needs: access.Read, Resource: access.App,
			Handler: h.listProcessSidecars, Shape: rest.PageOf[v3.Sidecar]("guids"),
		},
		{Pattern: "GET /v3/sidecars/{guid}", Needs: access.Read, Resource: access.Sidecar, Handler: h.getSidecar, Shape: rest.Returns[v3.Sidecar](200)},
		{
			Pattern: "PATCH /v3/sidecars/{guid}", Needs: access.Develop, Resource: access.Sidecar,
			Handler: h.updateSidecar, Shape: rest.Returns[v3.Sidecar](200).Reads(rest.JSON[v3.UpdateSidecar]()),
		},
		{Pattern: "DELETE /v3/sidecars/{guid}", Needs: access.Develop, Resource: access.Sidecar, Handler: h.deleteSidecar, Shape: rest.Empty(204)},
	}
}

func (h sidecarHandlers) listAppSidecars(r *http.Request) (any, error) {
	q, all, err := present.OfApps[app.Sidecar]{One: h.Platform.Registry.Sidecars}.List(h.Present, r)
	if err != nil {
		return nil, err
	}
	return h.pageOfSidecars(r, q, all)
}

func (h sidecarHandlers) listProcessSidecars(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	p, err := h.processOf(r)
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.SidecarsOf(p.App, p.Type)
	if err != nil {
		return nil, err
	}
	return h.pageOfSidecars(r, q, all)
}

func (h sidecarHandlers) pageOfSidecars(r *http.Request, q rest.Query, all []app.Sidecar) (any, error) {
	open, err := h.Present.Secrets(r)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(c app.Sidecar) bool { return !q.Matches("guids", c.GUID) })
	return rest.List(h.Links, r, q, all, rest.View[app.Sidecar, v3.Sidecar]{
		Key: func(c app.Sidecar) rest.Key {
			return rest.Key{Name: c.Name, Created: c.CreatedAt, Updated: c.UpdatedAt, GUID: c.GUID}
		},
		Present: func(c app.Sidecar) v3.Sidecar { return presentSidecar(c, open(c.App)) },
	}), nil
}

func (h sidecarHandlers) createSidecar(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateSidecar](r)
	if err != nil {
		return nil, err
	}
	c := app.Sidecar{App: r.PathValue("guid"), Name: body.Name, Command: body.Command, ProcessTypes: body.ProcessTypes}
	if body.MemoryInMB != nil {
		if c.MemoryMB, err = sidecarMemory(*body.MemoryInMB); err != nil {
			return nil, err
		}
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		a, err := w.Registry.App(c.App)
		if err != nil {
			return rest.Missing("App", err)
		}
		if c, err = w.Registry.PutSidecar(c); err != nil {
			return err
		}
		return w.RecordSidecar(a, "create", c)
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: presentSidecar(c, true)}, nil
}

// sidecarMemory refuses values that the registry would treat as not declared.
func sidecarMemory(mb v3.Int) (int, error) {
	if mb < 1 {
		return 0, &app.Invalid{Key: "memory_in_mb", Message: "must be greater than 0, or null to share the memory limit of the process"}
	}
	return int(mb), nil
}

func (h sidecarHandlers) getSidecar(r *http.Request) (any, error) {
	c, err := h.Platform.Registry.Sidecar(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Sidecar", err)
	}
	open, err := h.Present.Secrets(r)
	if err != nil {
		return nil, err
	}
	return presentSidecar(c, open(c.App)), nil
}

func (h sidecarHandlers) updateSidecar(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateSidecar](r)
	if err != nil {
		return nil, err
	}
	var c app.Sidecar
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		c, err = w.Registry.UpdateSidecar(r.PathValue("guid"), func(c *app.Sidecar) error { return setSidecar(c, body) })
		if err != nil {
			return rest.Missing("Sidecar", err)
		}
		a, err := w.Registry.App(c.App)
		if err != nil {
			return err
		}
		return w.RecordSidecar(a, "update", c)
	})
	if err != nil {
		return nil, err
	}
	return presentSidecar(c, true), nil
}

func setSidecar(c *app.Sidecar, u v3.UpdateSidecar) (err error) {
	if u.Name != nil {
		c.Name = *u.Name
	}
	if u.Command != nil {
		c.Command = *u.Command
	}
	if u.ProcessTypes != nil {
		c.ProcessTypes = *u.ProcessTypes
	}
	switch {
	case u.MemoryInMB.Given && u.MemoryInMB.Null:
		c.MemoryMB = 0
	case u.MemoryInMB.Given:
		c.MemoryMB, err = sidecarMemory(u.MemoryInMB.Value)
	}
	return err
}

func (h sidecarHandlers) deleteSidecar(r *http.Request) (any, error) {
	err := h.Platform.Change(r.Context(), func(w platform.Tx) error {
		c, err := w.Registry.Sidecar(r.PathValue("guid"))
		if err != nil {
			return rest.Missing("Sidecar", err)
		}
		a, err := w.Registry.App(c.App)
		if err != nil {
			return err
		}
		if err := w.Registry.DeleteSidecar(c.GUID); err != nil {
			return err
		}
		return w.RecordSidecar(a, "delete", c)
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}

// presentSidecar shows a sidecar. It hides the command unless open is true.
func presentSidecar(c app.Sidecar, open bool) v3.Sidecar {
	out := v3.Sidecar{
		GUID: c.GUID, CreatedAt: v3.At(c.CreatedAt), UpdatedAt: v3.At(c.UpdatedAt), Name: c.Name, Command: present.HideSecret(c.Command, open),
		ProcessTypes: c.ProcessTypes, Origin: c.Origin, Relationships: v3.SidecarRelationships{App: v3.To(c.App)},
	}
	if c.MemoryMB != 0 {
		out.MemoryInMB = &c.MemoryMB
	}
	return out
}
