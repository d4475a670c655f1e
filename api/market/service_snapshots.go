package market

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

// snapshotHandlers answers requests about snapshots of service instances.
type snapshotHandlers struct{ *Handlers }

func (h snapshotHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /dew/v1/apps/{guid}/bindings", Needs: access.Read, Resource: access.App, Handler: h.listAppBindings, Shape: rest.Returns[v3.AppBindings](200)},
		{
			Pattern: "GET /dew/v1/service_instances/{guid}/snapshots", Needs: access.Read, Resource: access.ServiceInstance,
			Handler: h.listSnapshots, Shape: rest.Returns[v3.ServiceSnapshots](200),
		},
		{
			Pattern: "POST /dew/v1/service_instances/{guid}/snapshots", Needs: access.Develop, Resource: access.ServiceInstance,
			Handler: h.createSnapshot, Shape: rest.StartsJob(),
		},
		{
			Pattern: "POST /dew/v1/service_instances/{guid}/snapshots/{snapshot}/restore", Needs: access.Develop, Resource: access.ServiceInstance,
			Handler: h.restoreSnapshot, Shape: rest.StartsJob(),
		},
		{
			Pattern: "DELETE /dew/v1/service_instances/{guid}/snapshots/{snapshot}", Needs: access.Develop, Resource: access.ServiceInstance,
			Handler: h.deleteSnapshot, Shape: rest.Empty(204),
		},
	}
}

// dataOf returns the service instance that the path names, if it supports snapshots.
func (h snapshotHandlers) dataOf(r *http.Request) (services.Instance, error) {
	i, err := h.Present.ServiceInstance(r)
	if err != nil {
		return i, err
	}
	if h.Platform.Snapshots == nil || i.Type != services.Managed {
		return i, platform.ErrNoSnapshots
	}
	p, err := h.Platform.Services.Plan(i.Plan)
	if err == nil && p.Broker != services.BuiltinBroker {
		err = platform.ErrNoSnapshots
	}
	return i, err
}

func (h snapshotHandlers) listSnapshots(r *http.Request) (any, error) {
	i, err := h.dataOf(r)
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Snapshots.Snapshots(r.Context(), i.GUID)
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

func (h snapshotHandlers) createSnapshot(r *http.Request) (any, error) {
	i, err := h.dataOf(r)
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpSnapshot, platform.SnapshotArgs{Instance: i.GUID})
}

func (h snapshotHandlers) restoreSnapshot(r *http.Request) (any, error) {
	i, err := h.dataOf(r)
	if err != nil {
		return nil, err
	}
	guid := r.PathValue("snapshot")
	all, err := h.Platform.Snapshots.Snapshots(r.Context(), i.GUID)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(all, func(one platform.Snapshot) bool { return one.GUID == guid }) {
		return nil, rest.NotFound("Snapshot")
	}
	return h.Present.StartJob(r.Context(), platform.OpRestore, platform.SnapshotArgs{Instance: i.GUID, Snapshot: guid})
}

func (h snapshotHandlers) deleteSnapshot(r *http.Request) (any, error) {
	i, err := h.dataOf(r)
	if err != nil {
		return nil, err
	}
	err = h.Platform.Snapshots.DeleteSnapshot(r.Context(), i.GUID, r.PathValue("snapshot"))
	if refused := (*services.BrokerError)(nil); errors.As(err, &refused) {
		return nil, rest.Unprocessable("%s", refused.Description)
	}
	if err != nil {
		return nil, rest.Missing("Snapshot", err)
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}

// listAppBindings lists the bindings of an app, and marks those that are newer than its
// droplet.
func (h snapshotHandlers) listAppBindings(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Services.Bindings(services.BindingFilter{Apps: []string{a.GUID}, Types: []services.BindingType{services.AppBinding}})
	if err != nil {
		return nil, err
	}
	var d droplet.Droplet
	if a.Droplet != "" {
		if d, err = h.Platform.Droplets.Get(a.Droplet); err != nil && !errors.Is(err, droplet.ErrNotFound) {
			return nil, err
		}
	}
	out := v3.AppBindings{Bindings: []v3.AppBinding{}}
	for _, b := range all {
		i, err := h.Platform.Services.Instance(b.Instance)
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
