//go:build integration

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// Instances are replaced under load, in every possible way, and no request fails:
// neither short ones, nor those with a body, nor slow ones.
func TestDeploymentsUnderLoad(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	w.push("shop", "  instances: 3\n  env: {MARK: first}\n")
	w.awaitResponse("shop", "/env?name=MARK", "MARK=first")
	asked := w.load(t)
	t.Run("rolling", w.rolls)
	t.Run("canary", w.canaries)
	t.Run("cancel", w.cancels)
	t.Run("new instances that crash", w.survivesBadOnes)
	t.Run("rollback", w.rollsBack)
	if n := asked(); n < 100 {
		t.Errorf("only %d requests were made", n)
	}
	t.Run("what was cancelled stays away", w.keepsOldVersion)
}

// load sends requests all the time. The returned function stops that and returns their
// number.
func (w *routeTest) load(t *testing.T) func() int64 {
	var n atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	ask := func(method, path, body, want string) {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond): // the machine has other work as well
			}
			req, err := http.NewRequest(method, "http://"+w.front+path, strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Host = "shop.dew.localhost"
			if answer, err := w.answer(req); err != nil || !strings.HasPrefix(answer, want) {
				t.Errorf("%s: %s %s: %q, %v", time.Now().Format(time.StampMilli), method, path, answer, err)
			}
			n.Add(1)
		}
	}
	for range 2 {
		wg.Go(func() { ask("GET", "/", "", "200 web ") })
		wg.Go(func() { ask("POST", "/echo", "order", "200 order") })
		wg.Go(func() { ask("POST", "/slow?for=300ms", "", "200 begun done") })
	}
	end := sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
	t.Cleanup(end) // even if the test is aborted
	return func() int64 {
		end()
		return n.Load()
	}
}

func (w *routeTest) answer(req *http.Request) (string, error) {
	res, err := w.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var b strings.Builder
	fmt.Fprintf(&b, "%d ", res.StatusCode)
	_, err = io.Copy(&b, res.Body)
	return b.String(), err
}

func (w *routeTest) rolls(t *testing.T) {
	w.dewOutput("set-env", "shop", "MARK", "rolled")
	d := w.deploy(t, `"options":{"max_in_flight":2}`)
	w.reaches(t, d, "FINALIZED", "DEPLOYED")
	w.marks(t, 3, "rolled")
}

func (w *routeTest) canaries(t *testing.T) {
	w.dewOutput("set-env", "shop", "MARK", "canary")
	d := w.deploy(t, `"strategy":"canary","options":{"canary":{"steps":[{"instance_weight":34},{"instance_weight":67}]}}`)
	for step := 1; step <= 2; step++ {
		w.reaches(t, d, "ACTIVE", "PAUSED")
		if got := w.deployment(t, d); got.Status.Canary.Steps.Current != step || got.Status.Canary.Steps.Total != 2 {
			t.Errorf("step %+v, want %d of 2", got.Status.Canary, step)
		}
		w.marks(t, 4, "canary", "rolled")
		w.dewOutput("curl", "-X", "POST", "/v3/deployments/"+d+"/actions/continue")
	}
	w.reaches(t, d, "FINALIZED", "DEPLOYED")
	w.marks(t, 3, "canary")
}

// cancels cancels a deployment after each of its steps. The earlier instances stay.
func (w *routeTest) cancels(t *testing.T) {
	for started := range rounds(2, 4) {
		w.dewOutput("set-env", "shop", "MARK", "never")
		d := w.deploy(t, "")
		w.eventually("new instances run", func() error {
			st := w.deployment(t, d).Status
			if n := len(w.running(t, d)); n < started && st.Value == "ACTIVE" {
				return fmt.Errorf("%d of %d", n, started)
			}
			return nil
		})
		if w.cancelled(d) {
			w.reaches(t, d, "FINALIZED", "CANCELED")
		} else {
			w.dewOutput("set-env", "shop", "MARK", "canary")
			w.reaches(t, w.deploy(t, ""), "FINALIZED", "DEPLOYED")
		}
		w.marks(t, 3, "canary")
	}
}

// cancelled cancels a deployment, and reports whether it was still active.
func (w *routeTest) cancelled(d string) bool {
	w.t.Helper()
	out := w.dewOutput("curl", "-X", "POST", "/v3/deployments/"+d+"/actions/cancel")
	faster := strings.Contains(out, "Cannot cancel a deployment with status: FINALIZED and reason: DEPLOYED")
	if !faster && strings.Contains(out, `"errors"`) {
		w.t.Errorf("cancel: %s", out)
	}
	return !faster
}

// survivesBadOnes checks that crashing new instances stop no old one.
func (w *routeTest) survivesBadOnes(t *testing.T) {
	w.dewOutput("curl", "-X", "PATCH", "/v3/apps/"+w.appGUID("shop")+"/processes/web", "-d", `{"command":"exit 7"}`)
	d := w.deploy(t, "")
	w.eventually("the new instance crashes", func() error {
		if out := w.getBody("/v3/processes/" + w.deployment(t, d).NewProcesses[0].GUID + "/stats"); !strings.Contains(out, `"CRASHED"`) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	w.marks(t, 3, "canary")
	w.reaches(t, d, "ACTIVE", "DEPLOYING")
	w.dewOutput("curl", "-X", "POST", "/v3/deployments/"+d+"/actions/cancel")
	w.reaches(t, d, "FINALIZED", "CANCELED")
	w.marks(t, 3, "canary")
}

// After a cancel, an instance that exits restarts as it was, despite later changes.
func (w *routeTest) keepsOldVersion(t *testing.T) {
	w.dewOutput("set-env", "shop", "MARK", "never")
	d := w.deploy(t, "")
	w.dewOutput("curl", "-X", "POST", "/v3/deployments/"+d+"/actions/cancel")
	w.reaches(t, d, "FINALIZED", "CANCELED")
	w.dew("restart-app-instance", "shop", "0")
	w.marks(t, 3, "rolled")
}

func (w *routeTest) rollsBack(t *testing.T) {
	var all struct {
		Resources []struct {
			GUID, Description string
			Version           int
		}
	}
	w.decode(t, "/v3/apps/"+w.appGUID("shop")+"/revisions?versions=2", &all)
	if len(all.Resources) != 1 || all.Resources[0].Description != "New environment variables deployed." {
		t.Fatalf("revisions = %+v", all)
	}
	d := w.deploy(t, `"revision":{"guid":"`+all.Resources[0].GUID+`"}`)
	w.reaches(t, d, "FINALIZED", "DEPLOYED")
	w.marks(t, 3, "rolled")
}

type deployment struct {
	GUID   string
	Status struct {
		Value, Reason string
		Canary        struct{ Steps struct{ Current, Total int } }
	}
	NewProcesses []struct{ GUID string } `json:"new_processes"`
}

// deploy starts a deployment of the app shop and returns its guid.
func (w *routeTest) deploy(t *testing.T, more string) string {
	t.Helper()
	if more != "" {
		more += ","
	}
	var d deployment
	out := w.dewOutput("curl", "-X", "POST", "/v3/deployments", "-d", `{`+more+`"relationships":{"app":{"data":{"guid":"`+w.appGUID("shop")+`"}}}}`)
	if err := json.Unmarshal([]byte(out), &d); err != nil || d.GUID == "" {
		t.Fatalf("%v: %s", err, out)
	}
	return d.GUID
}

func (w *routeTest) decode(t *testing.T, path string, to any) {
	t.Helper()
	if out := w.getBody(path); json.Unmarshal([]byte(out), to) != nil {
		t.Fatalf("%s: %s", path, out)
	}
}

func (w *routeTest) deployment(t *testing.T, guid string) (d deployment) {
	t.Helper()
	w.decode(t, "/v3/deployments/"+guid, &d)
	return d
}

// reaches waits for a status.
func (w *routeTest) reaches(t *testing.T, guid, value, reason string) {
	t.Helper()
	w.eventually(reason, func() error {
		if st := w.deployment(t, guid).Status; st.Value != value || st.Reason != reason {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

// running returns the indexes of the new instances of a deployment that run.
func (w *routeTest) running(t *testing.T, guid string) (out []int) {
	t.Helper()
	var stats struct {
		Resources []struct {
			Index int
			State string
		}
	}
	w.decode(t, "/v3/processes/"+w.deployment(t, guid).NewProcesses[0].GUID+"/stats", &stats)
	for _, s := range stats.Resources {
		if s.State == "RUNNING" {
			out = append(out, s.Index)
		}
	}
	return out
}

// marks waits until this number of instances serve requests, with exactly these values
// of MARK.
func (w *routeTest) marks(t *testing.T, instances int, want ...string) {
	t.Helper()
	slices.Sort(want)
	w.eventually(fmt.Sprint(want), func() error {
		seen, places := map[string]bool{}, map[string]bool{}
		// Two loops: if the two kinds of requests alternated as two instances do, each
		// instance would get only one kind.
		for range 10 * instances {
			_, body := w.get("shop", "/env?name=MARK")
			seen[strings.TrimPrefix(body, "MARK=")] = true
		}
		for range 10 * instances {
			_, body := w.get("shop", "/address")
			places[body] = true
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) || len(places) != instances {
			return fmt.Errorf("%v of %d instances", got, len(places))
		}
		return nil
	})
}

// dewd is killed repeatedly during a deployment, or during its cancel. The next one
// continues, and in the end exactly the desired instances run.
func TestDeploymentOutlivesDaemon(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	w.push("shop", "  instances: 3\n  env: {MARK: first}\n")
	before := "first"
	for i := range rounds(2, 20) {
		after := fmt.Sprintf("round-%d", i)
		w.dewOutput("set-env", "shop", "MARK", after)
		d := w.deploy(t, `"options":{"max_in_flight":1}`)
		w.crashDaemon(2)
		if i%2 == 1 && w.cancelled(d) {
			w.crashDaemon(2)
			w.reaches(t, d, "FINALIZED", "CANCELED")
			after = before
		}
		if after != before {
			w.reaches(t, d, "FINALIZED", "DEPLOYED")
		}
		w.marks(t, 3, after)
		before = after
	}
}

// crashDaemon kills dewd several times after a short time, and restarts it.
func (w *routeTest) crashDaemon(times int) {
	w.t.Helper()
	for range times {
		testkit.RandomPause(1500 * time.Millisecond)
		w.kill(syscall.SIGKILL)
		w.startDewd()
	}
}
