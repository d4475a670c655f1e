package daemon

import (
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// jobHandlers answers requests about jobs.
type jobHandlers struct{ *Handlers }

func (h jobHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/jobs/{guid}", Needs: access.Authenticated, // visible to the user who started it
			Handler: h.getJob, Shape: rest.Returns[v3.Job](200),
		},
	}
}

// getJob shows a job to the user who started it and to global readers only, because its
// errors name resources.
func (h jobHandlers) getJob(r *http.Request) (any, error) {
	by, out, err := h.jobOf(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Job", err)
	}
	who := access.Principal(r.Context())
	if !who.GlobalReader() && (by.GUID == "" || by.GUID != who.ID) {
		return nil, rest.NotFound("Job")
	}
	return out, nil
}

// jobOf returns a job or an operation of the marketplace, and the user who started it.
func (h jobHandlers) jobOf(guid string) (app.Actor, v3.Job, error) {
	j, err := h.Platform.Jobs.Get(guid)
	if err == nil {
		return j.By, h.presentJob(j), nil
	}
	if !errors.Is(err, app.ErrNotFound) {
		return app.Actor{}, v3.Job{}, err
	}
	o, err := h.Platform.Services.Operation(guid)
	if err != nil {
		return app.Actor{}, v3.Job{}, err
	}
	return o.By, h.Present.OperationJob(o), nil
}

func (h jobHandlers) presentJob(j app.Job) v3.Job {
	out := v3.Job{
		GUID: j.GUID, CreatedAt: v3.At(j.CreatedAt), UpdatedAt: v3.At(j.UpdatedAt), Operation: j.Operation,
		State: string(j.State), Errors: []v3.Error{}, Warnings: []v3.Warning{},
		Links: v3.Links{"self": {Href: h.Links.Href("v3", "jobs", j.GUID)}},
	}
	for _, e := range j.Errors {
		out.Errors = append(out.Errors, v3.Error{Code: e.Code, Title: e.Title, Detail: e.Detail})
	}
	for _, text := range j.Warnings {
		out.Warnings = append(out.Warnings, v3.Warning{Detail: text})
	}
	return out
}
