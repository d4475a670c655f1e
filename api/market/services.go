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

// viewer is who looks at the marketplace; nil: who sees all. What is offered in one
// space is for who works there: not for the org's manager.
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

// administer wants the principal to be one who may change a broker and what it
// offers: an administrator, or for a broker of a space its developers.
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

// begun is the answer to a request that takes longer: where to ask for it.
func (h *Handlers) begun(o services.Operation) rest.Answer {
	return rest.Answer{Status: http.StatusAccepted, Location: h.Links.Href("v3", "jobs", o.GUID), Warnings: o.Warnings}
}

// ended is the answer to a removal: it is done, or where to ask for it.
func (h *Handlers) ended(o services.Operation, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if o.GUID == "" {
		return rest.Answer{Status: http.StatusNoContent}, nil
	}
	return h.begun(o), nil
}

// presentLast shows the last operation of a record.
func presentLast(l services.LastOperation) v3.LastOperation {
	return v3.LastOperation{
		Type: string(l.Type), State: string(l.State), Description: l.Description,
		CreatedAt: v3.At(l.CreatedAt), UpdatedAt: v3.At(l.UpdatedAt),
	}
}
