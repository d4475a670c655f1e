package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/services"
)

// short holds the lists that cannot be long: built-in resources, and lists that are
// empty here.
var short = []string{
	"GET /v3/buildpacks", "GET /v3/stacks", "GET /v3/apps/{guid}/revisions/deployed", "GET /v3/space_quotas", "GET /v3/security_groups", "GET /v3/isolation_segments", "GET /v3/organization_quotas",
	"GET /v3/spaces/{guid}/running_security_groups", "GET /v3/spaces/{guid}/staging_security_groups",
}

// fill creates several resources for every list.
func (h *orgServer) fill(t *testing.T) {
	t.Helper()
	reg := h.c.Registry
	domain := must(reg.DefaultDomain())(t)
	for i := range 4 {
		name := fmt.Sprintf("%d", i)
		org := must(reg.PutOrg(app.Org{Name: "org-" + name}))(t)
		space := must(reg.PutSpace(app.Space{Name: "space-" + name, Org: h.org.GUID}))(t)
		must(reg.PutDomain(app.Domain{Name: "d" + name + ".example.com", Org: h.org.GUID}))(t)
		user := h.user("user-" + name)
		h.grant(user, "organization_user", h.org.GUID)
		h.grant(user, "organization_user", org.GUID)
		h.grant(user, "space_developer", h.space.GUID)
		a := must(reg.PutApp(app.App{Name: "app-" + name, Space: space.GUID}))(t)
		must(reg.PutProcess(app.Process{App: h.app, Type: "worker-" + name}))(t)
		must(reg.PutSidecar(app.Sidecar{App: h.app, Name: "side-" + name, Command: "x", ProcessTypes: []string{"web"}}))(t)
		route := must(reg.PutRoute(app.Route{Space: h.space.GUID, Domain: domain.GUID, Host: "host-" + name, Destinations: []app.Destination{{App: h.app}}}))(t)
		h.provide(t, name, route.GUID)
		must(h.c.Packages.Create(h.app))(t)
		h.task(t)
		h.remember(t, name)
		h.deploy(t)
		if err := h.c.Shelf.Put(droplet.Droplet{GUID: "droplet-" + name, App: h.app, Stack: "host"}); err != nil {
			t.Fatal(err)
		}
		h.record(t, a)
	}
	h.stageAgain(t, 3)
	if _, err := reg.UpdateProcess(h.app, func(p *app.Process) error { p.Instances, p.Command = 4, "x"; return nil }); err != nil {
		t.Fatal(err)
	}
	h.want(200, "POST", "/v3/apps/"+h.app+"/actions/start", "", nil)
}

// remember creates a quota of each kind, a security group and a segment.
func (h *orgServer) remember(t *testing.T, name string) {
	t.Helper()
	must(h.c.Registry.PutQuota(app.Quota{Name: "large-" + name}))(t)
	must(h.c.Registry.PutQuota(app.Quota{Name: "small-" + name, Org: h.org.GUID}))(t)
	must(h.c.Registry.PutSecurityGroup(app.SecurityGroup{Name: "group-" + name, Running: true, Staging: true}))(t)
	must(h.c.Registry.PutSegment(app.Segment{Name: "segment-" + name, Orgs: []string{h.org.GUID}}))(t)
}

// provide creates a service instance that is bound to the app and a route, and a
// broker.
func (h *orgServer) provide(t *testing.T, name, route string) {
	t.Helper()
	i, _, err := h.c.Services.CreateInstance(services.NewInstance{
		Type: services.UserProvided, Name: "ups-" + name, Space: h.space.GUID, RouteService: "https://front.example.com",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []services.NewBinding{
		{Type: services.AppBinding, Instance: i.GUID, App: h.app}, {Type: services.RouteBinding, Instance: i.GUID, Route: route},
	} {
		if _, _, err := h.c.Services.CreateBinding(b); err != nil {
			t.Fatal(err)
		}
	}
	_, o, err := h.c.Services.CreateBroker(services.NewBroker{Name: "broker-" + name, URL: "https://b.example.com", Username: "u", Password: "p"})
	if err == nil {
		_, err = h.c.Services.Wait(t.Context(), o.GUID, services.Operation.Ended)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (h *orgServer) record(t *testing.T, a app.App) {
	t.Helper()
	err := h.c.Events.Record(app.Event{Type: "audit.app.create", Space: a.Space, Target: app.Target{GUID: a.GUID, Type: "app", Name: a.Name}})
	if err != nil {
		t.Fatal(err)
	}
}

// stageAgain stages one package several times.
func (h *orgServer) stageAgain(t *testing.T, times int) {
	t.Helper()
	p := h.createPackage(h.app)
	body, kind := form(t, "[]", zipped(t, map[string]string{"Procfile": "web: again"}))
	h.upload(p.GUID, body, kind)
	for range times {
		h.stage(p.GUID)
	}
	h.guids["Package"] = p.GUID
}

// lists returns the patterns that respond with a page. It requests all patterns, so it
// finds a new list by itself.
func (h *orgServer) lists(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range slices.Sorted(maps.Keys(rights)) {
		method, path := h.methodAndPath(t, pattern)
		// The list of crashes has another key for its items. TestCrashPages tests it.
		if method != "GET" || strings.HasPrefix(path, "/stream/") || strings.HasSuffix(path, "/stream") || strings.HasSuffix(path, "/crashes") {
			continue
		}
		path = strings.Replace(path, "/v3/stacks/none/", "/v3/stacks/"+stack.GUID(stack.Default)+"/", 1)
		got := h.request(method, path, "")
		if got.Code == 200 && strings.HasPrefix(got.Body.String(), `{"pagination":`) {
			found[pattern] = path
		}
	}
	if len(found) < 30 {
		t.Errorf("%d lists, want more: %v", len(found), slices.Sorted(maps.Keys(found)))
	}
	return found
}

// page requests a page and checks its status.
func (h *orgServer) page(t *testing.T, path string) (out anyList) {
	t.Helper()
	h.want(200, "GET", path, "", &out)
	if out.Resources == nil {
		t.Errorf("%s has no resources, not even none", path)
	}
	return out
}

func texts(resources []json.RawMessage) (out []string) {
	for _, r := range resources {
		out = append(out, string(r))
	}
	return out
}

// Every list is tested in all ways on one org server that does not change.
func TestEveryList(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	h.fill(t)
	lists := h.lists(t)
	for name, ask := range map[string]func(t *testing.T, lists map[string]string){
		"pages": h.everyListPages, "refuses": h.everyListRefuses, "times": h.everyListTimes,
	} {
		t.Run(name, func(t *testing.T) { ask(t, lists) })
	}
}

// Every list returns the same items in the same order, regardless of the page size.
func (h *orgServer) everyListPages(t *testing.T, lists map[string]string) {
	for pattern, path := range lists {
		all := h.page(t, path+"?per_page=5000")
		if n := len(all.Resources); n != all.Pagination.TotalResults || n < 3 && !slices.Contains(short, pattern) {
			t.Errorf("%s has %d of %d, want all, and several", pattern, n, all.Pagination.TotalResults)
		}
		for _, per := range pageSizes(len(all.Resources)) {
			if diff := cmp.Diff(h.follow(t, path, per), texts(all.Resources)); diff != "" {
				t.Errorf("%s with %d per page (-got +want):\n%s", pattern, per, diff)
			}
		}
		if few := h.page(t, path); len(few.Resources) > rest.DefaultPerPage {
			t.Errorf("%s shows %d by itself", pattern, len(few.Resources))
		}
	}
}

// pageSizes returns the page sizes to read a list of n items with. A long list has few
// pages, because each page reads the whole list.
func pageSizes(n int) []int {
	if n > 20 && !longTests() {
		return []int{(n + 3) / 4, n - 1, n, 5000}
	}
	return []int{1, 2, 50, 5000}
}

// follow reads a list page by page.
func (h *orgServer) follow(t *testing.T, path string, per int) (got []string) {
	t.Helper()
	path = fmt.Sprintf("%s?per_page=%d", path, per)
	for n := 1; ; n++ {
		page := h.page(t, path)
		got = append(got, texts(page.Resources)...)
		p := page.Pagination
		if len(page.Resources) > per || p.TotalPages != max(1, (p.TotalResults+per-1)/per) || (p.Previous == nil) != (n == 1) {
			t.Errorf("%s is page %d with %d: %+v", path, n, len(page.Resources), p)
		}
		if p.Next == nil {
			h.beyond(t, path, p.TotalPages)
			return got
		}
		if n > 10000 {
			t.Fatalf("%s has no end", path)
		}
		path = h.relative(t, p.Next.Href)
	}
}

// relative checks that a URL starts with the public URL, and returns the rest.
func (h *orgServer) relative(t *testing.T, href string) string {
	t.Helper()
	path, ok := strings.CutPrefix(href, publicURL)
	if !ok {
		t.Fatalf("href = %q, want it absolute", href)
	}
	return path
}

// beyond checks that a page after the last one is empty and links to the last page.
func (h *orgServer) beyond(t *testing.T, path string, pages int) {
	t.Helper()
	u := must(url.Parse(path))(t)
	q := u.Query()
	q.Set("page", fmt.Sprint(pages+7))
	u.RawQuery = q.Encode()
	out := h.page(t, u.String())
	if len(out.Resources) != 0 || out.Pagination.Next != nil || out.Pagination.Previous == nil ||
		!strings.Contains(out.Pagination.Previous.Href, fmt.Sprintf("page=%d&", pages)) {
		t.Errorf("%s beyond the end = %+v", path, out.Pagination)
	}
}

// Every list refuses unknown parameters by name, and does not use the Host header of
// the request.
func (h *orgServer) everyListRefuses(t *testing.T, lists map[string]string) {
	for pattern, path := range lists {
		for query, detail := range map[string]string{
			"colour=red":                          "Unknown query parameter(s): 'colour'",
			"page=0":                              "page must be",
			"page=x":                              "page must be",
			"per_page=0":                          "per_page must be",
			"per_page=5001":                       "per_page must be",
			"per_page=":                           "per_page must be",
			"order_by=colour":                     "Order by can only be",
			"order_by=":                           "Order by can only be",
			"created_ats=yesterday":               "created_ats must have times",
			"created_ats[x]=2026-01-02T03:04:05Z": "unknown operator",
			"updated_ats[gt]=":                    "updated_ats[gt] must have times",
			"updated_ats[gt]=2026-01-02T03:04:05Z,2026-01-02T03:04:05Z": "must have exactly one time",
			"%zz": "invalid URL escape",
		} {
			got := h.request("GET", path+"?"+query, "")
			if got.Code != 400 {
				t.Errorf("%s?%s = %d %.200s, want 400", pattern, query, got.Code, got.Body)
				continue
			}
			wantError(t, got, "CF-BadQueryParameter", detail)
		}
		r := httptest.NewRequest("GET", path+"?per_page=1", nil)
		r.Host = "evil.example"
		r.Header.Set("X-Forwarded-Host", "evil.example")
		if got := h.send(r); got.Code != 200 || strings.Contains(got.Body.String(), "evil") {
			t.Errorf("%s follows the Host header: %.300s", pattern, got.Body)
		}
	}
}

// Every list can be filtered by time.
func (h *orgServer) everyListTimes(t *testing.T, lists map[string]string) {
	for pattern, path := range lists {
		all := texts(h.page(t, path+"?per_page=5000").Resources)
		for _, by := range rest.ByTime {
			if !slices.Contains(operations()[pattern].Orders, by) {
				t.Errorf("%s cannot be ordered by %s", pattern, by) // TestEveryListFilters tests all orders
			}
		}
		for query, want := range map[string]int{
			"created_ats[lt]=2100-01-02T03:04:05Z":                                      len(all),
			"created_ats[lte]=2100-01-02T03:04:05Z":                                     len(all),
			"created_ats[gt]=2100-01-02T03:04:05Z":                                      0,
			"updated_ats[gte]=2100-01-02T03:04:05Z":                                     0,
			"updated_ats=2100-01-02T03:04:05Z":                                          0,
			"created_ats[gt]=2100-01-02T03:04:05Z&created_ats[lt]=2100-01-02T03:04:05Z": 0,
		} {
			if got := h.page(t, path+"?per_page=5000&"+query).Resources; len(got) != want {
				t.Errorf("%s?%s has %d, want %d", pattern, query, len(got), want)
			}
		}
	}
}

// Resources with labels can be found by label selectors.
func TestLabelSelector(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	h.fill(t)
	domain := must(h.c.Registry.DefaultDomain())(t)
	route := must(h.c.Registry.RouteAt(domain.GUID, "host-0", ""))(t)
	for _, path := range []string{
		"/v3/apps/" + h.app, "/v3/processes/" + h.app, "/v3/routes/" + route.GUID, "/v3/packages/" + h.guids["Package"],
		"/v3/tasks/" + h.guids["Task"], "/v3/deployments/" + h.guids["Deployment"], "/v3/builds/" + h.guids["Build"], "/v3/droplets/droplet-0",
		"/v3/stacks/" + stack.GUID("host"), "/v3/buildpacks/" + droplet.Buildpacks()[0].GUID,
		"/v3/service_brokers/" + h.guids["/v3/service_brokers/"], "/v3/service_offerings/" + h.guids["/v3/service_offerings/"],
		"/v3/service_plans/" + h.guids["/v3/service_plans/"], "/v3/service_instances/" + h.guids["Service instance"],
		"/v3/service_credential_bindings/" + h.guids["Service credential binding"], "/v3/service_route_bindings/" + h.guids["Service route binding"],
	} {
		var one struct {
			Metadata v3.Metadata `json:"metadata"`
		}
		h.want(200, "PATCH", path, `{"metadata":{"labels":{"tier":"back","old":"x"},"annotations":{"note":"a b"}}}`, &one)
		one.Metadata = v3.Metadata{}
		h.want(200, "PATCH", path, `{"metadata":{"labels":{"old":null}}}`, &one)
		if len(one.Metadata.Labels) != 1 || *one.Metadata.Labels["tier"] != "back" || *one.Metadata.Annotations["note"] != "a b" {
			t.Errorf("%s: metadata = %+v", path, one.Metadata)
		}
		wantError(t, h.request("PATCH", path, `{"metadata":{"labels":{"tier":"a b"}}}`), "CF-UnprocessableEntity", "metadata.labels[tier]")
		list := path[:strings.LastIndex(path, "/")]
		for selector, want := range map[string]int{"tier=back": 1, "tier in (front,back)": 1, "tier=front": 0, "old": 0} {
			if got := h.page(t, list+"?per_page=5000&label_selector="+url.QueryEscape(selector)).Resources; len(got) != want {
				t.Errorf("%s with %s has %d, want %d", list, selector, len(got), want)
			}
		}
		all, without := h.page(t, list+"?per_page=5000").Resources, h.page(t, list+"?per_page=5000&label_selector=!tier").Resources
		if len(without) != len(all)-1 {
			t.Errorf("%s without the label has %d of %d", list, len(without), len(all))
		}
		wantError(t, h.request("GET", list+"?label_selector=a+b", ""), "CF-BadQueryParameter", "label_selector")
	}
}

// Any query is accepted or refused with a 400 response in Cloud Foundry's format.
func FuzzReadQuery(f *testing.F) {
	f.Add("names=a,b%252Cc&page=2&per_page=5000&order_by=-name")
	f.Add("created_ats[gt]=2026-01-02T03:04:05Z&label_selector=a in (b,c),!d")
	f.Add("updated_ats[=&created_ats]=x&include=space")
	f.Fuzz(func(t *testing.T, raw string) {
		r := httptest.NewRequest("GET", "/v3/apps", nil)
		r.URL.RawQuery = raw
		q, err := rest.ReadQuery(r.WithContext(rest.WithShape(r.Context(), rest.PageOf[v3.App]("names", "include", rest.ParamSelector))))
		if err != nil {
			if status, body := rest.ToError(err); status != 400 || body.Errors[0].Detail == "" {
				t.Errorf("%q = %d %+v, want 400", raw, status, body)
			}
			return
		}
		if q.Page < 1 || q.PerPage < 1 || q.PerPage > rest.MaxPerPage {
			t.Errorf("%q asks for page %d with %d", raw, q.Page, q.PerPage)
		}
		q.MatchesTimes(rest.Key{})
	})
}
