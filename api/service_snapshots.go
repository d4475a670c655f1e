package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/services"
)

// serviceSnapshotsEndpoints are the endpoints of this file.
func (s *Server) serviceSnapshotsEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /stream/v1/services/{guid}", Needs: access.ReadSecrets, Resource: access.ServiceInstance, // a server may print anything
			Raw: http.HandlerFunc(s.streamService), Shape: rest.ReturnsBytes(streamKinds...).Query(logParameterNames...),
		},
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

// Snapshots copies the data of the service instances of the built-in broker, which
// is the real one.
type Snapshots interface {
	// Snapshots are those of an instance.
	Snapshots(ctx context.Context, instance string) ([]Snapshot, error)
	// Snapshot makes one. It is whole, or not there.
	Snapshot(ctx context.Context, instance string) (Snapshot, error)
	// Restore makes the data of an instance what they were. Doing it twice is the same.
	Restore(ctx context.Context, instance, snapshot string) error
	// DeleteSnapshot removes one; one that is gone is no error.
	DeleteSnapshot(ctx context.Context, instance, snapshot string) error
}

// Snapshot is a copy of the data of a service instance.
type Snapshot struct {
	GUID      string
	CreatedAt time.Time
	Size      int64 // in bytes
}

// Operations on the data of service instances.
const (
	opSnapshot = "service_instance.snapshot"
	opRestore  = "service_instance.restore"
)

// snapshotArgs are the arguments of these operations.
type snapshotArgs struct {
	Instance string `json:"instance"`
	Snapshot string `json:"snapshot,omitempty"`
}

// serviceOperations gives the jobs their operations.
func (s *Server) serviceOperations() {
	for operation, do := range map[string]func(ctx context.Context, a snapshotArgs) error{
		opSnapshot: func(ctx context.Context, a snapshotArgs) error {
			_, err := s.c.Snapshots.Snapshot(ctx, a.Instance)
			return err
		},
		opRestore: func(ctx context.Context, a snapshotArgs) error {
			return s.c.Snapshots.Restore(ctx, a.Instance, a.Snapshot)
		},
	} {
		s.c.Jobs.Handle(operation, func(ctx context.Context, j app.Job) ([]string, error) {
			var a snapshotArgs
			if err := json.Unmarshal(j.Args, &a); err != nil {
				return nil, fmt.Errorf("cannot read the arguments of job %s: %w", j.GUID, err)
			}
			if s.c.Snapshots == nil {
				return nil, errNoSnapshots
			}
			return nil, do(ctx, a)
		})
	}
}

var errNoSnapshots = rest.Unprocessable("Snapshots are made of the services of the built-in broker only")

// dataOf is the service instance that the path names, if there can be snapshots of
// its data.
func (s *Server) dataOf(r *http.Request) (services.Instance, error) {
	i, err := s.serviceOf(r)
	if err != nil {
		return i, err
	}
	if s.c.Snapshots == nil || i.Type != services.Managed {
		return i, errNoSnapshots
	}
	p, err := s.c.Services.Plan(i.Plan)
	if err == nil && p.Broker != services.BuiltinBroker {
		err = errNoSnapshots
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
	slices.SortStableFunc(all, func(a, b Snapshot) int { return b.CreatedAt.Compare(a.CreatedAt) })
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
	return s.begin(r.Context(), opSnapshot, snapshotArgs{Instance: i.GUID})
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
	if !slices.ContainsFunc(all, func(one Snapshot) bool { return one.GUID == guid }) {
		return nil, rest.NotFound("Snapshot")
	}
	return s.begin(r.Context(), opRestore, snapshotArgs{Instance: i.GUID, Snapshot: guid})
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

// streamService sends the log of the server behind a service instance.
func (s *Server) streamService(w http.ResponseWriter, r *http.Request) {
	i, err := s.serviceOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.stream(w, r, app.App{GUID: i.GUID, Name: i.Name, Space: i.Space}, func() error {
		i, err := s.c.Services.Instance(i.GUID)
		if err != nil {
			return err
		}
		return s.remains(r.Context(), access.ReadSecrets, i.Space)
	})
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
		if err != nil && !access.Invisible(err) {
			return nil, err
		}
		out.Bindings = append(out.Bindings, v3.AppBinding{
			GUID: b.GUID, Name: i.Name, State: string(b.Last.Type) + " " + string(b.Last.State),
			SinceStaging: a.Droplet != "" && b.Usable() && !slices.Contains(d.Bindings.Names, i.Name),
		})
	}
	return out, nil
}
