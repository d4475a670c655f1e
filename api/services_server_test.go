package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/testkit"
)

// fakeBroker completes requests at once, unless the parameters have the key hold (in
// progress until release) or fail (an error message).
type fakeBroker struct {
	prefix string // prefix of all names in its catalog
	*fakeData
}

// fakeData is the state that the brokers of one test server share.
type fakeData struct {
	mu       sync.Mutex
	held     map[string]bool            // GUIDs whose operations are in progress
	requests []string                   // such as "create instance db"
	params   map[string]json.RawMessage // by guid
}

func newFakeBroker() *fakeBroker {
	return &fakeBroker{fakeData: &fakeData{held: map[string]bool{}, params: map[string]json.RawMessage{}}}
}

// named returns a broker with that name; the name is also the prefix of its catalog.
func (f *fakeBroker) named(name string) *fakeBroker {
	return &fakeBroker{prefix: name + "-", fakeData: f.fakeData}
}

func (f *fakeBroker) Catalog(context.Context) ([]services.CatalogOffering, error) {
	plan := func(name string, paid bool) services.CatalogPlan {
		p := services.CatalogPlan{
			ID: f.prefix + name + "-id", Name: f.prefix + name, Description: "A " + name + " one", Paid: paid,
			Maintenance: services.Maintenance{Version: "1.2.3", Description: "newer"}, MaxPolling: time.Hour,
		}
		if paid {
			p.Metadata = json.RawMessage(`{"costs":[{"amount":{"eur":9.5},"unit":"MONTHLY"}]}`)
			p.Schemas.InstanceCreate = json.RawMessage(`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object"}`)
		}
		return p
	}
	return []services.CatalogOffering{
		{
			ID: f.prefix + "database-id", Name: f.prefix + "database", Description: "A database", Tags: []string{"sql"},
			Bindable: true, PlanUpdateable: true, InstancesRetrievable: true, BindingsRetrievable: true,
			Metadata: json.RawMessage(`{"documentationUrl":"https://docs.example.com","shareable":true}`),
			Plans:    []services.CatalogPlan{plan("small", false), plan("large", true)},
		},
		{
			ID: f.prefix + "front-id", Name: f.prefix + "front", Description: "Stands before routes", Bindable: true,
			Requires: []string{"route_forwarding"}, Plans: []services.CatalogPlan{plan("gate", false)},
		},
	}, nil
}

// note records a request, and returns the result that its parameters demand.
func (f *fakeBroker) note(what, guid string, parameters json.RawMessage) (services.Progress, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, what)
	if parameters != nil {
		f.params[guid] = parameters
	}
	var p struct {
		Hold bool   `json:"hold"`
		Fail string `json:"fail"`
	}
	if len(parameters) > 0 {
		if err := json.Unmarshal(parameters, &p); err != nil {
			return services.Progress{}, err
		}
	}
	switch {
	case p.Fail != "":
		return services.Progress{}, &services.BrokerError{Status: http.StatusBadRequest, Description: p.Fail}
	case p.Hold:
		f.held[guid] = true
		return services.Progress{State: services.InProgress, Operation: "held", Description: "holding on"}, nil
	}
	return services.Progress{State: services.Succeeded}, nil
}

func (f *fakeBroker) Instance(_ context.Context, r services.InstanceRequest) (services.Progress, error) {
	p, err := f.note(string(r.Action)+" instance "+r.Context.InstanceName, r.Instance, r.Parameters)
	p.Dashboard = "https://dashboard.example.com/" + r.Context.InstanceName
	return p, err
}

func (f *fakeBroker) Binding(_ context.Context, r services.BindingRequest) (services.Progress, error) {
	p, err := f.note(string(r.Action)+" binding", r.Binding, r.Parameters)
	if err == nil && p.State == services.Succeeded && r.Action == services.Create {
		bound := f.bound(r)
		p.Binding = &bound
	}
	return p, err
}

func (f *fakeBroker) bound(r services.BindingRequest) services.BindingData {
	if r.Route != "" {
		return services.BindingData{RouteService: "https://front.example.com"}
	}
	return services.BindingData{Credentials: json.RawMessage(`{"host":"10.0.0.1","port":5432,"username":"u","password":"` + secretPassword + `"}`)}
}

func (f *fakeBroker) LastOperation(_ context.Context, r services.LastOperationRequest) (services.Progress, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held[r.Instance] && r.Binding == "" || f.held[r.Binding] {
		return services.Progress{State: services.InProgress, Description: "holding on", RetryAfter: time.Millisecond}, nil
	}
	return services.Progress{State: services.Succeeded, Description: "done"}, nil
}

func (f *fakeBroker) FetchBinding(_ context.Context, r services.BindingRequest) (services.BindingData, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.bound(r)
	b.Parameters = f.params[r.Binding]
	return b, nil
}

// FetchInstance returns the parameters of an instance.
func (f *fakeBroker) FetchInstance(_ context.Context, r services.InstanceRequest) (services.FetchedInstance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return services.FetchedInstance{Parameters: f.params[r.Instance]}, nil
}

// letGo completes all operations in progress, and returns their GUIDs.
func (f *fakeBroker) letGo() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	guids := slices.Collect(maps.Keys(f.held))
	clear(f.held)
	return guids
}

// release completes the operations in progress. It waits for the first one, because the
// broker is called in the background.
func (w *testServer) release() {
	w.t.Helper()
	var guids []string
	testkit.EventuallyTrue(w.t, "the broker holds something", func() bool {
		guids = w.broker.letGo()
		return len(guids) > 0
	})
	for _, guid := range guids {
		w.c.Services.PollNow(guid)
	}
}

func (f *fakeBroker) requestLog() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// secretPassword is in the credentials of every binding, and must not occur elsewhere.
const secretPassword = "only-in-details"

// fakeSnapshots stores no data.
type fakeSnapshots struct {
	mu       sync.Mutex
	all      []platform.Snapshot
	restored []string
}

func (f *fakeSnapshots) Snapshots(context.Context, string) ([]platform.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all), nil
}

func (f *fakeSnapshots) Snapshot(context.Context, string) (platform.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.all) + 1
	one := platform.Snapshot{GUID: fmt.Sprintf("snapshot-%d", n), CreatedAt: time.Unix(int64(n), 0), Size: 1 << 20}
	f.all = append(f.all, one)
	return one, nil
}

func (f *fakeSnapshots) Restore(_ context.Context, instance, snapshot string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restored = append(f.restored, instance+"/"+snapshot)
	return nil
}

func (f *fakeSnapshots) DeleteSnapshot(_ context.Context, _, snapshot string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = slices.DeleteFunc(f.all, func(s platform.Snapshot) bool { return s.GUID == snapshot })
	return nil
}

// plan waits for the catalog and returns the plan with the name.
func (w *testServer) plan(name string) v3.ServicePlan {
	w.t.Helper()
	var page v3.List[v3.ServicePlan]
	testkit.EventuallyTrue(w.t, "there is a plan "+name, func() bool {
		page = v3.List[v3.ServicePlan]{}
		w.want(200, "GET", "/v3/service_plans?names="+name, "", &page)
		return len(page.Resources) == 1
	})
	return page.Resources[0]
}

// managed returns the body that creates a service instance of a plan.
func (w *testServer) managed(name, plan, more string) string {
	return fmt.Sprintf(`{"type":"managed","name":%q,"relationships":{"service_plan":{"data":{"guid":%q}},"space":{"data":{"guid":%q}}}%s}`,
		name, w.plan(plan).GUID, w.space.GUID, more)
}

// provided returns the body that creates a user-provided service instance.
func (w *testServer) provided(name, more string) string {
	return fmt.Sprintf(`{"type":"user-provided","name":%q,"relationships":{"space":{"data":{"guid":%q}}}%s}`, name, w.space.GUID, more)
}

// service returns the service instance with the name.
func (w *testServer) service(name string) v3.ServiceInstance {
	w.t.Helper()
	var page v3.List[v3.ServiceInstance]
	w.want(200, "GET", "/v3/service_instances?names="+name, "", &page)
	if len(page.Resources) != 1 {
		w.t.Fatalf("there are %d service instances %s", len(page.Resources), name)
	}
	return page.Resources[0]
}

// makeService creates a service instance of the small plan, and waits for it.
func (w *testServer) makeService(name string) v3.ServiceInstance {
	w.t.Helper()
	w.complete(w.want(202, "POST", "/v3/service_instances", w.managed(name, "small", ""), nil))
	return w.service(name)
}

// boundTo returns the body that binds an app, or creates a key if appGUID is empty.
func boundTo(instance, appGUID, more string) string {
	if appGUID == "" {
		return fmt.Sprintf(`{"type":"key","relationships":{"service_instance":{"data":{"guid":%q}}}%s}`, instance, more)
	}
	return fmt.Sprintf(`{"type":"app","relationships":{"app":{"data":{"guid":%q}},"service_instance":{"data":{"guid":%q}}}%s}`, appGUID, instance, more)
}

// complete checks that a job succeeds.
func (w *testServer) complete(h http.Header) {
	w.t.Helper()
	if j := w.finish(h); j.State != v3.JobComplete || len(j.Errors) > 0 {
		w.t.Fatalf("job = %+v, want it to be complete", j)
	}
}

// jobIs waits until a job has a state.
func (w *testServer) jobIs(h http.Header, state string) v3.Job {
	w.t.Helper()
	var j v3.Job
	testkit.Eventually(w.t, "the job is "+state, func() error {
		w.want(200, "GET", strings.TrimPrefix(h.Get("Location"), publicURL), "", &j)
		if j.State != state {
			return fmt.Errorf("job = %+v", j)
		}
		return nil
	})
	return j
}

// bindings returns the bindings of an instance.
func (w *testServer) bindings(instance string) []v3.ServiceCredentialBinding {
	w.t.Helper()
	var page v3.List[v3.ServiceCredentialBinding]
	w.want(200, "GET", "/v3/service_credential_bindings?service_instance_guids="+instance, "", &page)
	return page.Resources
}
