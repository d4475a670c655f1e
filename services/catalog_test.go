package services

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services/servicestest"
)

// Everything that is wrong with a catalog is said at once.
func TestCheckCatalog(t *testing.T) {
	t.Parallel()
	plan := func(id, name string) CatalogPlan { return CatalogPlan{ID: id, Name: name, Description: "d"} }
	offering := func(id, name string, plans ...CatalogPlan) CatalogOffering {
		return CatalogOffering{ID: id, Name: name, Description: "d", Plans: plans}
	}
	for _, tt := range []struct {
		name string
		in   []CatalogOffering
		want string
	}{
		{"good", []CatalogOffering{offering("1", "a", plan("p", "x")), offering("2", "b", plan("q", "x"))}, ""},
		{"empty", nil, "Service broker must provide at least one service"},
		{"ids", []CatalogOffering{offering("1", "a", plan("p", "x")), offering("1", "b", plan("q", "x"))}, "Service ids must be unique: 1"},
		{"names", []CatalogOffering{offering("1", "a", plan("p", "x")), offering("2", "a", plan("q", "x"))}, "Service names must be unique within a broker: a"},
		{"no plans", []CatalogOffering{offering("1", "a")}, "Service a: At least one plan is required"},
		{"plan ids", []CatalogOffering{offering("1", "a", plan("p", "x")), offering("2", "b", plan("p", "y"))}, "Service b: Plan y: Plan ids must be unique. Unable to register plan with id 'p' because plan 'x' has it"},
		{"plan names", []CatalogOffering{offering("1", "a", plan("p", "x"), plan("q", "x"))}, "Service a: Plan names must be unique within a service. Service a already has a plan named x"},
		{"nothing filled in", []CatalogOffering{offering("", "a", CatalogPlan{Name: "x", ID: "p"})}, "Service a: Plan x: Plan description is required\nService a: Service id is required"},
		{"requires", []CatalogOffering{{ID: "1", Name: "a", Description: "d", Requires: []string{"money"}, Plans: []CatalogPlan{plan("p", "x")}}}, `Service a: Service "requires" field contains unsupported value "money"`},
		{"version", []CatalogOffering{offering("1", "a", CatalogPlan{ID: "p", Name: "x", Description: "d", Maintenance: Maintenance{Version: "1"}})}, `Service a: Plan x: Maintenance info version must be a Semantic Version, but has value "1"`},
		{"schema elsewhere", []CatalogOffering{offering("1", "a", CatalogPlan{ID: "p", Name: "x", Description: "d", Schemas: Schemas{BindingCreate: json.RawMessage(`{"$ref": "file:///etc/passwd"}`)}})}, "…No external references are allowed"},
		{"schema of another shape", []CatalogOffering{offering("1", "a", CatalogPlan{ID: "p", Name: "x", Description: "d", Schemas: Schemas{InstanceCreate: json.RawMessage(`{"type": "nonsense"}`)}})}, "…Must conform to JSON Schema Draft 04"},
		{"schema too large", []CatalogOffering{offering("1", "a", CatalogPlan{ID: "p", Name: "x", Description: "d", Schemas: Schemas{InstanceUpdate: json.RawMessage(`{"a": "` + strings.Repeat("x", maxSchema) + `"}`)}})}, "Service a: Plan x: Schema service_instance.update.parameters is not valid. Must not be larger than 64KB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := checkCatalog(tt.in)
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

// A catalog becomes offerings and plans; what is in it no more stays as long as it
// is used.
func TestSync(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		o := must(w.Offerings(OfferingFilter{Names: []string{"cache"}}))[0]
		if !o.Shareable || o.DocumentationURL != "http://docs.example" || !o.Bindable || o.Tags[0] != "kv" {
			t.Errorf("offering = %+v", o)
		}
		small, large := w.planNamed("small"), w.planNamed("large")
		if !small.Free || large.Free || !small.Bindable || w.planNamed("only").Bindable {
			t.Errorf("plans = %+v, %+v", small, large)
		}
		if d := cmp.Diff([]Cost{{9, "EUR", "MONTHLY"}, {9.5, "USD", "MONTHLY"}}, large.Costs); d != "" {
			t.Error(d)
		}
		w.create("small", "db")
		w.broker.SetCatalog(`{"services": [{"id": "o1", "name": "cash", "description": "d", "bindable": true, "plans": [{"id": "p9", "name": "new", "description": "d"}]}]}`)
		_, op, err := w.UpdateBroker(w.sb.GUID, BrokerChange{URL: ptr("http://new.example")})
		if err != nil {
			t.Fatal(err)
		}
		if op = w.ended(op); op.State != Succeeded || len(op.Warnings) != 1 || !strings.HasSuffix(op.Warnings[0], "Service Offering: cash\nPlans deactivated: small\n") {
			t.Errorf("operation = %+v", op)
		}
		var names []string
		for _, p := range must(w.Plans(PlanFilter{})) {
			names = append(names, p.Name)
			if p.Active != (p.Name == "new") || p.Name == "new" && p.Visibility.Type != Admin {
				t.Errorf("plan = %+v", p)
			}
		}
		if d := cmp.Diff([]string{"new", "small"}, names); d != "" {
			t.Error(d)
		}
		if got := must(w.Offering(o.GUID)); got.Name != "cash" || !got.Active {
			t.Errorf("offering = %+v", got)
		}
		_, _, err = w.CreateInstance(NewInstance{Type: Managed, Name: "x", Space: w.space.GUID, Plan: small.GUID})
		if got := detail(t, err); !strings.Contains(got, "has been removed from the service broker's catalog") {
			t.Errorf("an inactive plan: %q", got)
		}
	})
}

// A broker that cannot be read changes nothing.
func TestBrokerFails(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.broker.On(servicestest.Catalog, servicestest.Behaviour{Body: `{"services": [{"id": "1"}]}`})
		w.stop() // nobody reads it yet
		sb, o, err := w.UpdateBroker(w.sb.GUID, BrokerChange{URL: ptr("http://new.example"), Password: ptr("new")})
		if err != nil || sb.State != Synchronizing {
			t.Fatal(sb, err)
		}
		_, _, err = w.UpdateBroker(w.sb.GUID, BrokerChange{Name: ptr("x")})
		if got := detail(t, err); got != "Cannot update a broker when other operation is already in progress" {
			t.Errorf("during: %q", got)
		}
		w.run()
		if o = w.ended(o); o.State != Failed || o.Failure.Detail != "Authentication with the service broker failed. Double-check that the username and password are correct." {
			t.Errorf("operation = %+v %+v", o, o.Failure)
		}
		if sb := must(w.Broker(w.sb.GUID)); sb.URL != "http://broker.example" || sb.Password != "pass" || sb.State != Available {
			t.Errorf("broker = %+v", sb)
		}
		other, o, err := w.CreateBroker(NewBroker{Name: "other", URL: "http://other.example", Username: "user", Password: "pass"})
		if err != nil {
			t.Fatal(err)
		}
		if o = w.ended(o); o.State != Failed || o.Failure.Title != "CF-ServiceBrokerCatalogInvalid" {
			t.Errorf("operation = %+v %+v", o, o.Failure)
		}
		if sb := must(w.Broker(other.GUID)); sb.State != SynchronizationFailed {
			t.Errorf("broker = %+v", sb)
		}
		for _, tt := range []struct{ name, url, want string }{
			{"broker", "http://x", "Name must be unique"},
			{"x", "ftp://x", "must be a valid url"},
			{"x", "http://u:p@x", "must not contain authentication"},
			{"", "http://x", "Name can't be blank"},
		} {
			_, _, err := w.CreateBroker(NewBroker{Name: tt.name, URL: tt.url, Username: "u", Password: "p"})
			if got := detail(t, err); got != tt.want {
				t.Errorf("%s %s: %q, want %q", tt.name, tt.url, got, tt.want)
			}
		}
	})
}

// A name that somebody else took while the catalog was read is not taken twice, and
// the operation ends.
func TestBrokerNameTakenMeanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.stop() // nobody reads it yet
		_, o, err := w.UpdateBroker(w.sb.GUID, BrokerChange{Name: ptr("x")})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.CreateBroker(NewBroker{Name: "x", URL: "http://x.example", Username: "user", Password: "pass"}); err != nil {
			t.Fatal(err)
		}
		w.run()
		if o = w.ended(o); o.State != Failed || o.Failure.Detail != "Name must be unique" {
			t.Errorf("operation = %+v %+v", o, o.Failure)
		}
		if sb := must(w.Broker(w.sb.GUID)); sb.Name != "broker" || sb.State != Available {
			t.Errorf("broker = %+v", sb)
		}
	})
}

// Two brokers may have the same offering, and the same ids. One that has instances
// stays.
func TestTwoBrokers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		first := w.sb
		w.register("second")
		if got := must(w.Offerings(OfferingFilter{Names: []string{"cache"}})); len(got) != 2 {
			t.Fatalf("offerings = %+v", got)
		}
		ps := must(w.Plans(PlanFilter{Names: []string{"small"}, OfferingNames: []string{"cache"}, BrokerNames: []string{"second"}}))
		if len(ps) != 1 || ps[0].Broker != w.sb.GUID {
			t.Fatalf("plans = %+v", ps)
		}
		i, o, err := w.CreateInstance(NewInstance{Type: Managed, Name: "db", Space: w.space.GUID, Plan: ps[0].GUID})
		if err != nil || w.ended(o).State != Succeeded {
			t.Fatal(o, err)
		}
		_, err = w.DeleteBroker(w.sb.GUID, somebody)
		if got := detail(t, err); got != "Can not remove brokers that have associated service instances: second" {
			t.Errorf("delete: %q", got)
		}
		if o, err := w.DeleteBroker(first.GUID, somebody); err != nil || must(w.Operation(o.GUID)).State != Succeeded {
			t.Errorf("operation %+v, error %v", o, err)
		}
		w.ended(must(w.DeleteInstance(i.GUID, somebody)))
		if _, err := w.DeleteBroker(w.sb.GUID, somebody); err != nil {
			t.Error(err)
		}
		if left := len(must(w.Offerings(OfferingFilter{}))) + len(must(w.Plans(PlanFilter{}))) + len(must(w.Brokers(BrokerFilter{}))); left != 0 {
			t.Errorf("%d things are left", left)
		}
	})
}

// The plans of a space's broker are for that space.
func TestSpaceScopedBroker(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		far := must(w.registry.PutSpace(app.Space{Name: "far", Org: w.org.GUID}))
		_, o, err := w.CreateBroker(NewBroker{Name: "ours", URL: "http://ours.example", Username: "user", Password: "pass", Space: far.GUID})
		if err != nil || w.ended(o).State != Succeeded {
			t.Fatal(o, err)
		}
		p := must(w.Plans(PlanFilter{BrokerNames: []string{"ours"}, Names: []string{"small"}}))[0]
		if p.Visibility.Type != SpaceOnly || p.Visibility.Space != far.GUID {
			t.Errorf("visibility = %+v", p.Visibility)
		}
		_, _, err = w.CreateInstance(NewInstance{Type: Managed, Name: "db", Space: w.space.GUID, Plan: p.GUID})
		if got := detail(t, err); !strings.HasPrefix(got, "Invalid service plan. This could be due to a space-scoped broker") {
			t.Errorf("in another space: %q", got)
		}
		if _, _, err := w.CreateInstance(NewInstance{Type: Managed, Name: "db", Space: far.GUID, Plan: p.GUID}); err != nil {
			t.Error(err)
		}
		_, err = w.SetVisibility(p.GUID, Visibility{Type: Public}, somebody)
		if got := detail(t, err); got != "cannot update plans with visibility type 'space'" {
			t.Errorf("for all: %q", got)
		}
		if seen := must(w.Plans(PlanFilter{GUIDs: []string{p.GUID}, Viewer: &Viewer{Orgs: []string{w.org.GUID}, Spaces: []string{w.space.GUID}}})); len(seen) > 0 {
			t.Error("the plan is seen in another space")
		}
	})
}

// Parameters are asked of brokers that tell them.
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
		w.broker.On(servicestest.Fetch, servicestest.Behaviour{Undone: true, Body: `{"parameters": 1}`})
		_, err = w.Parameters(context.Background(), i.GUID)
		var r *Refused
		if !errors.As(err, &r) || r.Status != http.StatusBadGateway || !strings.Contains(r.Detail, "parameters must be a JSON object") {
			t.Errorf("garbage: %v", err)
		}
	})
}

// Events tell who did what, and no secrets.
func TestEvents(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i, _ := w.create("small", "db")
		bi, _ := w.bind(i)
		w.ended(must(w.DeleteBinding(bi.GUID, somebody)))
		w.ended(must(w.DeleteInstance(i.GUID, somebody)))
		w.provided(NewInstance{Name: "p", Credentials: json.RawMessage(`{"password": "hidden-secret"}`)})
		var types []string
		for _, e := range must(w.events.List(app.EventFilter{Spaces: []string{w.space.GUID}})) {
			types = append(types, e.Type)
			if e.Actor != somebody || e.Org != w.org.GUID {
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

func FuzzCatalog(f *testing.F) {
	f.Add(testCatalog)
	f.Add(`{"services": null}`)
	f.Add(`{"services": [{"bindable": true, "metadata": {"costs": 7, "shareable": "x"}, "plans": [{"metadata": {"costs": [{"amount": {"usd": 1}}]}}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		os, err := parseCatalog(response{status: http.StatusOK, body: []byte(text)})
		if err != nil {
			return
		}
		if checkCatalog(os) != nil {
			return
		}
		for _, o := range os {
			if o.ID == "" || o.Name == "" || len(o.Plans) == 0 {
				t.Errorf("offering = %+v", o)
			}
			for _, p := range o.Plans {
				costs(p.Metadata)
			}
		}
	})
}

func FuzzParameters(f *testing.F) {
	f.Add(`{"type": "object", "properties": {"a": {"type": "integer"}}}`, `{"a": "x"}`)
	f.Add(`{"$ref": "#/definitions/x", "definitions": {"x": {"$ref": "#/definitions/x"}}}`, `{}`)
	f.Add(`{"pattern": "("}`, `{}`)
	f.Fuzz(func(t *testing.T, schema, parameters string) {
		if checkSchema(json.RawMessage(schema)) != nil {
			return
		}
		raw, err := object("parameters", json.RawMessage(parameters))
		if err != nil {
			return
		}
		if err := checkParameters(json.RawMessage(schema), raw); err != nil {
			detail(t, err)
		}
	})
}
