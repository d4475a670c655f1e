package present

import (
	"context"
	"net/http"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/platform"
)

// StartJob starts a job and tells where to ask for it. The address is absolute:
// clients take it as it is.
func (p *Presenter) StartJob(ctx context.Context, operation string, args any) (any, error) {
	j, err := p.Platform.Jobs.StartFor(platform.ActorOf(ctx), operation, args)
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusAccepted, Location: p.Links.Href("v3", "jobs", j.GUID)}, nil
}
