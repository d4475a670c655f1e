//go:build integration

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

const canarySteps = `"strategy":"canary","options":{"canary":{"steps":[{"instance_weight":34},{"instance_weight":67}]}}`

// Every failure of a deployment is rolled back, at each of its steps, and unusual
// deployments work. No request fails.
func TestDeploymentStepsUnderLoad(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	w.push("shop", "  instances: 3\n  env: {MARK: first}\n")
	w.marks(t, 3, "first")
	asked := w.load(t)
	t.Run("cancel of a canary", w.cancelsCanaries)
	t.Run("never healthy", w.waitsForHealth)
	t.Run("more in flight than instances", w.maxInFlight)
	t.Run("one after the other", w.supersedes)
	if n := asked(); n < 100 {
		t.Errorf("only %d requests were made", n)
	}
	t.Run("stop", w.stopsMeanwhile)
	t.Run("delete", w.deletesMeanwhile)
}

func (w *routeTest) act(d, action string) {
	w.t.Helper()
	if out := w.dewOutput("curl", "-X", "POST", "/v3/deployments/"+d+"/actions/"+action); strings.Contains(out, `"errors"`) {
		w.t.Errorf("%s: %s", action, out)
	}
}

// paused waits for the pause of a canary's step.
func (w *routeTest) paused(t *testing.T, d string, step int) {
	t.Helper()
	w.reaches(t, d, "ACTIVE", "PAUSED")
	if got := w.deployment(t, d).Status.Canary.Steps; got.Current != step || got.Total != 2 {
		t.Errorf("step %+v, want %d of 2", got, step)
	}
}

// cancelsCanaries cancels at once, at each pause, and after the last pause.
func (w *routeTest) cancelsCanaries(t *testing.T) {
	for stop := range 4 {
		w.dewOutput("set-env", "shop", "MARK", fmt.Sprintf("never-%d", stop))
		d := w.deploy(t, canarySteps)
		for step := 1; step <= min(stop, 2); step++ {
			w.paused(t, d, step)
			if step < stop {
				w.act(d, "continue")
			}
		}
		if w.cancelled(d) {
			w.reaches(t, d, "FINALIZED", "CANCELED")
		} else { // after the last pause it does not wait
			w.dewOutput("set-env", "shop", "MARK", "first")
			w.reaches(t, w.deploy(t, ""), "FINALIZED", "DEPLOYED")
		}
		w.marks(t, 3, "first")
	}
}

// waitsForHealth deploys an app that never becomes healthy. No old instance is stopped
// for it.
func (w *routeTest) waitsForHealth(t *testing.T) {
	check := func(data string) {
		if out := w.dewOutput("curl", "-X", "PATCH", "/v3/processes/"+w.appGUID("shop"), "-d", `{"health_check":`+data+`}`); strings.Contains(out, `"errors"`) {
			t.Fatal(out)
		}
	}
	check(`{"type":"http","data":{"endpoint":"/guard","timeout":2}}`)
	w.dewOutput("set-env", "shop", "MARK", "sick")
	d := w.deploy(t, "")
	w.eventually("the new instance is given up", func() error {
		if out := w.getBody("/v3/processes/" + w.deployment(t, d).NewProcesses[0].GUID + "/stats"); !strings.Contains(out, `"CRASHED"`) || !strings.Contains(out, "never healthy after 2s") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	w.reaches(t, d, "ACTIVE", "DEPLOYING")
	w.marks(t, 3, "first")
	w.act(d, "cancel")
	w.reaches(t, d, "FINALIZED", "CANCELED")
	w.marks(t, 3, "first")
	check(`{"type":"port","data":{"timeout":60}}`)
}

func (w *routeTest) maxInFlight(t *testing.T) {
	w.dewOutput("set-env", "shop", "MARK", "high")
	nulls := `"web_instances":null,"memory_in_mb":null,"disk_in_mb":null,"log_rate_limit_in_bytes_per_second":null,"canary":null`
	d := w.deploy(t, `"options":{"max_in_flight":10,`+nulls+`}`)
	w.reaches(t, d, "FINALIZED", "DEPLOYED")
	w.marks(t, 3, "high")
}

// supersedes deploys again during a deployment, and while a canary is paused.
func (w *routeTest) supersedes(t *testing.T) {
	w.dewOutput("set-env", "shop", "MARK", "second")
	first := w.deploy(t, "")
	w.dewOutput("set-env", "shop", "MARK", "third")
	canary := w.deploy(t, canarySteps)
	w.reaches(t, first, "FINALIZED", "SUPERSEDED")
	w.paused(t, canary, 1)
	w.dewOutput("set-env", "shop", "MARK", "fourth")
	last := w.deploy(t, "")
	w.reaches(t, canary, "FINALIZED", "SUPERSEDED")
	w.reaches(t, last, "FINALIZED", "DEPLOYED")
	w.marks(t, 3, "fourth")
}

// stopsMeanwhile stops the app during a deployment. After a start, it is the deployed
// version.
func (w *routeTest) stopsMeanwhile(t *testing.T) {
	w.dewOutput("set-env", "shop", "MARK", "fifth")
	d := w.deploy(t, "")
	w.dew("stop", "shop")
	w.noLeaves()
	w.dew("start", "shop")
	w.reaches(t, d, "FINALIZED", "DEPLOYED")
	w.marks(t, 3, "fifth")
}

func (w *routeTest) deletesMeanwhile(t *testing.T) {
	w.dewOutput("set-env", "shop", "MARK", "sixth")
	d := w.deploy(t, "")
	w.dew("delete", "shop", "-f")
	w.noLeaves()
	if out := w.getBody("/v3/deployments/" + d); !strings.Contains(out, "CF-ResourceNotFound") {
		t.Errorf("the deployment of an app that is gone: %s", out)
	}
}

// dewd is killed at every step of a canary, and of its cancel. The next one continues
// the same deployment at the same step.
func TestCanaryOutlivesDaemon(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	w.push("shop", "  instances: 3\n  env: {MARK: old}\n")
	again := func() {
		w.kill(syscall.SIGKILL)
		w.startDewd()
	}
	for _, cancelled := range []bool{true, false} {
		w.dewOutput("set-env", "shop", "MARK", "new")
		d := w.deploy(t, canarySteps)
		again()
		for step := 1; step <= 2; step++ {
			w.paused(t, d, step)
			w.marks(t, 4, "new", "old")
			again()
			w.paused(t, d, step)
			w.marks(t, 4, "new", "old")
			if step == 2 && cancelled {
				break
			}
			w.act(d, "continue")
			again()
		}
		if cancelled {
			w.act(d, "cancel")
			again()
			w.reaches(t, d, "FINALIZED", "CANCELED")
			w.marks(t, 3, "old")
			continue
		}
		w.reaches(t, d, "FINALIZED", "DEPLOYED")
		w.marks(t, 3, "new")
	}
}
