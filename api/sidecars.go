package api

import (
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// sidecarsEndpoints are the endpoints of this file.
func (s *Server) sidecarsEndpoints() []Endpoint {
	return []Endpoint{
		{Pattern: "GET /v3/apps/{guid}/sidecars", Needs: toRead, Resource: anApp, Handler: s.listAppSidecars, Shape: pageOf[v3.Sidecar]("guids")},
		{
			Pattern: "POST /v3/apps/{guid}/sidecars", Needs: toDevelop, Resource: anApp,
			Handler: s.createSidecar, Shape: gives[v3.Sidecar](201).from(jsonOf[v3.CreateSidecar]()),
		},
		{
			Pattern: "GET /v3/processes/{guid}/sidecars", Needs: toRead, Resource: aProcess,
			Handler: s.listProcessSidecars, Shape: pageOf[v3.Sidecar]("guids"),
		},
		{
			Pattern: "GET /v3/apps/{guid}/processes/{type}/sidecars", Needs: toRead, Resource: anApp,
			Handler: s.listProcessSidecars, Shape: pageOf[v3.Sidecar]("guids"),
		},
		{Pattern: "GET /v3/sidecars/{guid}", Needs: toRead, Resource: aSidecar, Handler: s.getSidecar, Shape: gives[v3.Sidecar](200)},
		{
			Pattern: "PATCH /v3/sidecars/{guid}", Needs: toDevelop, Resource: aSidecar,
			Handler: s.updateSidecar, Shape: gives[v3.Sidecar](200).from(jsonOf[v3.UpdateSidecar]()),
		},
		{Pattern: "DELETE /v3/sidecars/{guid}", Needs: toDevelop, Resource: aSidecar, Handler: s.deleteSidecar, Shape: ends(204)},
	}
}

func (s *Server) listAppSidecars(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.Sidecars(a.GUID)
	if err != nil {
		return nil, err
	}
	return s.pageOfSidecars(r, q, all)
}

func (s *Server) listProcessSidecars(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	p, err := s.processOf(r)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.SidecarsOf(p.App, p.Type)
	if err != nil {
		return nil, err
	}
	return s.pageOfSidecars(r, q, all)
}

func (s *Server) pageOfSidecars(r *http.Request, q query, all []app.Sidecar) (any, error) {
	open, err := s.secrets(r)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(c app.Sidecar) bool { return !q.lets("guids", c.GUID) })
	return list(s.links, r, q, all, look[app.Sidecar, v3.Sidecar]{
		key:     func(c app.Sidecar) key { return key{c.Name, c.CreatedAt, c.UpdatedAt, c.GUID} },
		present: func(c app.Sidecar) v3.Sidecar { return presentSidecar(c, open(c.App)) },
	}), nil
}

func (s *Server) createSidecar(r *http.Request) (any, error) {
	body, err := decode[v3.CreateSidecar](r)
	if err != nil {
		return nil, err
	}
	c := app.Sidecar{App: r.PathValue("guid"), Name: body.Name, Command: body.Command, ProcessTypes: body.ProcessTypes}
	if body.MemoryInMB != nil {
		if c.MemoryMB, err = sidecarMemory(*body.MemoryInMB); err != nil {
			return nil, err
		}
	}
	err = s.change(r.Context(), func(w transaction) error {
		a, err := w.registry.App(c.App)
		if err != nil {
			return missing("App", err)
		}
		if c, err = w.registry.PutSidecar(c); err != nil {
			return err
		}
		return w.recordSidecar(a, "create", c)
	})
	if err != nil {
		return nil, err
	}
	return answer{status: http.StatusCreated, body: presentSidecar(c, true)}, nil
}

// sidecarMemory refuses what the registry would take for "not declared".
func sidecarMemory(mb v3.Int) (int, error) {
	if mb < 1 {
		return 0, &app.Invalid{Key: "memory_in_mb", Message: "must be greater than 0, or null for none declared"}
	}
	return int(mb), nil
}

func (w transaction) recordSidecar(a app.App, how string, c app.Sidecar) error {
	return w.record("audit.app.update", a, map[string]any{"request": map[string]any{
		"sidecar": map[string]any{"action": how, "guid": c.GUID, "name": c.Name},
	}})
}

func (s *Server) getSidecar(r *http.Request) (any, error) {
	c, err := s.c.Registry.Sidecar(r.PathValue("guid"))
	if err != nil {
		return nil, missing("Sidecar", err)
	}
	open, err := s.secrets(r)
	if err != nil {
		return nil, err
	}
	return presentSidecar(c, open(c.App)), nil
}

func (s *Server) updateSidecar(r *http.Request) (any, error) {
	body, err := decode[v3.UpdateSidecar](r)
	if err != nil {
		return nil, err
	}
	var c app.Sidecar
	err = s.change(r.Context(), func(w transaction) (err error) {
		c, err = w.registry.UpdateSidecar(r.PathValue("guid"), func(c *app.Sidecar) error { return setSidecar(c, body) })
		if err != nil {
			return missing("Sidecar", err)
		}
		a, err := w.registry.App(c.App)
		if err != nil {
			return err
		}
		return w.recordSidecar(a, "update", c)
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

func (s *Server) deleteSidecar(r *http.Request) (any, error) {
	err := s.change(r.Context(), func(w transaction) error {
		c, err := w.registry.Sidecar(r.PathValue("guid"))
		if err != nil {
			return missing("Sidecar", err)
		}
		a, err := w.registry.App(c.App)
		if err != nil {
			return err
		}
		if err := w.registry.DeleteSidecar(c.GUID); err != nil {
			return err
		}
		return w.recordSidecar(a, "delete", c)
	})
	if err != nil {
		return nil, err
	}
	return answer{status: http.StatusNoContent}, nil
}

// presentSidecar shows a sidecar; its command only to who may read secrets.
func presentSidecar(c app.Sidecar, open bool) v3.Sidecar {
	out := v3.Sidecar{
		GUID: c.GUID, CreatedAt: v3.At(c.CreatedAt), UpdatedAt: v3.At(c.UpdatedAt), Name: c.Name, Command: concealed(c.Command, open),
		ProcessTypes: c.ProcessTypes, Origin: c.Origin, Relationships: v3.SidecarRelationships{App: v3.To(c.App)},
	}
	if c.MemoryMB != 0 {
		out.MemoryInMB = &c.MemoryMB
	}
	return out
}
