package marketplace

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/servicestest"
)

// CheckCatalog reports all errors of a catalog at once.
func TestCheckCatalog(t *testing.T) {
	t.Parallel()
	plan := func(id, name string) services.CatalogPlan {
		return services.CatalogPlan{ID: id, Name: name, Description: "d"}
	}
	offering := func(id, name string, plans ...services.CatalogPlan) services.CatalogOffering {
		return services.CatalogOffering{ID: id, Name: name, Description: "d", Plans: plans}
	}
	for _, tt := range []struct {
		name string
		in   []services.CatalogOffering
		want string
	}{
		{"good", []services.CatalogOffering{offering("1", "a", plan("p", "x")), offering("2", "b", plan("q", "x"))}, ""},
		{"empty", nil, "Service broker must provide at least one service"},
		{"ids", []services.CatalogOffering{offering("1", "a", plan("p", "x")), offering("1", "b", plan("q", "x"))}, "Service ids must be unique: 1"},
		{"names", []services.CatalogOffering{offering("1", "a", plan("p", "x")), offering("2", "a", plan("q", "x"))}, "Service names must be unique within a broker: a"},
		{"no plans", []services.CatalogOffering{offering("1", "a")}, "Service a: At least one plan is required"},
		{"plan ids", []services.CatalogOffering{offering("1", "a", plan("p", "x")), offering("2", "b", plan("p", "y"))}, "Service b: Plan y: Plan ids must be unique. Unable to register plan with id 'p' because plan 'x' uses the same id"},
		{"plan names", []services.CatalogOffering{offering("1", "a", plan("p", "x"), plan("q", "x"))}, "Service a: Plan names must be unique within a service. Service a already has a plan named x"},
		{"nothing filled in", []services.CatalogOffering{offering("", "a", services.CatalogPlan{Name: "x", ID: "p"})}, "Service a: Plan x: Plan description is required\nService a: Service id is required"},
		{"requires", []services.CatalogOffering{{ID: "1", Name: "a", Description: "d", Requires: []string{"money"}, Plans: []services.CatalogPlan{plan("p", "x")}}}, `Service a: Service "requires" field contains unsupported value "money"`},
		{"version", []services.CatalogOffering{offering("1", "a", services.CatalogPlan{ID: "p", Name: "x", Description: "d", Maintenance: services.Maintenance{Version: "1"}})}, `Service a: Plan x: Maintenance info version must be a Semantic Version, but has value "1"`},
		{"schema elsewhere", []services.CatalogOffering{offering("1", "a", services.CatalogPlan{ID: "p", Name: "x", Description: "d", Schemas: services.Schemas{BindingCreate: json.RawMessage(`{"$ref": "file:///etc/passwd"}`)}})}, "…No external references are allowed"},
		{"schema of another shape", []services.CatalogOffering{offering("1", "a", services.CatalogPlan{ID: "p", Name: "x", Description: "d", Schemas: services.Schemas{InstanceCreate: json.RawMessage(`{"type": "nonsense"}`)}})}, "…Must conform to JSON Schema Draft 04"},
		{"schema too large", []services.CatalogOffering{offering("1", "a", services.CatalogPlan{ID: "p", Name: "x", Description: "d", Schemas: services.Schemas{InstanceUpdate: json.RawMessage(`{"a": "` + strings.Repeat("x", 64<<10) + `"}`)}})}, "Service a: Plan x: Schema service_instance.update.parameters is not valid. Must not be larger than 64KB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := services.CheckCatalog(tt.in)
			got := strings.TrimPrefix(detail(t, err), "Service broker catalog is invalid: \n")
			if part, some := strings.CutPrefix(tt.want, "…"); some && strings.Contains(got, part) {
				return
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// A catalog is stored as offerings and plans. Plans that are removed from the catalog
// stay as long as they are used.
func TestSync(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		o := must(w.Offerings(services.OfferingFilter{Names: []string{"cache"}}))[0]
		if !o.Shareable || o.DocumentationURL != "http://docs.example" || !o.Bindable || o.Tags[0] != "kv" {
			t.Errorf("offering = %+v", o)
		}
		small, large := w.planNamed("small"), w.planNamed("large")
		if !small.Free || large.Free || !small.Bindable || w.planNamed("only").Bindable {
			t.Errorf("plans = %+v, %+v", small, large)
		}
		if d := cmp.Diff([]services.Cost{{Amount: 9, Currency: "EUR", Unit: "MONTHLY"}, {Amount: 9.5, Currency: "USD", Unit: "MONTHLY"}}, large.Costs); d != "" {
			t.Error(d)
		}
		w.create("small", "db")
		w.broker.SetCatalog(`{"services": [{"id": "o1", "name": "cash", "description": "d", "bindable": true, "plans": [{"id": "p9", "name": "new", "description": "d"}]}]}`)
		_, op, err := w.UpdateBroker(w.sb.GUID, services.BrokerChange{URL: ptr("http://new.example")})
		if err != nil {
			t.Fatal(err)
		}
		if op = w.waitFor(op); op.State != services.Succeeded || len(op.Warnings) != 1 || !strings.HasSuffix(op.Warnings[0], "Service Offering: cash\nPlans deactivated: small\n") {
			t.Errorf("operation = %+v", op)
		}
		var names []string
		for _, p := range must(w.Plans(services.PlanFilter{})) {
			names = append(names, p.Name)
			if p.Active != (p.Name == "new") || p.Name == "new" && p.Visibility.Type != services.Admin {
				t.Errorf("plan = %+v", p)
			}
		}
		if d := cmp.Diff([]string{"new", "small"}, names); d != "" {
			t.Error(d)
		}
		if got := must(w.Offering(o.GUID)); got.Name != "cash" || !got.Active {
			t.Errorf("offering = %+v", got)
		}
		_, _, err = w.CreateInstance(services.NewInstance{Type: services.Managed, Name: "x", Space: w.space.GUID, Plan: small.GUID})
		if got := detail(t, err); !strings.Contains(got, "has been removed from the service broker's catalog") {
			t.Errorf("an inactive plan: %q", got)
		}
	})
}

// A broker whose catalog cannot be read changes nothing.
func TestBrokerFails(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.broker.On(servicestest.Catalog, servicestest.Behaviour{Body: `{"services": [{"id": "1"}]}`})
		w.stop() // the catalog is not read yet
		sb, o, err := w.UpdateBroker(w.sb.GUID, services.BrokerChange{URL: ptr("http://new.example"), Password: ptr("new")})
		if err != nil || sb.State != services.Synchronizing {
			t.Fatal(sb, err)
		}
		_, _, err = w.UpdateBroker(w.sb.GUID, services.BrokerChange{Name: ptr("x")})
		if got := detail(t, err); got != "Cannot update a broker when other operation is already in progress" {
			t.Errorf("during: %q", got)
		}
		w.run()
		if o = w.waitFor(o); o.State != services.Failed || o.Failure.Detail != "Authentication with the service broker failed. Double-check that the username and password are correct." {
			t.Errorf("operation = %+v %+v", o, o.Failure)
		}
		if sb := must(w.Broker(w.sb.GUID)); sb.URL != "http://broker.example" || sb.Password != "pass" || sb.State != services.Available {
			t.Errorf("broker = %+v", sb)
		}
		other, o, err := w.CreateBroker(services.NewBroker{Name: "other", URL: "http://other.example", Username: "user", Password: "pass"})
		if err != nil {
			t.Fatal(err)
		}
		if o = w.waitFor(o); o.State != services.Failed || o.Failure.Title != "CF-ServiceBrokerCatalogInvalid" {
			t.Errorf("operation = %+v %+v", o, o.Failure)
		}
		if sb := must(w.Broker(other.GUID)); sb.State != services.SynchronizationFailed {
			t.Errorf("broker = %+v", sb)
		}
		for _, tt := range []struct{ name, url, want string }{
			{"broker", "http://x", "Name must be unique"},
			{"x", "ftp://x", "must be a valid url"},
			{"x", "http://u:p@x", "must not contain authentication"},
			{"", "http://x", "Name can't be blank"},
		} {
			_, _, err := w.CreateBroker(services.NewBroker{Name: tt.name, URL: tt.url, Username: "u", Password: "p"})
			if got := detail(t, err); got != tt.want {
				t.Errorf("%s %s: %q, want %q", tt.name, tt.url, got, tt.want)
			}
		}
	})
}

// If another broker took the name while the catalog was read, the name is not used
// twice, and the operation completes.
func TestBrokerNameTakenMeanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.stop() // the catalog is not read yet
		_, o, err := w.UpdateBroker(w.sb.GUID, services.BrokerChange{Name: ptr("x")})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.CreateBroker(services.NewBroker{Name: "x", URL: "http://x.example", Username: "user", Password: "pass"}); err != nil {
			t.Fatal(err)
		}
		w.run()
		if o = w.waitFor(o); o.State != services.Failed || o.Failure.Detail != "Name must be unique" {
			t.Errorf("operation = %+v %+v", o, o.Failure)
		}
		if sb := must(w.Broker(w.sb.GUID)); sb.Name != "broker" || sb.State != services.Available {
			t.Errorf("broker = %+v", sb)
		}
	})
}

// Two brokers can have the same offering and the same ids. A broker that has instances
// cannot be deleted.
func TestTwoBrokers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		first := w.sb
		w.register("second")
		if got := must(w.Offerings(services.OfferingFilter{Names: []string{"cache"}})); len(got) != 2 {
			t.Fatalf("offerings = %+v", got)
		}
		ps := must(w.Plans(services.PlanFilter{Names: []string{"small"}, OfferingNames: []string{"cache"}, BrokerNames: []string{"second"}}))
		if len(ps) != 1 || ps[0].Broker != w.sb.GUID {
			t.Fatalf("plans = %+v", ps)
		}
		i, o, err := w.CreateInstance(services.NewInstance{Type: services.Managed, Name: "db", Space: w.space.GUID, Plan: ps[0].GUID})
		if err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		_, err = w.DeleteBroker(w.sb.GUID, testActor)
		if got := detail(t, err); got != "Can not remove brokers that have associated service instances: second" {
			t.Errorf("delete: %q", got)
		}
		if o, err := w.DeleteBroker(first.GUID, testActor); err != nil || must(w.Operation(o.GUID)).State != services.Succeeded {
			t.Errorf("operation %+v, error %v", o, err)
		}
		w.waitFor(must(w.DeleteInstance(i.GUID, testActor)))
		if _, err := w.DeleteBroker(w.sb.GUID, testActor); err != nil {
			t.Error(err)
		}
		if left := len(must(w.Offerings(services.OfferingFilter{}))) + len(must(w.Plans(services.PlanFilter{}))) + len(must(w.Brokers(services.BrokerFilter{}))); left != 0 {
			t.Errorf("%d things are left", left)
		}
	})
}

// The plans of a space-scoped broker are visible only in its space. It adds no clients to
// the authorization server.
func TestSpaceScopedBroker(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		far := must(w.registry.PutSpace(app.Space{Name: "far", Org: w.org.GUID}))
		w.broker.SetCatalog(withDashboard("hush"))
		_, o, err := w.CreateBroker(services.NewBroker{Name: "ours", URL: "http://ours.example", Username: "user", Password: "pass", Space: far.GUID})
		if err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		if w.hasSecret("hush") {
			t.Error("dashboard clients of a space-scoped broker")
		}
		_, o, err = w.CreateBroker(services.NewBroker{Name: "for all", URL: "http://all.example", Username: "user", Password: "pass"})
		if err != nil || w.waitFor(o).State != services.Succeeded || !w.hasSecret("hush") {
			t.Error("no dashboard clients of a broker for all spaces", o, err)
		}
		p := must(w.Plans(services.PlanFilter{BrokerNames: []string{"ours"}, Names: []string{"small"}}))[0]
		if p.Visibility.Type != services.SpaceOnly || p.Visibility.Space != far.GUID {
			t.Errorf("visibility = %+v", p.Visibility)
		}
		_, _, err = w.CreateInstance(services.NewInstance{Type: services.Managed, Name: "db", Space: w.space.GUID, Plan: p.GUID})
		if got := detail(t, err); !strings.HasPrefix(got, "Invalid service plan. This could be due to a space-scoped broker") {
			t.Errorf("in another space: %q", got)
		}
		if _, _, err := w.CreateInstance(services.NewInstance{Type: services.Managed, Name: "db", Space: far.GUID, Plan: p.GUID}); err != nil {
			t.Error(err)
		}
		_, err = w.SetVisibility(p.GUID, services.Visibility{Type: services.Public}, testActor)
		if got := detail(t, err); got != "cannot update plans with visibility type 'space'" {
			t.Errorf("for all: %q", got)
		}
		if seen := must(w.Plans(services.PlanFilter{GUIDs: []string{p.GUID}, Viewer: &services.Viewer{Orgs: []string{w.org.GUID}, Spaces: []string{w.space.GUID}}})); len(seen) > 0 {
			t.Error("the plan is seen in another space")
		}
	})
}

// Parameters are requested only from brokers that support it.
func TestParameters(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i, _ := w.create("small", "db")
		bi, _ := w.bind(i)
		plain, _ := w.create("only", "plain")
		if got := must(w.Parameters(context.Background(), i.GUID)); string(got) != `{"size": 2}` {
			t.Errorf("parameters = %s", got)
		}
		if got := must(w.BindingParameters(context.Background(), bi.GUID)); string(got) != `{"role": "reader"}` {
			t.Errorf("parameters = %s", got)
		}
		_, err := w.Parameters(context.Background(), plain.GUID)
		if got := detail(t, err); got != "This service does not support fetching service instance parameters." {
			t.Errorf("plain: %q", got)
		}
		w.broker.On(servicestest.Fetch, servicestest.Behaviour{NoEffect: true, Body: `{"parameters": 1}`})
		_, err = w.Parameters(context.Background(), i.GUID)
		var r *services.Refused
		if !errors.As(err, &r) || r.Status != http.StatusBadGateway || !strings.Contains(r.Detail, "parameters must be a JSON object") {
			t.Errorf("garbage: %v", err)
		}
	})
}

// Events name the actor and contain no secrets.
func TestEvents(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i, _ := w.create("small", "db")
		bi, _ := w.bind(i)
		w.waitFor(must(w.DeleteBinding(bi.GUID, testActor)))
		w.waitFor(must(w.DeleteInstance(i.GUID, testActor)))
		w.provided(services.NewInstance{Name: "p", Credentials: json.RawMessage(`{"password": "hidden-secret"}`)})
		var types []string
		for _, e := range must(w.events.List(app.EventFilter{Spaces: []string{w.space.GUID}})) {
			types = append(types, e.Type)
			if e.Actor != testActor || e.Org != w.org.GUID {
				t.Errorf("event = %+v", e)
			}
			if raw := string(must(json.Marshal(e))); strings.Contains(raw, "secret") {
				t.Errorf("event = %s", raw)
			}
		}
		want := []string{
			"audit.service_instance.create", "audit.service_binding.create", "audit.app.update",
			"audit.service_binding.start_delete", "audit.service_binding.delete", "audit.app.update",
			"audit.service_instance.start_delete", "audit.service_instance.delete", "audit.user_provided_service_instance.create",
		}
		if d := cmp.Diff(want, types); d != "" {
			t.Error(d)
		}
		for _, o := range must(w.operations.All()) {
			if raw := string(must(json.Marshal(o.Operation))); strings.Contains(raw, "secret") || strings.Contains(raw, "pass") {
				t.Errorf("operation = %s", raw)
			}
		}
	})
}

func FuzzCosts(f *testing.F) {
	f.Add(`{"costs": 7}`)
	f.Add(`{"costs": [{"amount": {"usd": 1}}]}`)
	f.Fuzz(func(_ *testing.T, metadata string) { services.CostsOf(json.RawMessage(metadata)) })
}
