package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// fakeServices holds the brokers, offerings, service instances and bindings of the fake
// daemon.
type fakeServices struct {
	brokers     []v3.ServiceBroker
	offerings   []v3.ServiceOffering
	plans       []v3.ServicePlan
	visible     map[string]v3.PlanVisibility // by plan
	instances   []v3.ServiceInstance
	bindings    []v3.ServiceCredentialBinding
	routes      []v3.ServiceRouteBinding
	shared      []v3.NamedGUID // spaces that share an instance
	copies      []v3.ServiceSnapshot
	jobs        map[string]*servicesJob
	appBindings []v3.AppBinding

	credentials string   // credentials of every binding
	late        bool     // operations are in progress until the last message
	messages    []string // messages of operations, one for each request
	ends        string   // final state of an operation without a job
	fails       string   // error of the next operation
	count       int
}

// servicesJob is an operation; done completes it.
type servicesJob struct {
	fails string
	looks int
	done  func()
}

// jobLocation is a response that names a job of the services.
type jobLocation string

func newFakeServices() *fakeServices {
	s := &fakeServices{
		visible: map[string]v3.PlanVisibility{}, jobs: map[string]*servicesJob{},
		brokers:     []v3.ServiceBroker{{GUID: "b-1", Name: "dew", URL: "builtin://dew"}},
		credentials: `{"host":"10.0.0.2","port":6379,"username":"u","password":"s3cret","uri":"redis://u:s3cret@10.0.0.2:6379"}`,
	}
	s.offer("b-1", "redis", "small", "large")
	s.offer("b-1", "postgres", "small")
	s.plans[1].Free, s.plans[1].Costs = false, []v3.ServiceCost{{Amount: 2, Currency: "usd", Unit: "MONTHLY"}}
	return s
}

// offer adds an offering to a broker.
func (s *fakeServices) offer(broker, name string, plans ...string) {
	o := v3.ServiceOffering{GUID: "o-" + broker + "-" + name, Name: name, Description: "A " + name, Available: true, DocumentationURL: ptr("https://docs.example.com")}
	o.Relationships.ServiceBroker = v3.To(broker)
	s.offerings = append(s.offerings, o)
	for _, plan := range plans {
		p := v3.ServicePlan{GUID: "p-" + broker + "-" + name + "-" + plan, Name: plan, Description: "It is " + plan, Free: true, Available: true, VisibilityType: v3.VisibilityPublic}
		p.Relationships.ServiceOffering = v3.To(o.GUID)
		s.plans = append(s.plans, p)
	}
}

// instance adds a service instance of the first plan.
func (s *fakeServices) instance(name, kind string) *v3.ServiceInstance {
	s.count++
	i := v3.ServiceInstance{GUID: "s-" + name, Name: name, Type: kind, Tags: []string{}, LastOperation: v3.LastOperation{Type: "create", State: "succeeded", CreatedAt: v3.At(time.Unix(1763160000, 0))}}
	i.Relationships.Space = v3.To("space-1")
	if kind == v3.ServiceManaged {
		plan := v3.To(s.plans[0].GUID)
		i.Relationships.ServicePlan = &plan
	}
	s.instances = append(s.instances, i)
	return &s.instances[len(s.instances)-1]
}

// bind adds a binding; without an app it is a service key.
func (s *fakeServices) bind(service, app, name string) *v3.ServiceCredentialBinding {
	s.count++
	b := v3.ServiceCredentialBinding{
		GUID: fmt.Sprintf("c-%d", s.count), Name: &name, Type: v3.BindingKey, LastOperation: v3.LastOperation{Type: "create", State: "succeeded"},
		CreatedAt: v3.At(time.Unix(1763160000, 0)),
	}
	b.Relationships.ServiceInstance = v3.To(service)
	if app != "" {
		b.Type, b.Relationships.App = v3.BindingApp, ptr(v3.To(app))
	}
	s.bindings = append(s.bindings, b)
	return &s.bindings[len(s.bindings)-1]
}

func (s *fakeServices) find(guid string) *v3.ServiceInstance {
	i := slices.IndexFunc(s.instances, func(i v3.ServiceInstance) bool { return i.GUID == guid })
	if i < 0 {
		return &v3.ServiceInstance{}
	}
	return &s.instances[i]
}

// begin starts an operation with a job.
func (s *fakeServices) begin(done func()) jobLocation {
	s.count++
	guid := fmt.Sprintf("service-%d", s.count)
	s.jobs[guid] = &servicesJob{fails: s.fails, done: done}
	s.fails = ""
	return jobLocation(guid)
}

// job returns the state of a job.
func (s *fakeServices) job(guid string) any {
	j := s.jobs[guid]
	switch {
	case j == nil:
		return notFound("Job not found")
	case s.late && (len(s.messages) > 0 || j.looks < 2):
		j.looks++
		return v3.Job{GUID: guid, State: v3.JobPolling}
	case j.fails != "":
		return v3.Job{GUID: guid, State: v3.JobFailed, Errors: []v3.Error{{Code: 10008, Title: v3.TitleUnprocessable, Detail: j.fails}}}
	}
	if j.done != nil {
		j.done()
		j.done = nil
	}
	return v3.Job{GUID: guid, State: v3.JobComplete}
}

func (s *fakeServices) answers(d *fakeDaemon, handle func(string, func(*http.Request, []byte) any)) {
	handle("GET /v3/jobs/{guid}", func(r *http.Request, _ []byte) any { return s.job(r.PathValue("guid")) })
	s.offeringAnswers(handle)
	s.brokerAnswers(d, handle)
	s.instanceAnswers(d, handle)
	s.bindingAnswers(d, handle)
	s.ownAnswers(handle)
}

// offeringOf returns the offering of a plan.
func (s *fakeServices) offeringOf(p v3.ServicePlan) v3.ServiceOffering {
	i := slices.IndexFunc(s.offerings, func(o v3.ServiceOffering) bool { return o.GUID == p.Relationships.ServiceOffering.ID() })
	return s.offerings[i]
}

func (s *fakeServices) brokerOf(o v3.ServiceOffering) string {
	i := slices.IndexFunc(s.brokers, func(b v3.ServiceBroker) bool { return b.GUID == o.Relationships.ServiceBroker.ID() })
	return s.brokers[i].Name
}

func (s *fakeServices) offeringAnswers(handle func(string, func(*http.Request, []byte) any)) {
	handle("GET /v3/service_plans", func(r *http.Request, _ []byte) any {
		plans := listWhere(s.plans, func(p v3.ServicePlan) bool {
			o := s.offeringOf(p)
			return matchesFilter(r, "names", p.Name) && matchesFilter(r, "service_offering_names", o.Name) && matchesFilter(r, "service_offering_guids", o.GUID) &&
				matchesFilter(r, "service_broker_names", s.brokerOf(o)) && matchesFilter(r, "available", fmt.Sprint(p.Available))
		})
		var brokers []v3.NamedGUID
		for _, b := range s.brokers {
			brokers = append(brokers, v3.NamedGUID{GUID: b.GUID, Name: b.Name})
		}
		return struct {
			v3.List[v3.ServicePlan]
			Included map[string]any `json:"included"`
		}{plans, map[string]any{"service_offerings": s.offerings, "service_brokers": brokers}}
	})
	handle("GET /v3/service_plans/{guid}", func(r *http.Request, _ []byte) any {
		i := slices.IndexFunc(s.plans, func(p v3.ServicePlan) bool { return p.GUID == r.PathValue("guid") })
		return s.plans[i]
	})
	handle("GET /v3/service_offerings", func(r *http.Request, _ []byte) any {
		return listWhere(s.offerings, func(o v3.ServiceOffering) bool {
			return matchesFilter(r, "names", o.Name) && matchesFilter(r, "service_broker_names", s.brokerOf(o))
		})
	})
	handle("DELETE /v3/service_offerings/{guid}", func(r *http.Request, _ []byte) any {
		if r.URL.Query().Get("purge") != "true" {
			return unique("it has plans")
		}
		return answer{204, nil}
	})
	for _, method := range []string{"GET", "POST", "PATCH"} {
		handle(method+" /v3/service_plans/{guid}/visibility", func(r *http.Request, body []byte) any {
			v := s.visible[r.PathValue("guid")]
			if method == "GET" {
				return v
			}
			if err := json.Unmarshal(body, &v); err != nil {
				return unique(err.Error())
			}
			s.visible[r.PathValue("guid")] = v
			return v
		})
	}
	handle("DELETE /v3/service_plans/{guid}/visibility/{org}", func(r *http.Request, _ []byte) any {
		delete(s.visible, r.PathValue("guid"))
		return answer{204, nil}
	})
}

func (s *fakeServices) brokerAnswers(d *fakeDaemon, handle func(string, func(*http.Request, []byte) any)) {
	handle("GET /v3/service_brokers", func(r *http.Request, _ []byte) any {
		return listWhere(s.brokers, func(b v3.ServiceBroker) bool { return matchesFilter(r, "names", b.Name) })
	})
	handle("POST /v3/service_brokers", func(_ *http.Request, body []byte) any {
		var n v3.CreateServiceBroker
		d.decode(body, &n)
		if slices.ContainsFunc(s.brokers, func(b v3.ServiceBroker) bool { return b.Name == n.Name }) {
			return unique("Name must be unique")
		}
		s.brokers = append(s.brokers, v3.ServiceBroker{GUID: fmt.Sprintf("b-%d", len(s.brokers)+1), Name: n.Name, URL: n.URL})
		return s.begin(nil)
	})
	handle("PATCH /v3/service_brokers/{guid}", func(*http.Request, []byte) any { return s.begin(nil) })
	handle("DELETE /v3/service_brokers/{guid}", func(*http.Request, []byte) any { return s.begin(nil) })
}

func (s *fakeServices) instanceAnswers(d *fakeDaemon, handle func(string, func(*http.Request, []byte) any)) {
	handle("GET /v3/service_instances", func(r *http.Request, _ []byte) any {
		if got := r.URL.Query().Get("space_guids"); got != "space-1" {
			d.t.Errorf("service instances of space %q are asked for", got)
		}
		for i := range s.instances {
			last := &s.instances[i].LastOperation
			if last.State == "in progress" && len(s.messages) > 0 {
				last.Description, s.messages = s.messages[0], s.messages[1:]
			} else if last.State == "in progress" && s.ends != "" {
				last.State = s.ends
			}
		}
		return listWhere(s.instances, func(i v3.ServiceInstance) bool { return matchesFilter(r, "names", i.Name) })
	})
	handle("POST /v3/service_instances", func(_ *http.Request, body []byte) any {
		var n v3.CreateServiceInstance
		d.decode(body, &n)
		if slices.ContainsFunc(s.instances, func(i v3.ServiceInstance) bool { return i.Name == n.Name }) {
			return unique("The service instance name is taken: " + n.Name + ".")
		}
		i := s.instance(n.Name, n.Type)
		if n.Type == v3.ServiceUserProvided {
			return answer{201, *i}
		}
		i.Relationships.ServicePlan = n.Relationships.ServicePlan
		i.LastOperation.State = "in progress"
		return s.begin(func() { s.find(i.GUID).LastOperation.State = "succeeded" })
	})
	handle("PATCH /v3/service_instances/{guid}", func(r *http.Request, body []byte) any {
		var u v3.UpdateServiceInstance
		d.decode(body, &u)
		i := s.find(r.PathValue("guid"))
		if i.Type == v3.ServiceUserProvided {
			return *i
		}
		i.LastOperation = v3.LastOperation{Type: "update", State: "in progress"}
		return s.begin(func() { s.find(i.GUID).LastOperation.State = "succeeded" })
	})
	handle("DELETE /v3/service_instances/{guid}", func(r *http.Request, _ []byte) any {
		guid := r.PathValue("guid")
		drop := func() {
			s.instances = slices.DeleteFunc(s.instances, func(i v3.ServiceInstance) bool { return i.GUID == guid })
		}
		if r.URL.Query().Get("purge") == "true" || s.find(guid).Type == v3.ServiceUserProvided {
			drop()
			return answer{204, nil}
		}
		s.find(guid).LastOperation = v3.LastOperation{Type: "delete", State: "in progress"}
		return s.begin(drop)
	})
	handle("GET /v3/service_instances/{guid}/parameters", func(*http.Request, []byte) any { return map[string]int{"ram": 4} })
	handle("GET /v3/service_instances/{guid}/relationships/shared_spaces", func(*http.Request, []byte) any {
		return v3.SharedSpaces{Included: map[string]any{"spaces": s.shared}}
	})
	handle("POST /v3/service_instances/{guid}/relationships/shared_spaces", func(*http.Request, []byte) any { return v3.SharedSpaces{} })
	handle("DELETE /v3/service_instances/{guid}/relationships/shared_spaces/{space}", func(*http.Request, []byte) any { return answer{204, nil} })
}

func (s *fakeServices) bindingAnswers(d *fakeDaemon, handle func(string, func(*http.Request, []byte) any)) {
	handle("GET /v3/service_credential_bindings", func(r *http.Request, _ []byte) any {
		return listWhere(s.bindings, func(b v3.ServiceCredentialBinding) bool {
			app := ""
			if b.Relationships.App != nil {
				app = b.Relationships.App.ID()
			}
			return matchesFilter(r, "type", b.Type) && matchesFilter(r, "names", *b.Name) && matchesFilter(r, "app_guids", app) && matchesFilter(r, "service_instance_guids", b.Relationships.ServiceInstance.ID())
		})
	})
	handle("POST /v3/service_credential_bindings", func(_ *http.Request, body []byte) any {
		var n v3.CreateCredentialBinding
		d.decode(body, &n)
		app := ""
		if n.Relationships.App != nil {
			app = n.Relationships.App.ID()
		}
		b := s.bind(n.Relationships.ServiceInstance.ID(), app, n.Name)
		if s.find(n.Relationships.ServiceInstance.ID()).Type == v3.ServiceUserProvided {
			return answer{201, *b}
		}
		return s.begin(nil)
	})
	handle("DELETE /v3/service_credential_bindings/{guid}", func(r *http.Request, _ []byte) any {
		return s.begin(func() {
			s.bindings = slices.DeleteFunc(s.bindings, func(b v3.ServiceCredentialBinding) bool { return b.GUID == r.PathValue("guid") })
		})
	})
	handle("GET /v3/service_credential_bindings/{guid}/details", func(*http.Request, []byte) any {
		return v3.BindingDetails{Credentials: json.RawMessage(s.credentials)}
	})
	handle("GET /v3/service_route_bindings", func(r *http.Request, _ []byte) any {
		return listWhere(s.routes, func(b v3.ServiceRouteBinding) bool {
			return matchesFilter(r, "route_guids", b.Relationships.Route.ID())
		})
	})
	handle("POST /v3/service_route_bindings", func(_ *http.Request, body []byte) any {
		var n v3.CreateServiceRouteBinding
		d.decode(body, &n)
		if len(s.routes) > 0 {
			return unique("The route and service instance are already bound.")
		}
		s.routes = append(s.routes, v3.ServiceRouteBinding{GUID: "rb-1", Relationships: n.Relationships})
		return s.begin(nil)
	})
	handle("DELETE /v3/service_route_bindings/{guid}", func(*http.Request, []byte) any {
		return s.begin(func() { s.routes = nil })
	})
}

// ownAnswers handles the requests that cf does not send.
func (s *fakeServices) ownAnswers(handle func(string, func(*http.Request, []byte) any)) {
	handle("GET /dew/v1/apps/app-1/bindings", func(*http.Request, []byte) any { return v3.AppBindings{Bindings: s.appBindings} })
	const at = " /dew/v1/service_instances/{guid}/snapshots"
	handle("GET"+at, func(*http.Request, []byte) any { return v3.ServiceSnapshots{Snapshots: s.copies} })
	handle("POST"+at, func(*http.Request, []byte) any {
		return s.begin(func() { s.copies = append([]v3.ServiceSnapshot{{GUID: "20261115-1", Size: 2048}}, s.copies...) })
	})
	known := func(r *http.Request) bool {
		return slices.ContainsFunc(s.copies, func(c v3.ServiceSnapshot) bool { return c.GUID == r.PathValue("snapshot") })
	}
	handle("POST"+at+"/{snapshot}/restore", func(r *http.Request, _ []byte) any {
		if !known(r) {
			return notFound("Snapshot not found")
		}
		return s.begin(nil)
	})
	handle("DELETE"+at+"/{snapshot}", func(r *http.Request, _ []byte) any {
		if !known(r) {
			return notFound("Snapshot not found")
		}
		return answer{204, nil}
	})
}

// serviceLines sends the log lines of a service instance.
func (d *fakeDaemon) serviceLines(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", v3.LinesType)
	l := v3.Line{Seq: 1, Time: time.Unix(1763160000, 0), Source: "SERVICE/REDIS", Stream: "OUT", Text: []byte("ready for " + r.PathValue("guid"))}
	_, _ = w.Write(v3.AppendEnd(v3.AppendLine(nil, &l))) // the reader is still connected
}
