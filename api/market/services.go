package market

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/services"
)

// viewer returns whose view of the marketplace applies; nil means all plans. Plans of a
// space-scoped broker are visible to users with a role in that space, not to the org's
// manager.
func viewer(perms access.Permissions) *services.Viewer {
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

// administer checks whether the caller can change a broker and its offerings.
// Administrators can, and for a broker of a space its developers.
func (h *Handlers) administer(ctx context.Context, broker string) error {
	b, err := h.Platform.Services.Broker(broker)
	if err != nil {
		return err
	}
	if b.Space != "" {
		return h.Access.Require(ctx, access.Develop, b.Space)
	}
	if !access.Principal(ctx).Admin() {
		return access.ErrNotAuthorized
	}
	return nil
}

// begun returns the response for an operation that continues as a job. It first waits a
// moment for the broker's answer. Clients look at a job at once and then only after
// seconds, so the first look should show that the broker has accepted or finished it.
func (h *Handlers) begun(ctx context.Context, o services.Operation) rest.Answer {
	if h.FirstAnswer > 0 {
		ctx, cancel := context.WithTimeout(ctx, h.FirstAnswer)
		defer cancel()
		// Without an answer in time, the job tells the client the rest.
		if now, err := h.Platform.Services.Wait(ctx, o.GUID, answered); err == nil {
			o = now
		}
	}
	return rest.Answer{Status: http.StatusAccepted, Location: h.Links.Href("v3", "jobs", o.GUID), Warnings: o.Warnings}
}

// answered reports whether the broker has answered the request of an operation.
func answered(o services.Operation) bool { return o.Accepted || o.Ended() }

// ended returns the response for a removal that is complete or continues as a job.
func (h *Handlers) ended(ctx context.Context, o services.Operation, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if o.GUID == "" {
		return rest.Answer{Status: http.StatusNoContent}, nil
	}
	return h.begun(ctx, o), nil
}

// presentLast shows the last operation of a record.
func presentLast(l services.LastOperation) v3.LastOperation {
	return v3.LastOperation{
		Type: string(l.Type), State: string(l.State), Description: l.Description,
		CreatedAt: v3.At(l.CreatedAt), UpdatedAt: v3.At(l.UpdatedAt),
	}
}
