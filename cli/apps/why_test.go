package apps

import (
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// The cause of a crash at the start decides the exit status. The verdict is the message.
func TestExplainCrash(t *testing.T) {
	verdict := v3.Verdict{Sentence: "web failed with status 1: no DATABASE_URL", Advice: "Set it"}
	for name, c := range map[string]struct {
		crash  v3.Crash
		status int
		err    string
		advice string
	}{
		"failed":      {v3.Crash{Verdict: verdict, First: v3.CrashExit{Code: 1}}, 4, "shop crashed while starting: web failed with status 1: no DATABASE_URL", "Set it"},
		"memory":      {v3.Crash{Verdict: verdict, First: v3.CrashExit{Code: 137, OutOfMemory: true}}, 7, "shop crashed while starting: web failed with status 1: no DATABASE_URL", "Set it"},
		"not healthy": {v3.Crash{Verdict: verdict, First: v3.CrashExit{Code: -1, Cause: causeStartTimeout}}, 5, "shop did not become healthy: web failed with status 1: no DATABASE_URL", "Set it"},
		"no verdict": {
			v3.Crash{Description: "APP/PROC/WEB: Exited with status 1", First: v3.CrashExit{Code: 1}},
			4, "shop crashed while starting: APP/PROC/WEB: Exited with status 1", "For details: dew crashes shop, dew logs shop --recent",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := explainCrash("shop", c.crash)
			if f.Status != c.status || f.Error() != c.err || f.Advice != c.advice {
				t.Errorf("status %d, %q, %q; want %d, %q, %q", f.Status, f.Error(), f.Advice, c.status, c.err, c.advice)
			}
		})
	}
}

func TestCurrentState(t *testing.T) {
	running := instanceView{State: v3.StateRunning}
	view := func(change func(v *View)) View {
		v := View{Name: "shop", Droplet: "d", State: "STARTED", Routes: []string{"shop.example"}, Processes: []processView{{Type: "web", HealthCheck: "port", Instances: []instanceView{running}}}}
		change(&v)
		return v
	}
	instances := func(in ...instanceView) func(v *View) { return func(v *View) { v.Processes[0].Instances = in } }
	for want, v := range map[string]View{
		"shop is running: 1 of 1 instances":                                   view(func(*View) {}),
		"shop has no droplet: no build has succeeded yet":                     view(func(v *View) { v.Droplet = "" }),
		"shop is stopped. To start it: dew start shop":                        view(func(v *View) { v.State = v3.AppStopped }),
		"shop is running (1 of 1 instances) and has no route":                 view(func(v *View) { v.Routes = nil }),
		"shop has no instances":                                               view(instances()),
		"shop: 0 of 1 instances running; web/0 is starting":                   view(instances(instanceView{State: v3.StateStarting})),
		"web/0 crashed too often, and dew does not restart it":                view(instances(instanceView{State: "CRASHED", GivenUp: true})),
		"1 of 2 instances running; web/1 crashed; its next start in":          view(instances(running, instanceView{Index: 1, State: "CRASHED", NextStart: time.Now().Add(time.Hour)})),
		"0 of 1 instances running; web/0 is down: cannot start: no such file": view(instances(instanceView{State: "DOWN", Details: "cannot start: no such file"})),
	} {
		if got := currentState(v); !strings.Contains(got, want) {
			t.Errorf("%q does not contain %q", got, want)
		}
	}
}

func TestBar(t *testing.T) {
	for used, want := range map[int64]string{0: strings.Repeat("░", 20), 50: strings.Repeat("█", 10) + strings.Repeat("░", 10), 200: strings.Repeat("█", 20)} {
		if got := bar(used, 100); got != want {
			t.Errorf("%d of 100: %s", used, got)
		}
	}
}
