package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// fakeRecords holds the resources that the fake daemon stores: quotas, security groups,
// isolation segments, labels, environment variable groups and usage events.
type fakeRecords struct {
	kept      map[string][]map[string]any   // by path
	related   map[string][]v3.GUID          // by path
	one       map[string]*v3.GUID           // segments of orgs and spaces, by path
	labels    map[string]map[string]*string // by path
	vars      map[string]map[string]string
	ssh       bool
	appUsage  []v3.AppUsageEvent
	service   []v3.ServiceUsageEvent
	usageFrom string // the requested start of usage events
	stack     v3.Stack
}

func newFakeRecords() *fakeRecords {
	return &fakeRecords{
		kept: map[string][]map[string]any{}, related: map[string][]v3.GUID{}, one: map[string]*v3.GUID{}, labels: map[string]map[string]*string{},
		vars: map[string]map[string]string{"running": {}, "staging": {}}, ssh: true,
		stack: v3.Stack{GUID: "s-host", Name: "host", State: "ACTIVE"},
	}
}

type handleFunc func(string, func(*http.Request, []byte) any)

func (rs *fakeRecords) answers(d *fakeDaemon, handle handleFunc) {
	for _, kind := range []string{"organization_quotas", "space_quotas", "security_groups", "isolation_segments"} {
		rs.shelf(d, "/v3/"+kind, handle)
	}
	rs.segmentAnswers(d, handle)
	rs.sharingAnswers(d, handle)
	handle("GET /v3/{kind}/{guid}", func(*http.Request, []byte) any { return v3.UpdateMetadata{Metadata: &v3.Metadata{}} })
	rs.usageAnswers(d, handle)
	handle("GET /v3/environment_variable_groups/{name}", func(r *http.Request, _ []byte) any {
		return v3.EnvVarGroup{Name: r.PathValue("name"), Var: rs.vars[r.PathValue("name")]}
	})
	handle("PATCH /v3/environment_variable_groups/{name}", func(r *http.Request, b []byte) any {
		var c v3.UpdateEnvVars
		d.decode(b, &c)
		for key, value := range c.Var {
			if delete(rs.vars[r.PathValue("name")], key); value != nil {
				rs.vars[r.PathValue("name")][key] = *value
			}
		}
		return v3.EnvVarGroup{}
	})
	handle("GET /v3/spaces/{guid}/features/ssh", func(*http.Request, []byte) any { return v3.SpaceFeature{Name: "ssh", Enabled: rs.ssh} })
	handle("PATCH /v3/spaces/{guid}/features/ssh", func(_ *http.Request, b []byte) any {
		var c v3.UpdateSpaceFeature
		d.decode(b, &c)
		rs.ssh = *c.Enabled
		return v3.SpaceFeature{Name: "ssh", Enabled: rs.ssh}
	})
	for _, phase := range []string{"running", "staging"} {
		handle("GET /v3/spaces/{guid}/"+phase+"_security_groups", func(r *http.Request, _ []byte) any {
			return listWhere(rs.kept["/v3/security_groups"], func(one map[string]any) bool {
				return slices.Contains(rs.related["/v3/security_groups/"+one["guid"].(string)+"/relationships/"+phase+"_spaces"], v3.GUID{GUID: r.PathValue("guid")})
			})
		})
	}
	handle("GET /v3/stacks", func(*http.Request, []byte) any { return listOf(rs.stack) })
	handle("PATCH /v3/stacks/{guid}", func(r *http.Request, b []byte) any {
		var c v3.UpdateStack
		d.decode(b, &c)
		if c.State != nil {
			rs.stack.State = *c.State
		}
		return rs.stack
	})
}

// shelf stores the resources of one path as they are sent.
func (rs *fakeRecords) shelf(d *fakeDaemon, path string, handle handleFunc) {
	find := func(r *http.Request) map[string]any {
		i := slices.IndexFunc(rs.kept[path], func(one map[string]any) bool { return one["guid"] == r.PathValue("guid") })
		if i < 0 {
			d.t.Errorf("there is no %s at %s", r.PathValue("guid"), path)
			return map[string]any{}
		}
		return rs.kept[path][i]
	}
	handle("GET "+path, func(r *http.Request, _ []byte) any {
		return listWhere(rs.kept[path], func(one map[string]any) bool {
			on, _ := one["globally_enabled"].(map[string]any)
			return rs.holds(r, path+"/"+one["guid"].(string)) && matchesFilter(r, "guids", one["guid"].(string)) && matchesFilter(r, "names", one["name"].(string)) && matchesFilter(r, "globally_enabled_running", fmt.Sprint(on["running"] == true)) &&
				matchesFilter(r, "globally_enabled_staging", fmt.Sprint(on["staging"] == true))
		})
	})
	handle("POST "+path, func(_ *http.Request, b []byte) any {
		one := map[string]any{}
		d.decode(b, &one)
		if slices.ContainsFunc(rs.kept[path], func(other map[string]any) bool { return other["name"] == one["name"] }) {
			return unique(fmt.Sprintf("'%v' already exists.", one["name"]))
		}
		one["guid"] = fmt.Sprintf("g-%v", one["name"])
		rs.kept[path] = append(rs.kept[path], one)
		return answer{201, one}
	})
	handle("PATCH "+path+"/{guid}", func(r *http.Request, b []byte) any {
		one := find(r)
		d.decode(b, &one) // absent fields stay
		return one
	})
	handle("DELETE "+path+"/{guid}", func(r *http.Request, _ []byte) any {
		rs.kept[path] = slices.DeleteFunc(rs.kept[path], func(one map[string]any) bool { return one["guid"] == r.PathValue("guid") })
		return job{}
	})
	rs.relations(d, path, handle, func(r *http.Request, name string, to []v3.GUID) {
		one := find(r)
		all, _ := one["relationships"].(map[string]any)
		if all == nil {
			all = map[string]any{}
		}
		all[name] = v3.ToMany{Data: to}
		one["relationships"] = all
	})
}

// holds reports whether the quota at a path belongs to the org or space of the filter.
func (rs *fakeRecords) holds(r *http.Request, path string) bool {
	filter, relation := "organization_guids", "organizations"
	if strings.HasPrefix(path, "/v3/space_quotas/") {
		filter, relation = "space_guids", "spaces"
	}
	want := r.URL.Query().Get(filter)
	return want == "" || slices.Contains(rs.related[path+"/relationships/"+relation], v3.GUID{GUID: want})
}

// relations stores the relationships of resources at a path.
func (rs *fakeRecords) relations(d *fakeDaemon, path string, handle handleFunc, changed func(r *http.Request, name string, to []v3.GUID)) {
	handle("POST "+path+"/{guid}/relationships/{name}", func(r *http.Request, b []byte) any {
		var c v3.ToMany
		d.decode(b, &c)
		rs.related[r.URL.Path] = append(rs.related[r.URL.Path], c.Data...)
		changed(r, r.PathValue("name"), rs.related[r.URL.Path])
		return v3.RelatedMany{Data: rs.related[r.URL.Path]}
	})
	handle("GET "+path+"/{guid}/relationships/{name}", func(r *http.Request, _ []byte) any {
		return v3.RelatedMany{Data: append([]v3.GUID{}, rs.related[r.URL.Path]...)}
	})
	handle("DELETE "+path+"/{guid}/relationships/{name}/{other}", func(r *http.Request, _ []byte) any {
		key := strings.TrimSuffix(r.URL.Path, "/"+r.PathValue("other"))
		before := len(rs.related[key])
		rs.related[key] = slices.DeleteFunc(rs.related[key], func(g v3.GUID) bool { return g.GUID == r.PathValue("other") })
		if len(rs.related[key]) == before {
			return unique("Ensure that it is applied to this space.")
		}
		changed(r, r.PathValue("name"), rs.related[key])
		return answer{204, nil}
	})
}

func (rs *fakeRecords) segmentAnswers(d *fakeDaemon, handle handleFunc) {
	handle("GET /v3/isolation_segments/{guid}/organizations", func(r *http.Request, _ []byte) any {
		to := rs.related["/v3/isolation_segments/"+r.PathValue("guid")+"/relationships/organizations"]
		return listWhere(d.accounts.orgs, func(o v3.Organization) bool { return slices.Contains(to, v3.GUID{GUID: o.GUID}) })
	})
	for _, path := range []string{"/v3/organizations/{guid}/relationships/default_isolation_segment", "/v3/spaces/{guid}/relationships/isolation_segment"} {
		handle("GET "+path, func(r *http.Request, _ []byte) any { return v3.Related{Data: rs.one[r.URL.Path]} })
		handle("PATCH "+path, func(r *http.Request, b []byte) any {
			var to v3.ToOne
			d.decode(b, &to)
			rs.one[r.URL.Path] = to.Data
			return v3.Related{Data: to.Data}
		})
	}
}

// sharingAnswers handles requests about shared routes and domains.
func (rs *fakeRecords) sharingAnswers(d *fakeDaemon, handle handleFunc) {
	for _, path := range []string{"/v3/routes", "/v3/domains"} {
		rs.relations(d, path, handle, func(*http.Request, string, []v3.GUID) {})
	}
	handle("PATCH /v3/routes/{guid}/relationships/space", func(*http.Request, []byte) any { return v3.Related{} })
	handle("PATCH /v3/routes/{guid}", func(*http.Request, []byte) any { return v3.Route{} })
	handle("PATCH /v3/routes/{guid}/destinations/{to}", func(*http.Request, []byte) any { return v3.Destination{} })
	handle("GET /v3/domains/{guid}/route_reservations", func(r *http.Request, _ []byte) any {
		q := r.URL.Query()
		return v3.Reservation{Matching: slices.ContainsFunc(d.routes, func(rt v3.Route) bool {
			return rt.Host == q.Get("host") && rt.Path == q.Get("path") && portOf(rt) == q.Get("port")
		})}
	})
}

// relabel stores the labels of a PATCH request. If the resource has labels, it responds
// with them.
func (rs *fakeRecords) relabel(r *http.Request, b []byte) any {
	var c v3.UpdateMetadata
	if r.Method == http.MethodPatch && json.Unmarshal(b, &c) == nil && c.Metadata != nil {
		if rs.labels[r.URL.Path] == nil {
			rs.labels[r.URL.Path] = map[string]*string{}
		}
		for key, value := range c.Metadata.Labels {
			if delete(rs.labels[r.URL.Path], key); value != nil {
				rs.labels[r.URL.Path][key] = value
			}
		}
	}
	if labels, ok := rs.labels[r.URL.Path]; ok {
		return v3.UpdateMetadata{Metadata: &v3.Metadata{Labels: labels}}
	}
	return nil
}

func (rs *fakeRecords) usageAnswers(d *fakeDaemon, handle handleFunc) {
	newest := func(r *http.Request) {
		if r.URL.Query().Get("order_by") != "-created_at" {
			d.t.Errorf("usage is asked for by %q", r.URL.Query().Get("order_by"))
		}
		rs.usageFrom = r.URL.Query().Get("created_ats[gte]")
	}
	handle("GET /v3/app_usage_events", func(r *http.Request, _ []byte) any { newest(r); return listOf(rs.appUsage...) })
	handle("GET /v3/service_usage_events", func(r *http.Request, _ []byte) any { newest(r); return listOf(rs.service...) })
	at := func(minute int) v3.Time { return v3.At(time.Date(2026, 1, 31, 8, minute, 0, 0, time.UTC)) }
	rs.appUsage = []v3.AppUsageEvent{
		{GUID: "u-3", CreatedAt: at(3), State: v3.StateChange{Current: "STOPPED"}, App: v3.OptionalName{Name: ptr("shop")}, Process: v3.ProcessName{Type: ptr("web")}, Space: v3.OptionalName{Name: ptr("dev")}},
		{
			GUID: "u-1", CreatedAt: at(1), State: v3.StateChange{Current: "STARTED"}, App: v3.OptionalName{Name: ptr("shop")}, Process: v3.ProcessName{Type: ptr("web")},
			Space: v3.OptionalName{Name: ptr("dev")}, Memory: v3.NumberChange{Current: 256}, Instances: v3.NumberChange{Current: 2},
		},
	}
	rs.service = []v3.ServiceUsageEvent{{
		GUID: "u-2", CreatedAt: at(2), State: "CREATED", ServiceInstance: v3.ServiceInstanceName{Name: "db"}, ServiceOffering: v3.OptionalName{Name: ptr("postgres")}, ServicePlan: v3.OptionalName{Name: ptr("small")},
	}}
}
