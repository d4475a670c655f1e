package api

import (
	"fmt"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// newLargeServer returns a server with 100 apps. Each has three processes, a route and three
// packages.
func newLargeServer(tb testing.TB) *testServer {
	w := newTestServer(tb)
	domain := must(w.c.Registry.DefaultDomain())(tb)
	for i := range 100 {
		a := must(w.c.Registry.PutApp(app.App{Name: fmt.Sprintf("app-%d", i), Space: w.space.GUID, State: app.Started}))(tb)
		for _, kind := range []string{"worker", "clock"} {
			must(w.c.Registry.PutProcess(app.Process{App: a.GUID, Type: kind, Instances: 1}))(tb)
		}
		must(w.c.Registry.PutRoute(app.Route{Space: w.space.GUID, Domain: domain.GUID, Host: a.Name, Destinations: []app.Destination{{App: a.GUID}}}))(tb)
		for range 3 {
			must(w.c.Packages.Create(a.GUID))(tb)
		}
		w.fake.set(a.GUID, runtime.Status{State: runtime.Running})
	}
	return w
}

// BenchmarkLists requests the lists of `cf apps` and other lists, with 100 apps and 300
// processes.
func BenchmarkLists(b *testing.B) {
	w := newLargeServer(b)
	for _, path := range []string{
		"/v3/apps?order_by=name&per_page=5000&space_guids=" + w.space.GUID,
		"/v3/apps?names=app-7&space_guids=" + w.space.GUID,
		"/v3/processes?embed=process_instances&per_page=5000&space_guids=" + w.space.GUID,
		"/v3/routes?per_page=5000&space_guids=" + w.space.GUID,
		"/v3/packages?per_page=5000",
		"/v3/audit_events?per_page=50",
	} {
		b.Run(path[:min(len(path), 30)], func(b *testing.B) {
			for b.Loop() {
				w.want(200, "GET", path, "", nil)
			}
		})
	}
}
