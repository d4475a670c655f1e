package osb

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/servicestest"
)

// over serves a broker on the network.
func over(t *testing.T, tls bool) (*Broker, *servicestest.Broker) {
	t.Helper()
	b := servicestest.New(testCatalog)
	var s *httptest.Server
	if tls {
		s = httptest.NewUnstartedServer(b)
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
	} else {
		s = httptest.NewServer(b)
	}
	t.Cleanup(s.Close)
	return &Broker{URL: s.URL + "/", Username: "user", Password: "pass"}, b
}

// The client sends the requests that the specification defines.
func TestRequests(t *testing.T) {
	t.Parallel()
	h, b := over(t, false)
	ctx := t.Context()
	place := services.Context{Org: "o-g", OrgName: "o", Space: "s-g", SpaceName: "s", InstanceName: "db"}
	create := services.InstanceRequest{
		Action: services.Create, Instance: "i1", Offering: "o1", Plan: "p1", Parameters: json.RawMessage(`{"a":1}`), Context: place,
		MaintenanceVersion: "1.0.0", By: app.Actor{GUID: "user-1"},
	}
	must(h.Instance(ctx, create))
	update := create
	update.Action, update.PreviousPlan, update.Plan = services.Update, "p1", "p2"
	must(h.Instance(ctx, update))
	bind := services.BindingRequest{Action: services.Create, Binding: "b1", Instance: "i1", Offering: "o1", Plan: "p2", App: "a-g", Context: place}
	if p := must(h.Binding(ctx, bind)); p.State != services.Succeeded || string(p.Binding.Credentials) != `{"username": "u-b1", "password": "secret"}` {
		t.Errorf("progress = %+v", p)
	}
	must(h.Binding(ctx, services.BindingRequest{Action: services.Create, Binding: "b2", Instance: "i1", Offering: "o1", Plan: "p2", Route: "x.example/y", Context: place}))
	must(h.LastOperation(ctx, services.LastOperationRequest{Instance: "i1", Offering: "o1", Plan: "p2", Operation: "a b&c"}))
	must(h.LastOperation(ctx, services.LastOperationRequest{Instance: "i1", Binding: "b1", Offering: "o1", Plan: "p2"}))
	must(h.FetchBinding(ctx, bind))
	bind.Action = services.Delete
	must(h.Binding(ctx, bind))
	if p := must(h.Binding(ctx, bind)); !p.Gone || p.State != services.Succeeded {
		t.Errorf("progress of deleting twice = %+v", p)
	}
	del := create
	del.Action = services.Delete
	must(h.Instance(ctx, del))
	inPlace := `"context":{"platform":"cloudfoundry","organization_guid":"o-g","organization_name":"o","space_guid":"s-g","space_name":"s"`
	var got []string
	for _, r := range b.Requests("") {
		if r.Header.Get("X-Broker-API-Version") != "2.17" || r.Header.Get("X-Broker-API-Request-Identity") == "" {
			t.Errorf("headers = %v", r.Header)
		}
		got = append(got, r.Method+" "+r.Path+" "+query(r.Query)+" "+string(r.Body))
	}
	want := []string{
		`PUT /v2/service_instances/i1 accepts_incomplete=true {"service_id":"o1","plan_id":"p1","organization_guid":"o-g","space_guid":"s-g",` + inPlace + `,"instance_name":"db"},"parameters":{"a":1},"maintenance_info":{"version":"1.0.0"}}`,
		`PATCH /v2/service_instances/i1 accepts_incomplete=true {"service_id":"o1","plan_id":"p2",` + inPlace + `,"instance_name":"db"},"parameters":{"a":1},"maintenance_info":{"version":"1.0.0"},"previous_values":{"plan_id":"p1","service_id":"o1","organization_id":"o-g","space_id":"s-g"}}`,
		`PUT /v2/service_instances/i1/service_bindings/b1 accepts_incomplete=true {"service_id":"o1","plan_id":"p2","app_guid":"a-g","bind_resource":{"app_guid":"a-g","space_guid":"s-g"},` + inPlace + `}}`,
		`PUT /v2/service_instances/i1/service_bindings/b2 accepts_incomplete=true {"service_id":"o1","plan_id":"p2","bind_resource":{"route":"x.example/y"},` + inPlace + `}}`,
		`GET /v2/service_instances/i1/last_operation operation=a b&c plan_id=p2 service_id=o1 `,
		`GET /v2/service_instances/i1/service_bindings/b1/last_operation plan_id=p2 service_id=o1 `,
		`GET /v2/service_instances/i1/service_bindings/b1 plan_id=p2 service_id=o1 `,
		`DELETE /v2/service_instances/i1/service_bindings/b1 accepts_incomplete=true plan_id=p2 service_id=o1 `,
		`DELETE /v2/service_instances/i1/service_bindings/b1 accepts_incomplete=true plan_id=p2 service_id=o1 `,
		`DELETE /v2/service_instances/i1 accepts_incomplete=true plan_id=p1 service_id=o1 `,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	who, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(b.Requests("")[0].Header.Get("X-Broker-API-Originating-Identity"), "cloudfoundry "))
	if err != nil || string(who) != `{"user_id":"user-1"}` {
		t.Errorf("identity = %s, %v", who, err)
	}
}

func query(q map[string][]string) string {
	var parts []string
	for _, k := range []string{"accepts_incomplete", "operation", "plan_id", "service_id"} {
		for _, v := range q[k] {
			parts = append(parts, k+"="+v)
		}
	}
	return strings.Join(parts, " ")
}

// A schema of parameters that is null is no schema: everything is allowed.
func TestNullSchemas(t *testing.T) {
	t.Parallel()
	h, b := over(t, false)
	b.SetCatalog(`{"services":[{"id":"o","name":"db","description":"d","bindable":true,"plans":[{"id":"p","name":"small","description":"d","schemas":{
		"service_instance":{"create":{"parameters":null},"update":{"parameters":{"type":"object"}}},"service_binding":{"create":null}}}]}]}`)
	catalog := must(h.Catalog(t.Context()))
	got := catalog[0].Plans[0].Schemas
	if d := cmp.Diff(services.Schemas{InstanceUpdate: []byte(`{"type":"object"}`)}, got); d != "" {
		t.Error(d)
	}
	if err := services.CheckCatalog(catalog); err != nil {
		t.Errorf("the catalog is refused: %v", err)
	}
}

// A request that certainly did not reach the broker needs no orphan mitigation.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]*Broker{
		"refused": {URL: "http://127.0.0.1:1"}, // no test ever listens on that port
		"no name": {URL: "http://name.invalid"},
	} {
		_, err := h.Instance(t.Context(), services.InstanceRequest{Action: services.Create, Instance: "i"})
		var be *services.BrokerError
		if !errors.As(err, &be) || be.Orphan || !strings.HasPrefix(be.Description, "The service broker could not be reached: ") {
			t.Errorf("%s: %#v", name, err)
		}
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	h, _ := over(t, true)
	_, err := h.Catalog(t.Context())
	var be *services.BrokerError
	if !errors.As(err, &be) || be.Orphan || !strings.HasPrefix(be.Description, "The certificate of the service broker is not valid: ") {
		t.Errorf("an unknown certificate: %#v", err)
	}
	h.SkipTLS = true
	if got := must(h.Catalog(t.Context())); len(got) != 2 {
		t.Errorf("catalog = %+v", got)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	h, b := over(t, false)
	h.Timeout = 20 * time.Millisecond
	b.On(servicestest.Provision, servicestest.Behaviour{Hang: true})
	_, err := h.Instance(t.Context(), services.InstanceRequest{Action: services.Create, Instance: "i"})
	var be *services.BrokerError
	if !errors.As(err, &be) || !be.Orphan || be.Description != "The request to the service broker timed out" {
		t.Errorf("error = %#v", err)
	}
}

// slowContext has a deadline that has passed, but its timer has not fired yet.
type slowContext struct{ context.Context }

func (slowContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// A connection timeout is reported as a timeout, even if the connection reports it
// before the context does.
func TestTimeoutOfTheConnection(t *testing.T) {
	t.Parallel()
	err := connectionError(slowContext{t.Context()}, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded})
	var be *services.BrokerError
	if !errors.As(err, &be) || !be.Orphan || be.Description != "The request to the service broker timed out" {
		t.Errorf("error = %#v", err)
	}
}

// A broker cannot make the client send the password to another host.
func TestRedirects(t *testing.T) {
	t.Parallel()
	told := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) { told = true }))
	defer elsewhere.Close()
	h, b := over(t, false)
	b.On(servicestest.Catalog, servicestest.Behaviour{Status: http.StatusFound, Header: map[string]string{"Location": elsewhere.URL}})
	if _, err := h.Catalog(t.Context()); err == nil || told {
		t.Errorf("error = %v, somebody else was asked: %t", err, told)
	}
	// A page that a browser would be redirected to is not a valid response.
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Redirect(w, r, "/welcome", http.StatusFound)
			return
		}
		fmt.Fprint(w, `{}`)
	}))
	defer page.Close()
	own := &Broker{URL: page.URL, Username: "u", Password: "p"}
	if p, err := own.Instance(t.Context(), services.InstanceRequest{Action: services.Create, Instance: "i1"}); err == nil {
		t.Errorf("progress = %+v", p)
	}
}

// The results match the table of the specification.
func TestOrphanTable(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{
		201: true, 202: true, 204: true, 400: false, 404: false, 408: false, 409: false, 410: false, 422: false, 500: true, 503: true, 302: true,
	} {
		if got := mayLeaveOrphan(status); got != want {
			t.Errorf("orphans(%d) = %t, want %t", status, got, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"": 0, "30": 30 * time.Second, "-5": 0, "x": 0, "99999999": maxRetryAfter, "Mon, 02 Jan 2006 15:04:05 GMT": 0,
	} {
		r := response{header: http.Header{"Retry-After": {in}}}
		if got := r.retryAfter(); got != want {
			t.Errorf("retryAfter(%q) = %v, want %v", in, got, want)
		}
	}
}

// For any broker response, the result is valid or an error for users.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{`{}`, `{"operation":"x","dashboard_url":"http://x"}`, `{"credentials":{"a":1},"volume_mounts":[{}]}`, `[]`, `{"state":"failed"}`, `{"error":"ConcurrencyError","description":7}`, "\xff"} {
		for _, status := range []int{200, 201, 202, 410, 422, 500} {
			f.Add(status, s)
		}
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		r := response{status: status, text: http.StatusText(status), header: http.Header{}, body: []byte(body)}
		p, d, err := r.done(services.Create)
		var be *services.BrokerError
		if err != nil && (!errors.As(err, &be) || be.Description == "") {
			t.Errorf("error = %#v", err)
		}
		if err == nil && p.State != services.Succeeded && p.State != services.InProgress {
			t.Errorf("progress = %+v", p)
		}
		if bound, err := d.bindingData(r); err == nil && !isObject(bound.Credentials) {
			t.Errorf("bound = %+v", bound)
		}
	})
}

func FuzzCatalog(f *testing.F) {
	f.Add(testCatalog)
	f.Add(`{"services": null}`)
	f.Add(`{"services": [{"bindable": true, "metadata": {"costs": 7, "shareable": "x"}, "plans": [{"metadata": {"costs": [{"amount": {"usd": 1}}]}}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		os, err := parseCatalog(response{status: http.StatusOK, body: []byte(text)})
		if err != nil {
			return
		}
		if services.CheckCatalog(os) != nil {
			return
		}
		for _, o := range os {
			if o.ID == "" || o.Name == "" || len(o.Plans) == 0 {
				t.Errorf("offering = %+v", o)
			}
		}
	})
}
