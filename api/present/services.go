package present

import (
	"context"
	"net/http"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/services"
)

// OperationJob returns an operation of the marketplace as a job.
func (p *Presenter) OperationJob(o services.Operation) v3.Job {
	out := v3.Job{
		GUID: o.GUID, CreatedAt: v3.At(o.CreatedAt), UpdatedAt: v3.At(o.UpdatedAt), Operation: operationName(o),
		State: v3.JobProcessing, Errors: []v3.Error{}, Warnings: []v3.Warning{},
		Links: v3.Links{"self": {Href: p.Links.Href("v3", "jobs", o.GUID)}},
	}
	for _, text := range o.Warnings {
		out.Warnings = append(out.Warnings, v3.Warning{Detail: text})
	}
	switch {
	case o.State == services.Succeeded:
		out.State = v3.JobComplete
	case o.State == services.Failed:
		out.State = v3.JobFailed
		out.Errors = append(out.Errors, platform.FailureOf(o)) // clients fail without one
	case o.Accepted:
		out.State = v3.JobPolling
	}
	return out
}

// operationName returns Cloud Foundry's name for an operation.
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

// ServiceInstance returns the service instance that the path names.
func (p *Presenter) ServiceInstance(r *http.Request) (services.Instance, error) {
	i, err := p.Platform.Services.Instance(r.PathValue("guid"))
	return i, rest.Missing("Service instance", err)
}

// StartJob starts a job and returns the response with its URL. The URL is absolute,
// because clients use it unchanged.
func (p *Presenter) StartJob(ctx context.Context, operation string, args any) (any, error) {
	j, err := p.Platform.Jobs.StartFor(platform.ActorOf(ctx), operation, args)
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusAccepted, Location: p.Links.Href("v3", "jobs", j.GUID)}, nil
}
