package supervisor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// services returns VCAP_SERVICES of the newest instance's processes.
func (w *world) services() []string {
	w.t.Helper()
	var out []string
	for _, p := range w.fake.Last().Spec().Processes {
		i := slices.IndexFunc(p.Env, func(kv string) bool { return strings.HasPrefix(kv, "VCAP_SERVICES=") })
		out = append(out, strings.TrimPrefix(p.Env[i], "VCAP_SERVICES="))
	}
	return out
}

// withDroplet gives the app of a process a droplet that was staged with services.
func (w *world) withDroplet(process, json string) {
	w.t.Helper()
	p, err := w.registry.Process(process)
	w.must(err)
	w.must(w.droplets.Put(droplet.Droplet{GUID: "d1", App: p.App, Bindings: droplet.Bindings{JSON: json}}))
	_, err = w.registry.UpdateApp(p.App, func(a *app.App) error { a.Droplet = "d1"; return nil })
	w.must(err)
}

// stopAndStart stops an app's instances and starts new ones.
func (w *world) stopAndStart(guid string) {
	w.t.Helper()
	w.state(guid, app.Stopped)
	w.pass(time.Minute)
	w.state(guid, app.Started)
}

// Instances see the services that their droplet was staged with, not the app's current
// bindings.
func TestInstancesSeeFrozenServices(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		process := w.push("serve", "agent")
		w.withDroplet(process, `{"db":[]}`)
		w.stopAndStart(process)
		if got := w.services(); !slices.Equal(got, []string{`{"db":[]}`, `{"db":[]}`}) {
			t.Errorf("VCAP_SERVICES = %v", got)
		}
	})
}

// If Bindings is set, instances see the current services at every start, not those of
// the droplet.
func TestInstancesSeeLiveServices(t *testing.T) {
	inWorld(t, func(w *world) {
		live := `{"live":[]}`
		w.bindings = func(string) (droplet.Bindings, error) { return droplet.Bindings{JSON: live}, nil }
		w.daemon()
		process := w.push("serve")
		w.withDroplet(process, `{"db":[]}`)
		if got := w.services(); !slices.Equal(got, []string{`{"live":[]}`}) {
			t.Errorf("VCAP_SERVICES = %v", got)
		}
		live = `{"other":[]}`
		w.stopAndStart(process)
		if got := w.services(); !slices.Equal(got, []string{`{"other":[]}`}) {
			t.Errorf("after a restart VCAP_SERVICES = %v", got)
		}
		live = `["no services"]`
		w.stopAndStart(process)
		if got := w.logs.matching("is not a JSON object"); len(got) == 0 {
			t.Errorf("nobody was told: %v", w.logs.lines())
		}
	})
}
