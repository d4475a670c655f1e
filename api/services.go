package api

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/services"
)

// viewer is who looks at the marketplace; nil: who sees all. What is offered in one
// space is for who works there: not for the org's manager.
func (s *Server) viewer(perms access.Permissions) *services.Viewer {
	if perms.All {
		return nil
	}
	v := &services.Viewer{Orgs: slices.Sorted(maps.Keys(perms.Orgs))}
	for _, space := range slices.Sorted(maps.Keys(perms.OrgOf)) {
		if len(perms.Roles[space]) > 0 {
			v.Spaces = append(v.Spaces, space)
		}
	}
	return v
}

// administer wants the principal to be one who may change a broker and what it
// offers: an administrator, or for a broker of a space its developers.
func (s *Server) administer(ctx context.Context, broker string) error {
	b, err := s.c.Services.Broker(broker)
	if err != nil {
		return err
	}
	if b.Space != "" {
		return s.access.Require(ctx, access.Develop, b.Space)
	}
	if !access.Principal(ctx).Admin() {
		return access.ErrNotAuthorized
	}
	return nil
}

// begun is the answer to a request that takes longer: where to ask for it.
func (s *Server) begun(o services.Operation) rest.Answer {
	return rest.Answer{Status: http.StatusAccepted, Location: s.links.Href("v3", "jobs", o.GUID), Warnings: o.Warnings}
}

// ended is the answer to a removal: it is done, or where to ask for it.
func (s *Server) ended(o services.Operation, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if o.GUID == "" {
		return rest.Answer{Status: http.StatusNoContent}, nil
	}
	return s.begun(o), nil
}

// operationJob is an operation of the marketplace as a job.
func (s *Server) operationJob(o services.Operation) v3.Job {
	out := v3.Job{
		GUID: o.GUID, CreatedAt: v3.At(o.CreatedAt), UpdatedAt: v3.At(o.UpdatedAt), Operation: operationName(o),
		State: v3.JobProcessing, Errors: []v3.Error{}, Warnings: []v3.Warning{},
		Links: v3.Links{"self": {Href: s.links.Href("v3", "jobs", o.GUID)}},
	}
	for _, text := range o.Warnings {
		out.Warnings = append(out.Warnings, v3.Warning{Detail: text})
	}
	switch {
	case o.State == services.Succeeded:
		out.State = v3.JobComplete
	case o.State == services.Failed:
		out.State = v3.JobFailed
		out.Errors = append(out.Errors, platform.FailureOf(o)) // clients break off without one
	case o.Accepted:
		out.State = v3.JobPolling
	}
	return out
}

// operationName is the platform's name for an operation.
func operationName(o services.Operation) string {
	switch o.Kind {
	case services.OfBroker:
		if o.Action == services.Create {
			return "service_broker.catalog.synchronize"
		}
	case services.OfBinding:
		switch o.Binding {
		case services.KeyBinding:
			return "service_keys." + string(o.Action)
		case services.RouteBinding:
			return "service_route_bindings." + string(o.Action)
		}
		return "service_bindings." + string(o.Action)
	}
	return string(o.Kind) + "." + string(o.Action)
}

// presentLast shows the last operation of a record.
func presentLast(l services.LastOperation) v3.LastOperation {
	return v3.LastOperation{
		Type: string(l.Type), State: string(l.State), Description: l.Description,
		CreatedAt: v3.At(l.CreatedAt), UpdatedAt: v3.At(l.UpdatedAt),
	}
}
