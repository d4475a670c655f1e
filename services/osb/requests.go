package osb

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/dewrun/dew/services"
)

// wireContext is the JSON format of the context object: platform, org and space.
type wireContext struct {
	Platform         string `json:"platform"`
	OrganizationGUID string `json:"organization_guid,omitempty"`
	OrganizationName string `json:"organization_name,omitempty"`
	SpaceGUID        string `json:"space_guid"`
	SpaceName        string `json:"space_name,omitempty"`
	InstanceName     string `json:"instance_name,omitempty"`
}

func wireContextOf(c services.Context) wireContext {
	return wireContext{
		Platform: platform, OrganizationGUID: c.Org, OrganizationName: c.OrgName,
		SpaceGUID: c.Space, SpaceName: c.SpaceName, InstanceName: c.InstanceName,
	}
}

type wireMaintenance struct {
	Version string `json:"version"`
}

func maintenance(version string) *wireMaintenance {
	if version == "" {
		return nil
	}
	return &wireMaintenance{Version: version}
}

// wireInstance is the JSON body of a provision or update request.
type wireInstance struct {
	ServiceID        string           `json:"service_id"`
	PlanID           string           `json:"plan_id,omitempty"`
	OrganizationGUID string           `json:"organization_guid,omitempty"`
	SpaceGUID        string           `json:"space_guid,omitempty"`
	Context          wireContext      `json:"context"`
	Parameters       json.RawMessage  `json:"parameters,omitempty"`
	Maintenance      *wireMaintenance `json:"maintenance_info,omitempty"`
	Previous         *wirePrevious    `json:"previous_values,omitempty"`
}

type wirePrevious struct {
	PlanID           string           `json:"plan_id"`
	ServiceID        string           `json:"service_id"`
	OrganizationGUID string           `json:"organization_id,omitempty"`
	SpaceGUID        string           `json:"space_id,omitempty"`
	Maintenance      *wireMaintenance `json:"maintenance_info,omitempty"`
}

// wireBinding is the JSON body of a bind request.
type wireBinding struct {
	ServiceID    string          `json:"service_id"`
	PlanID       string          `json:"plan_id"`
	AppGUID      string          `json:"app_guid,omitempty"`
	BindResource wireResource    `json:"bind_resource"`
	Context      wireContext     `json:"context"`
	Parameters   json.RawMessage `json:"parameters,omitempty"`
}

type wireResource struct {
	AppGUID   string `json:"app_guid,omitempty"`
	SpaceGUID string `json:"space_guid,omitempty"`
	Route     string `json:"route,omitempty"`
}

// wireDone is the JSON body of a successful or accepted response.
type wireDone struct {
	DashboardURL    *string         `json:"dashboard_url"`
	Operation       string          `json:"operation"`
	Credentials     json.RawMessage `json:"credentials"`
	SyslogDrainURL  *string         `json:"syslog_drain_url"`
	RouteServiceURL *string         `json:"route_service_url"`
	VolumeMounts    json.RawMessage `json:"volume_mounts"`
	Parameters      json.RawMessage `json:"parameters"`
}

func instancePath(guid string) string { return "/v2/service_instances/" + url.PathEscape(guid) }

func bindingPath(instance, binding string) string {
	return instancePath(instance) + "/service_bindings/" + url.PathEscape(binding)
}

// ids returns the query parameters with the broker's ids of an offering and a plan.
func ids(offering, plan string) url.Values {
	return url.Values{"service_id": {offering}, "plan_id": {plan}}
}

// Instance creates, updates or deletes a service instance.
func (h *Broker) Instance(ctx context.Context, r services.InstanceRequest) (services.Progress, error) {
	q := brokerRequest{path: instancePath(r.Instance), query: url.Values{"accepts_incomplete": {"true"}}, by: r.By}
	body := wireInstance{
		ServiceID: r.Offering, PlanID: r.Plan, Context: wireContextOf(r.Context), Parameters: r.Parameters,
		Maintenance: maintenance(r.MaintenanceVersion),
	}
	switch r.Action {
	case services.Create:
		body.OrganizationGUID, body.SpaceGUID = r.Context.Org, r.Context.Space
		q.method, q.body = http.MethodPut, body
	case services.Update:
		body.Previous = &wirePrevious{
			PlanID: r.PreviousPlan, ServiceID: r.Offering, OrganizationGUID: r.Context.Org, SpaceGUID: r.Context.Space,
			Maintenance: maintenance(r.PreviousMaintenance),
		}
		q.method, q.body = http.MethodPatch, body
	case services.Delete:
		q.method, q.query = http.MethodDelete, ids(r.Offering, r.Plan)
		q.query.Set("accepts_incomplete", "true")
	}
	resp, err := h.send(ctx, q)
	if err != nil {
		return services.Progress{}, err
	}
	p, _, err := resp.done(r.Action)
	return p, err
}

// Binding creates or deletes a binding.
func (h *Broker) Binding(ctx context.Context, r services.BindingRequest) (services.Progress, error) {
	q := brokerRequest{path: bindingPath(r.Instance, r.Binding), query: url.Values{"accepts_incomplete": {"true"}}, by: r.By}
	if r.Action == services.Delete {
		q.method, q.query = http.MethodDelete, ids(r.Offering, r.Plan)
		q.query.Set("accepts_incomplete", "true")
	} else {
		q.method = http.MethodPut
		body := wireBinding{
			ServiceID: r.Offering, PlanID: r.Plan, AppGUID: r.App, Context: wireContextOf(r.Context), Parameters: r.Parameters,
			BindResource: wireResource{AppGUID: r.App, Route: r.Route},
		}
		if r.App != "" {
			body.BindResource.SpaceGUID = r.Context.Space
		}
		body.Context.InstanceName = ""
		q.body = body
	}
	resp, err := h.send(ctx, q)
	if err != nil {
		return services.Progress{}, err
	}
	p, d, err := resp.done(r.Action)
	if err != nil || p.State != services.Succeeded || r.Action == services.Delete {
		return p, err
	}
	bindingData, err := d.bindingData(resp)
	p.Binding = &bindingData
	return p, err
}

// done parses the response to a create, update or delete request.
func (r response) done(a services.Action) (p services.Progress, d wireDone, err error) {
	switch {
	case r.status == http.StatusOK, r.status == http.StatusCreated && a == services.Create:
		p.State = services.Succeeded
	case r.status == http.StatusAccepted:
		p.State = services.InProgress
	case r.status == http.StatusGone && a == services.Delete:
		return services.Progress{State: services.Succeeded, Gone: true}, d, nil
	default:
		return p, d, r.failure()
	}
	if err := r.object(&d); err != nil {
		return p, d, err
	}
	if len(d.Operation) > maxBrokerOperationID {
		return p, d, &services.BrokerError{
			Status: r.status, Orphan: true,
			Description: fmt.Sprintf("The service broker returned an invalid response: operation must have at most %d characters", maxBrokerOperationID),
		}
	}
	p.Operation, p.RetryAfter = d.Operation, r.retryAfter()
	if d.DashboardURL != nil {
		p.Dashboard = dashboard(*d.DashboardURL)
	}
	return p, d, nil
}

// dashboard returns s if it is a URL that a browser can open, otherwise "".
func dashboard(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || len(s) > services.MaxURL {
		return ""
	}
	return s
}

// bindingData returns the data of a binding from a response.
func (d wireDone) bindingData(r response) (services.BindingData, error) {
	b := services.BindingData{Credentials: d.Credentials, VolumeMounts: d.VolumeMounts, Parameters: d.Parameters}
	if d.SyslogDrainURL != nil {
		b.SyslogDrain = *d.SyslogDrainURL
	}
	if d.RouteServiceURL != nil {
		b.RouteService = *d.RouteServiceURL
	}
	wrong := ""
	var mounts []map[string]any
	switch {
	case !isObject(b.Credentials):
		wrong = "credentials must be a JSON object"
	case !isObject(b.Parameters):
		wrong = "parameters must be a JSON object"
	case len(b.VolumeMounts) > 0 && json.Unmarshal(b.VolumeMounts, &mounts) != nil:
		wrong = "volume_mounts must be an Array of JSON objects"
	case services.CheckDrain(b.SyslogDrain) != nil:
		wrong = "syslog_drain_url " + services.DrainSchemes
	case services.CheckRouteService(b.RouteService) != nil:
		wrong = "route_service_url must be a valid https url"
	}
	if wrong == "" {
		return b, nil
	}
	return services.BindingData{}, &services.BrokerError{
		Status: r.status, Orphan: true, Description: "The service broker returned an invalid response: " + wrong,
	}
}

// isObject reports whether raw is a JSON object or empty.
func isObject(raw json.RawMessage) bool {
	_, err := services.CheckObject("", raw)
	return err == nil
}

// LastOperation returns the progress of an operation that an earlier call left in
// progress.
func (h *Broker) LastOperation(ctx context.Context, r services.LastOperationRequest) (services.Progress, error) {
	q := brokerRequest{method: http.MethodGet, path: instancePath(r.Instance), query: ids(r.Offering, r.Plan), by: r.By}
	if r.Binding != "" {
		q.path = bindingPath(r.Instance, r.Binding)
	}
	q.path += "/last_operation"
	if r.Operation != "" {
		q.query.Set("operation", r.Operation)
	}
	resp, err := h.send(ctx, q)
	if err != nil {
		return services.Progress{}, err
	}
	if resp.status == http.StatusGone && r.Action == services.Delete {
		return services.Progress{State: services.Succeeded, Gone: true}, nil
	}
	if resp.status != http.StatusOK {
		return services.Progress{}, resp.failure()
	}
	var body struct {
		State       services.State `json:"state"`
		Description *string        `json:"description"`
	}
	if err := resp.object(&body); err != nil {
		return services.Progress{}, err
	}
	p := services.Progress{State: body.State, RetryAfter: resp.retryAfter()}
	if body.Description != nil {
		p.Description = *body.Description
	}
	if !slices.Contains([]services.State{services.InProgress, services.Succeeded, services.Failed}, p.State) {
		return p, &services.BrokerError{
			Status:      resp.status,
			Description: fmt.Sprintf("The service broker returned an invalid response: expected state was one of 'succeeded', 'failed', 'in progress', not '%s'", quote([]byte(p.State))),
		}
	}
	return p, nil
}

// FetchBinding returns a binding whose creation was asynchronous.
func (h *Broker) FetchBinding(ctx context.Context, r services.BindingRequest) (services.BindingData, error) {
	resp, err := h.send(ctx, brokerRequest{
		method: http.MethodGet, path: bindingPath(r.Instance, r.Binding), query: ids(r.Offering, r.Plan), by: r.By,
	})
	if err != nil {
		return services.BindingData{}, err
	}
	var d wireDone
	if resp.status != http.StatusOK {
		return services.BindingData{}, resp.failure()
	}
	if err := resp.object(&d); err != nil {
		return services.BindingData{}, err
	}
	return d.bindingData(resp)
}

// FetchInstance returns the broker's data of an instance.
func (h *Broker) FetchInstance(ctx context.Context, r services.InstanceRequest) (services.FetchedInstance, error) {
	resp, err := h.send(ctx, brokerRequest{
		method: http.MethodGet, path: instancePath(r.Instance), query: ids(r.Offering, r.Plan), by: r.By,
	})
	if err != nil {
		return services.FetchedInstance{}, err
	}
	var d wireDone
	if resp.status != http.StatusOK {
		return services.FetchedInstance{}, resp.failure()
	}
	if err := resp.object(&d); err != nil {
		return services.FetchedInstance{}, err
	}
	if !isObject(d.Parameters) {
		return services.FetchedInstance{}, &services.BrokerError{Status: resp.status, Description: "The service broker returned an invalid response: parameters must be a JSON object"}
	}
	t := services.FetchedInstance{Parameters: d.Parameters}
	if d.DashboardURL != nil {
		t.Dashboard = dashboard(*d.DashboardURL)
	}
	return t, nil
}

// Catalog returns the broker's catalog.
func (h *Broker) Catalog(ctx context.Context) ([]services.CatalogOffering, error) {
	resp, err := h.send(ctx, brokerRequest{method: http.MethodGet, path: "/v2/catalog", limit: maxCatalog})
	if err != nil {
		return nil, err
	}
	if resp.status != http.StatusOK {
		return nil, resp.failure()
	}
	return parseCatalog(resp)
}

// seconds limits the polling time that a broker can request for an operation.
func seconds(n int64) time.Duration {
	const most = int64(services.DefaultMaxPolling / time.Second)
	return time.Duration(min(max(n, 0), most)) * time.Second
}
