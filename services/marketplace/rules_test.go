package marketplace

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/osb"
	"github.com/dewrun/dew/services/servicestest"
)

// Invalid requests are refused with Cloud Foundry's messages and leave no partial
// records.
func TestRefusedInstances(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.create("small", "taken")
		hidden := w.planNamed("large")
		must(w.SetVisibility(hidden.GUID, services.Visibility{Type: services.Admin}, testActor))
		good := services.NewInstance{Type: services.Managed, Name: "db", Space: w.space.GUID, Plan: w.planNamed("small").GUID}
		provided := services.NewInstance{Type: services.UserProvided, Name: "db", Space: w.space.GUID}
		for _, tt := range []struct {
			name string
			in   services.NewInstance
			fn   func(n *services.NewInstance)
			want string
		}{
			{"no name", good, func(n *services.NewInstance) { n.Name = " " }, "Name can't be blank"},
			{"long name", good, func(n *services.NewInstance) { n.Name = strings.Repeat("x", 256) }, "You have requested an invalid service instance name. Names are limited to 255 characters."},
			{"name of two lines", good, func(n *services.NewInstance) { n.Name = "a\nb" }, "Name must be valid UTF-8 without control characters"},
			{"no type", good, func(n *services.NewInstance) { n.Type = "" }, "Type must be one of 'managed', 'user-provided'"},
			{"no space", good, func(n *services.NewInstance) { n.Space = "x" }, "Invalid space. Ensure that the space exists and you have access to it."},
			{"no plan", good, func(n *services.NewInstance) { n.Plan = "x" }, "Invalid service plan. Ensure that the service plan exists, is available, and you have access to it."},
			{"hidden plan", good, func(n *services.NewInstance) { n.Plan = hidden.GUID }, "Invalid service plan. This could be due to a space-scoped broker which is offering the service plan 'large' with guid '" + hidden.GUID + "' in another space or that the plan is not enabled in this organization. Ensure that the service plan is visible in your current space 'dev' with guid '" + w.space.GUID + "'."},
			{"name taken", good, func(n *services.NewInstance) { n.Name = "taken" }, "The service instance name is taken: taken."},
			{"parameters are a list", good, func(n *services.NewInstance) { n.Parameters = json.RawMessage(`[1]`) }, "parameters must be a JSON object"},
			{"parameters are no JSON", good, func(n *services.NewInstance) { n.Parameters = json.RawMessage(`{`) }, "parameters must be a JSON object"},
			{"parameter too large", good, func(n *services.NewInstance) { n.Parameters = json.RawMessage(`{"size": 11}`) }, "parameters.size: maximum: got 11, want 10"},
			{"parameter of another type", good, func(n *services.NewInstance) { n.Parameters = json.RawMessage(`{"size": "x"}`) }, "parameters.size: got string, want integer"},
			{"too many tags", good, func(n *services.NewInstance) { n.Tags = []string{strings.Repeat("x", 2049)} }, "Combined length of tags for service db must be 2048 characters or less."},
			{"provided: name taken", provided, func(n *services.NewInstance) { n.Name = "taken" }, "The service instance name is taken: taken."},
			{"provided: credentials are text", provided, func(n *services.NewInstance) { n.Credentials = json.RawMessage(`"x"`) }, "credentials must be a JSON object"},
			{"provided: drain", provided, func(n *services.NewInstance) { n.SyslogDrain = "ftp://x" }, "Syslog drain url must be a URL with the scheme syslog, syslog-tls, https or https-batch"},
			{"provided: route service", provided, func(n *services.NewInstance) { n.RouteService = "http://x" }, "Route service url must be https"},
			{"provided: route service without a host", provided, func(n *services.NewInstance) { n.RouteService = "https://" }, "Route service url must be a valid URI"},
		} {
			tt.fn(&tt.in)
			_, _, err := w.CreateInstance(tt.in)
			if got := detail(t, err); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
		if all := must(w.Instances(services.InstanceFilter{})); len(all) != 1 {
			t.Errorf("instances = %d, want 1", len(all))
		}
	})
}

// Every scheme that drain can send to is accepted.
func TestDrainSchemes(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "syslog://h:514", "syslog-tls://h", "https://h/path", "https-batch://h/path"} {
		if err := services.CheckDrain(address); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, address := range []string{"ftp://h", "syslog://", "https-batch:", "h:514"} {
		if services.CheckDrain(address) == nil {
			t.Errorf("%q is accepted", address)
		}
	}
}

func TestRefusedBindings(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i, _ := w.create("small", "db")
		plain, _ := w.create("only", "plain")
		other := w.provided(services.NewInstance{Name: "other"})
		w.bind(i)
		if _, o, err := w.CreateBinding(services.NewBinding{Type: services.KeyBinding, Name: "k", Instance: i.GUID}); err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		elsewhere := must(w.registry.PutSpace(app.Space{Name: "elsewhere", Org: w.org.GUID}))
		stranger := must(w.registry.PutApp(app.App{Name: "stranger", Space: elsewhere.GUID}))
		second := must(w.registry.PutApp(app.App{Name: "second", Space: w.space.GUID}))
		if _, _, err := w.CreateBinding(services.NewBinding{Type: services.AppBinding, Name: "mine", Instance: other.GUID, App: second.GUID}); err != nil {
			t.Fatal(err)
		}
		w.broker.On(servicestest.Update, servicestest.Behaviour{Async: 1 << 20})
		busy, _ := w.create("small", "busy")
		if _, _, err := w.UpdateInstance(busy.GUID, services.InstanceChange{Parameters: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name string
			in   services.NewBinding
			want string
		}{
			{"bound", services.NewBinding{Type: services.AppBinding, Instance: i.GUID, App: w.app.GUID}, "The app is already bound to the service instance"},
			{"another name", services.NewBinding{Type: services.AppBinding, Instance: i.GUID, App: w.app.GUID, Multiple: true, Name: "n"}, "The binding name cannot be changed for the same app and service instance"},
			{"name taken", services.NewBinding{Type: services.AppBinding, Instance: i.GUID, App: second.GUID, Name: "mine"}, "The binding name is invalid. Binding names must be unique for a given service instance and app. The app already has a binding with name 'mine'."},
			{"no app", services.NewBinding{Type: services.AppBinding, Instance: i.GUID, App: "x"}, "The app could not be found: 'x'"},
			{"no instance", services.NewBinding{Type: services.AppBinding, Instance: "x", App: w.app.GUID}, "The service instance could not be found: 'x'"},
			{"another space", services.NewBinding{Type: services.AppBinding, Instance: i.GUID, App: stranger.GUID}, "The service instance and the app are in different spaces"},
			{"not bindable", services.NewBinding{Type: services.AppBinding, Instance: plain.GUID, App: w.app.GUID}, "Service plan does not allow bindings."},
			{"busy", services.NewBinding{Type: services.AppBinding, Instance: busy.GUID, App: w.app.GUID}, "There is an operation in progress for the service instance"},
			{"parameters", services.NewBinding{Type: services.AppBinding, Instance: other.GUID, App: w.app.GUID, Parameters: json.RawMessage(`{"a": 1}`)}, "Binding parameters are not supported for user-provided service instances"},
			{"key taken", services.NewBinding{Type: services.KeyBinding, Instance: i.GUID, Name: "k"}, "The binding name is invalid. Key binding names must be unique. The service instance already has a key binding with name 'k'."},
			{"key without a name", services.NewBinding{Type: services.KeyBinding, Instance: i.GUID}, "Name can't be blank"},
			{"key of a user-provided one", services.NewBinding{Type: services.KeyBinding, Instance: other.GUID, Name: "k"}, "Service credential bindings of type 'key' are not supported for user-provided service instances."},
			{"no route", services.NewBinding{Type: services.RouteBinding, Instance: i.GUID, Route: "x"}, "The route could not be found: x"},
			{"no type", services.NewBinding{Instance: i.GUID}, "Type must be 'app' or 'key'"},
		} {
			_, _, err := w.CreateBinding(tt.in)
			if got := detail(t, err); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
		for name, fn := range map[string]func() error{
			"update": func() error {
				_, _, err := w.UpdateInstance(busy.GUID, services.InstanceChange{Name: ptr("x")})
				return err
			},
			"delete": func() error { _, err := w.DeleteInstance(busy.GUID, testActor); return err },
		} {
			if got := detail(t, fn()); got != "An operation for service instance busy is in progress." {
				t.Errorf("%s while busy: %q", name, got)
			}
		}
		if _, _, err := w.UpdateInstance(busy.GUID, services.InstanceChange{Metadata: app.MetadataChange{Labels: map[string]*string{"a": ptr("b")}}}); err != nil {
			t.Errorf("labels while busy: %v", err)
		}
	})
}

// An update changes the instance only after the broker accepted it.
func TestUpdateInstance(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i, _ := w.create("small", "db")
		w.broker.On(servicestest.Update, servicestest.Behaviour{Times: 1, Async: 1}, servicestest.Behaviour{Times: 1, NoEffect: true, Status: 422, Body: `{"description": "no way back"}`}, servicestest.Behaviour{})
		large := w.planNamed("large")
		change := services.InstanceChange{Name: ptr("base"), Plan: &large.GUID, Tags: &[]string{"t"}, By: testActor}
		during, o, err := w.UpdateInstance(i.GUID, change)
		if err != nil || during.Name != "db" || during.Plan == large.GUID || last(during.Last) != "update in progress: " {
			t.Fatalf("instance = %+v, error %v", during, err)
		}
		if o = w.waitFor(o); o.State != services.Succeeded {
			t.Errorf("operation = %+v", o)
		}
		after := must(w.Instance(i.GUID))
		if after.Name != "base" || after.Plan != large.GUID || after.Tags[0] != "t" || last(after.Last) != "update succeeded: made" || after.Maintenance != "" {
			t.Errorf("instance = %+v", after)
		}
		var asked struct {
			PlanID   string `json:"plan_id"`
			Previous struct {
				PlanID string `json:"plan_id"`
			} `json:"previous_values"`
			Context struct {
				InstanceName string `json:"instance_name"`
			} `json:"context"`
		}
		if err := json.Unmarshal(w.broker.Requests(servicestest.Update)[0].Body, &asked); err != nil {
			t.Fatal(err)
		}
		if asked.PlanID != "p2" || asked.Previous.PlanID != "p1" || asked.Context.InstanceName != "base" {
			t.Errorf("asked = %+v", asked)
		}
		small := w.planNamed("small")
		_, o, err = w.UpdateInstance(i.GUID, services.InstanceChange{Plan: &small.GUID})
		if err != nil {
			t.Fatal(err)
		}
		w.waitFor(o)
		if after := must(w.Instance(i.GUID)); after.Plan != large.GUID || last(after.Last) != "update failed: Service broker error: no way back" {
			t.Errorf("instance = %+v", after)
		}
		only := w.planNamed("only")
		_, _, err = w.UpdateInstance(i.GUID, services.InstanceChange{Plan: &only.GUID})
		if got := detail(t, err); got != "service plan relates to a different service offering" {
			t.Errorf("another offering: %q", got)
		}
		_, _, err = w.UpdateInstance(i.GUID, services.InstanceChange{Maintenance: ptr("9.9.9")})
		if got := detail(t, err); got != "The service broker does not support upgrades for service instances created from this plan." {
			t.Errorf("upgrade: %q", got)
		}
		if _, o, err := w.UpdateInstance(i.GUID, services.InstanceChange{Tags: &[]string{"u"}}); err != nil || o.GUID != "" {
			t.Errorf("tags need a broker: %+v, %v", o, err)
		}
	})
}

// A new maintenance version is offered, and an update applies it.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i, _ := w.create("small", "db")
		if w.Upgradable(i) || i.Maintenance != "1.0.0" {
			t.Errorf("instance = %+v", i)
		}
		w.broker.SetCatalog(strings.Replace(testCatalog, "1.0.0", "1.1.0", 1))
		if _, o, err := w.UpdateBroker(w.sb.GUID, services.BrokerChange{Name: ptr("b")}); err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		if !w.Upgradable(i) {
			t.Error("the instance cannot be upgraded")
		}
		_, _, err := w.UpdateInstance(i.GUID, services.InstanceChange{Maintenance: ptr("2.0.0")})
		if got := detail(t, err); !strings.HasPrefix(got, "maintenance_info.version requested is invalid.") {
			t.Errorf("another version: %q", got)
		}
		_, o, err := w.UpdateInstance(i.GUID, services.InstanceChange{Maintenance: ptr("1.1.0")})
		if err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		if i = must(w.Instance(i.GUID)); w.Upgradable(i) || i.Maintenance != "1.1.0" {
			t.Errorf("instance = %+v", i)
		}
	})
}

// Deleting apps, routes and spaces does not wait for brokers: the Marketplace deletes
// their bindings and instances later.
func TestStrays(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i, _ := w.create("small", "db")
		w.bind(i)
		if err := w.registry.DeleteApp(w.app.GUID); err != nil {
			t.Fatal(err)
		}
		settled()
		if got := must(w.Bindings(services.BindingFilter{})); len(got)+len(w.broker.Bindings()) > 0 {
			t.Errorf("bindings = %+v, the broker has %v", got, w.broker.Bindings())
		}
		w.provided(services.NewInstance{Name: "other"})
		_, o, err := w.CreateBroker(services.NewBroker{Name: "ours", URL: "http://ours.example", Username: "user", Password: "pass", Space: w.space.GUID})
		if err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		far := must(w.registry.PutSpace(app.Space{Name: "far", Org: w.org.GUID}))
		shared, o, err := w.CreateInstance(services.NewInstance{Type: services.Managed, Name: "shared", Space: far.GUID, Plan: must(w.Instance(i.GUID)).Plan})
		if err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		must(w.Share(shared.GUID, []string{w.space.GUID}, testActor))
		gone := must(w.registry.PutOrg(app.Org{Name: "gone"}))
		plan := must(w.Plans(services.PlanFilter{Names: []string{"large"}, BrokerNames: []string{"broker"}}))[0]
		must(w.SetVisibility(plan.GUID, services.Visibility{Type: services.Organization, Orgs: []string{gone.GUID}}, testActor))
		if err := errors.Join(w.registry.DeleteSpace(w.space.GUID), w.registry.DeleteOrg(gone.GUID)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * sweepEvery)
		synctest.Wait()
		got := must(w.Instances(services.InstanceFilter{}))
		if len(got) != 1 || len(w.broker.Instances()) != 1 || len(got[0].SharedWith) != 0 {
			t.Errorf("instances = %+v, the broker has %v", got, w.broker.Instances())
		}
		if sbs := must(w.Brokers(services.BrokerFilter{})); len(sbs) != 1 {
			t.Errorf("brokers = %+v", sbs)
		}
		if v := must(w.Plan(plan.GUID)).Visibility; v.Type != services.Admin {
			t.Errorf("visibility = %+v", v)
		}
	})
}

// A route can have only one route service.
func TestRouteBindings(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		d := must(w.registry.PutDomain(app.Domain{Name: "apps.example"}))
		internal := must(w.registry.PutDomain(app.Domain{Name: "in.example", Internal: true}))
		rt := must(w.registry.PutRoute(app.Route{Space: w.space.GUID, Domain: d.GUID, Host: "shop"}))
		hidden := must(w.registry.PutRoute(app.Route{Space: w.space.GUID, Domain: internal.GUID, Host: "shop"}))
		auth := w.provided(services.NewInstance{Name: "auth", RouteService: "https://auth.example"})
		rates := w.provided(services.NewInstance{Name: "rates", RouteService: "https://rates.example"})
		plain := w.provided(services.NewInstance{Name: "plain"})
		w.broker.SetCatalog(strings.Replace(testCatalog, `"requires": [`, `"requires": ["route_forwarding", `, 1))
		if _, o, err := w.UpdateBroker(w.sb.GUID, services.BrokerChange{Name: ptr("b")}); err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		if _, o, err := w.CreateBinding(services.NewBinding{Type: services.RouteBinding, Instance: auth.GUID, Route: rt.GUID, By: testActor}); err != nil || o.GUID != "" {
			t.Fatal(o, err)
		}
		if d := cmp.Diff(map[string]services.RouteService{rt.GUID: {URL: "https://auth.example"}}, must(w.RouteServices())); d != "" {
			t.Error(d)
		}
		for name, tt := range map[string]struct{ instance, route, want string }{
			"again":        {auth.GUID, rt.GUID, "The route and service instance are already bound."},
			"another":      {rates.GUID, rt.GUID, "A route may only be bound to a single service instance"},
			"internal":     {auth.GUID, hidden.GUID, "Route services cannot be bound to internal routes"},
			"no such kind": {plain.GUID, rt.GUID, "This service instance does not support route binding"},
		} {
			_, _, err := w.CreateBinding(services.NewBinding{Type: services.RouteBinding, Instance: tt.instance, Route: tt.route})
			if got := detail(t, err); got != tt.want {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
		}
		bs := must(w.Bindings(services.BindingFilter{Routes: []string{rt.GUID}, Types: []services.BindingType{services.RouteBinding}}))
		if o, err := w.DeleteBinding(bs[0].GUID, testActor); err != nil || o.GUID != "" {
			t.Fatal(o, err)
		}
		i, _ := w.create("small", "db")
		w.broker.On(servicestest.Bind, servicestest.Behaviour{Body: `{"route_service_url": "https://managed.example"}`})
		_, o, err := w.CreateBinding(services.NewBinding{Type: services.RouteBinding, Instance: i.GUID, Route: rt.GUID, By: testActor})
		if err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		if d := cmp.Diff(map[string]services.RouteService{rt.GUID: {URL: "https://managed.example"}}, must(w.RouteServices())); d != "" {
			t.Error(d)
		}
		if body := string(w.broker.Requests(servicestest.Bind)[0].Body); !strings.Contains(body, `"bind_resource":{"route":"shop.apps.example"}`) {
			t.Errorf("the broker was asked %s", body)
		}
		if err := w.registry.DeleteRoute(rt.GUID); err != nil {
			t.Fatal(err)
		}
		settled()
		if got := w.broker.Bindings(); len(got) > 0 {
			t.Errorf("the broker has %v", got)
		}
	})
}

// The dashboard URL is the last one that the broker returned.
func TestDashboard(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		if i, _ := w.create("small", "db"); i.Dashboard != "http://broker.example/"+i.GUID {
			t.Errorf("dashboard = %q", i.Dashboard)
		}
		w.broker.On(servicestest.Provision, servicestest.Behaviour{Times: 1, Async: 1}, servicestest.Behaviour{Body: `{"dashboard_url": "javascript:alert(1)"}`})
		if i, _ := w.create("small", "later"); i.Dashboard != "http://broker.example/of/"+i.GUID {
			t.Errorf("dashboard = %q", i.Dashboard)
		}
		if i, _ := w.create("small", "bad"); i.Dashboard != "" {
			t.Errorf("dashboard = %q", i.Dashboard)
		}
	})
}

func TestDeleteIn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.broker.On(servicestest.Deprovision, servicestest.Behaviour{Async: 1})
		i, _ := w.create("small", "db")
		w.bind(i)
		w.provided(services.NewInstance{Name: "other"})
		for {
			os := must(w.DeleteIn(w.space.GUID, testActor))
			if len(os) == 0 {
				break
			}
			for _, o := range os {
				if o = w.waitFor(o); o.State != services.Succeeded {
					t.Fatalf("operation = %+v", o)
				}
			}
		}
		if got := must(w.Instances(services.InstanceFilter{})); len(got)+len(w.broker.Instances()) > 0 {
			t.Errorf("instances = %+v, the broker has %v", got, w.broker.Instances())
		}
	})
}

// A purge sends no request to the broker.
func TestPurge(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i, _ := w.create("small", "db")
		w.bind(i)
		before := len(w.broker.Requests(""))
		if err := w.PurgeInstance(i.GUID, testActor); err != nil {
			t.Fatal(err)
		}
		i, _ = w.create("small", "db")
		w.bind(i)
		if err := w.PurgeOffering(w.planNamed("small").Offering, testActor); err != nil {
			t.Fatal(err)
		}
		settled()
		if got := must(w.Plans(services.PlanFilter{})); len(got) != 1 || len(must(w.Bindings(services.BindingFilter{}))) > 0 {
			t.Errorf("plans = %+v", got)
		}
		for _, r := range w.broker.Requests("")[before:] {
			if r.Method == "DELETE" {
				t.Errorf("the broker was asked: %s %s", r.Method, r.Path)
			}
		}
	})
}

// A purge also deletes the instance at the built-in broker, because nothing else could
// remove it.
func TestPurgeOfTheBuiltin(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.stop()
		w.cfg.Builtin = &osb.Broker{URL: "http://dew.example", Username: "user", Password: "pass", Client: w.client}
		w.run()
		if err := w.LoadBuiltinCatalog(w.t.Context()); err != nil {
			t.Fatal(err)
		}
		ps := must(w.Plans(services.PlanFilter{Names: []string{"small"}, BrokerNames: []string{services.BuiltinBroker}}))
		if len(ps) != 1 {
			t.Fatalf("plans = %+v", ps)
		}
		i, o, err := w.CreateInstance(services.NewInstance{Type: services.Managed, Name: "db", Space: w.space.GUID, Plan: ps[0].GUID, By: testActor})
		if err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		if err := w.PurgeInstance(i.GUID, testActor); err != nil {
			t.Fatal(err)
		}
		settled()
		rs := w.broker.Requests("")
		if r := rs[len(rs)-1]; r.Method != "DELETE" || !strings.HasSuffix(r.Path, i.GUID) {
			t.Errorf("the last request was %s %s", r.Method, r.Path)
		}
	})
}

func TestShare(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i, _ := w.create("small", "db")
		other := w.provided(services.NewInstance{Name: "other"})
		space := must(w.registry.PutSpace(app.Space{Name: "far", Org: w.org.GUID}))
		guest := must(w.registry.PutApp(app.App{Name: "guest", Space: space.GUID}))
		for name, tt := range map[string]struct{ guid, space, want string }{
			"to itself":       {i.GUID, w.space.GUID, "Unable to share service instance 'db' with space '" + w.space.GUID + "'. Service instances cannot be shared into the space where they were created."},
			"a user-provided": {other.GUID, space.GUID, "User-provided services cannot be shared."},
			"to nowhere":      {i.GUID, "x", "Unable to share service instance db with spaces ['x']. Ensure the spaces exist and that you have access to them."},
		} {
			_, err := w.Share(tt.guid, []string{tt.space}, testActor)
			if got := detail(t, err); got != tt.want {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
		}
		must(w.Share(i.GUID, []string{space.GUID, space.GUID}, testActor))
		_, err := w.Share(i.GUID, []string{space.GUID}, testActor)
		if got := detail(t, err); got != "A service instance called db has already been shared with far." {
			t.Errorf("again: %q", got)
		}
		_, _, err = w.CreateInstance(services.NewInstance{Type: services.UserProvided, Name: "db", Space: space.GUID})
		if got := detail(t, err); got != "The service instance name is taken: db." {
			t.Errorf("the name: %q", got)
		}
		_, _, err = w.UpdateInstance(i.GUID, services.InstanceChange{Name: ptr("x")})
		if got := detail(t, err); got != "Service instances that have been shared cannot be renamed" {
			t.Errorf("rename: %q", got)
		}
		if _, o, err := w.CreateBinding(services.NewBinding{Type: services.AppBinding, Instance: i.GUID, App: guest.GUID}); err != nil || w.waitFor(o).State != services.Succeeded {
			t.Fatal(o, err)
		}
		if d := cmp.Diff([]services.Usage{{Space: space.GUID, Apps: 1}}, must(w.SharedUsage(i.GUID))); d != "" {
			t.Error(d)
		}
		if found := must(w.InstanceIn(space.GUID, "db")); found.GUID != i.GUID {
			t.Errorf("found %+v", found)
		}
		if err := w.Unshare(i.GUID, space.GUID, testActor); err != nil {
			t.Fatal(err)
		}
		settled()
		if got := len(w.broker.Bindings()); got != 0 {
			t.Errorf("bindings = %d", got)
		}
	})
}

func TestVisibility(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.planNamed("small")
		other := must(w.registry.PutOrg(app.Org{Name: "other"}))
		seen := func(v services.Viewer) bool {
			ps := must(w.Plans(services.PlanFilter{GUIDs: []string{p.GUID}, Viewer: &v}))
			os := must(w.Offerings(services.OfferingFilter{Names: []string{"cache"}, Viewer: &v}))
			return len(ps) == 1 && len(os) == 1
		}
		ours, theirs := services.Viewer{Orgs: []string{w.org.GUID}}, services.Viewer{Orgs: []string{other.GUID}}
		for _, name := range []string{"small", "large"} {
			must(w.SetVisibility(w.planNamed(name).GUID, services.Visibility{Type: services.Admin}, testActor))
		}
		if seen(ours) || seen(theirs) || len(must(w.Plans(services.PlanFilter{}))) != 3 {
			t.Error("a plan of administrators is seen by others")
		}
		must(w.AddVisibility(p.GUID, services.Visibility{Type: services.Organization, Orgs: []string{w.org.GUID}}, testActor))
		if !seen(ours) || seen(theirs) {
			t.Error("a plan of one org is seen by others, or not by it")
		}
		must(w.AddVisibility(p.GUID, services.Visibility{Type: services.Organization, Orgs: []string{other.GUID}}, testActor))
		if !seen(ours) || !seen(theirs) {
			t.Error("a plan of two orgs is not seen by both")
		}
		if err := w.RemoveVisibility(p.GUID, w.org.GUID, testActor); err != nil || seen(ours) {
			t.Errorf("a plan is seen by an org that lost it: %v", err)
		}
		_, err := w.SetVisibility(p.GUID, services.Visibility{Type: services.Organization, Orgs: []string{"x"}}, testActor)
		if got := detail(t, err); got != "Could not find Organization with guid: x" {
			t.Errorf("no org: %q", got)
		}
		if ps := must(w.Plans(services.PlanFilter{Spaces: []string{w.space.GUID}})); len(ps) != 1 || ps[0].Name != "only" {
			t.Errorf("plans in the space = %+v", ps)
		}
	})
}
