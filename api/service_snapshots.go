package api

import (
	"errors"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/services"
)

// serviceSnapshotsEndpoints are the endpoints of this file.
func (s *Server) serviceSnapshotsEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /dew/v1/apps/{guid}/bindings", Needs: access.Read, Resource: access.App, Handler: s.listAppBindings, Shape: rest.Returns[v3.AppBindings](200)},
		{
			Pattern: "GET /dew/v1/service_instances/{guid}/snapshots", Needs: access.Read, Resource: access.ServiceInstance,
			Handler: s.listSnapshots, Shape: rest.Returns[v3.ServiceSnapshots](200),
		},
		{
			Pattern: "POST /dew/v1/service_instances/{guid}/snapshots", Needs: access.Develop, Resource: access.ServiceInstance,
			Handler: s.createSnapshot, Shape: rest.StartsJob(),
		},
		{
			Pattern: "POST /dew/v1/service_instances/{guid}/snapshots/{snapshot}/restore", Needs: access.Develop, Resource: access.ServiceInstance,
			Handler: s.restoreSnapshot, Shape: rest.StartsJob(),
		},
		{
			Pattern: "DELETE /dew/v1/service_instances/{guid}/snapshots/{snapshot}", Needs: access.Develop, Resource: access.ServiceInstance,
			Handler: s.deleteSnapshot, Shape: rest.Empty(204),
		},
	}
}

// dataOf is the service instance that the path names, if there can be snapshots of
// its data.
func (s *Server) dataOf(r *http.Request) (services.Instance, error) {
	i, err := s.serviceOf(r)
	if err != nil {
		return i, err
	}
	if s.c.Snapshots == nil || i.Type != services.Managed {
		return i, platform.ErrNoSnapshots
	}
	p, err := s.c.Services.Plan(i.Plan)
	if err == nil && p.Broker != services.BuiltinBroker {
		err = platform.ErrNoSnapshots
	}
	return i, err
}

func (s *Server) listSnapshots(r *http.Request) (any, error) {
	i, err := s.dataOf(r)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Snapshots.Snapshots(r.Context(), i.GUID)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b platform.Snapshot) int { return b.CreatedAt.Compare(a.CreatedAt) })
	out := v3.ServiceSnapshots{Snapshots: []v3.ServiceSnapshot{}}
	for _, one := range all {
		out.Snapshots = append(out.Snapshots, v3.ServiceSnapshot{GUID: one.GUID, CreatedAt: v3.At(one.CreatedAt), Size: one.Size})
	}
	return out, nil
}

func (s *Server) createSnapshot(r *http.Request) (any, error) {
	i, err := s.dataOf(r)
	if err != nil {
		return nil, err
	}
	return s.begin(r.Context(), platform.OpSnapshot, platform.SnapshotArgs{Instance: i.GUID})
}

func (s *Server) restoreSnapshot(r *http.Request) (any, error) {
	i, err := s.dataOf(r)
	if err != nil {
		return nil, err
	}
	guid := r.PathValue("snapshot")
	all, err := s.c.Snapshots.Snapshots(r.Context(), i.GUID)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(all, func(one platform.Snapshot) bool { return one.GUID == guid }) {
		return nil, rest.NotFound("Snapshot")
	}
	return s.begin(r.Context(), platform.OpRestore, platform.SnapshotArgs{Instance: i.GUID, Snapshot: guid})
}

func (s *Server) deleteSnapshot(r *http.Request) (any, error) {
	i, err := s.dataOf(r)
	if err != nil {
		return nil, err
	}
	err = s.c.Snapshots.DeleteSnapshot(r.Context(), i.GUID, r.PathValue("snapshot"))
	if refused := (*services.BrokerError)(nil); errors.As(err, &refused) {
		return nil, rest.Unprocessable("%s", refused.Description)
	}
	if err != nil {
		return nil, rest.Missing("Snapshot", err)
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}

// listAppBindings tells what an app is bound to, and what of it its droplet does
// not know.
func (s *Server) listAppBindings(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Services.Bindings(services.BindingFilter{Apps: []string{a.GUID}, Types: []services.BindingType{services.AppBinding}})
	if err != nil {
		return nil, err
	}
	var d droplet.Droplet
	if a.Droplet != "" {
		if d, err = s.c.Shelf.Get(a.Droplet); err != nil && !errors.Is(err, droplet.ErrNotFound) {
			return nil, err
		}
	}
	out := v3.AppBindings{Bindings: []v3.AppBinding{}}
	for _, b := range all {
		i, err := s.c.Services.Instance(b.Instance)
		if err != nil && !platform.IsNotFound(err) {
			return nil, err
		}
		out.Bindings = append(out.Bindings, v3.AppBinding{
			GUID: b.GUID, Name: i.Name, State: string(b.Last.Type) + " " + string(b.Last.State),
			SinceStaging: a.Droplet != "" && b.Usable() && !slices.Contains(d.Bindings.Names, i.Name),
		})
	}
	return out, nil
}
