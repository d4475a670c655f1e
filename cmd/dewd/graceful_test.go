//go:build integration

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Instances are restarted one by one, and scaled down, under load. No request fails,
// neither running nor new ones.
func TestInstancesStopGracefully(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	w.push("shop", "  instances: 2\n  env: {MARK: only}\n")
	w.marks(t, 2, "only")
	asked := w.load(t)
	for i := range rounds(4, 20) {
		w.restartInstance(i % 2)
	}
	for range rounds(2, 10) {
		for _, n := range []int{3, 1, 2} {
			w.dew("scale", "shop", "-i", fmt.Sprint(n))
			w.marks(t, n, "only")
		}
	}
	if n := asked(); n < 100 {
		t.Errorf("only %d requests were made", n)
	}
}

// instanceState is an instance in the stats.
type instanceState struct {
	Index    int
	State    string
	Routable *bool
	ID       string `json:"instance_guid"`
}

func (w *routeTest) instanceStates(name string) (out []instanceState) {
	w.t.Helper()
	var stats struct{ Resources []instanceState }
	if err := json.Unmarshal([]byte(w.getBody("/v3/processes/"+w.appGUID(name)+"/stats")), &stats); err != nil {
		w.t.Fatal(err)
	}
	return stats.Resources
}

// restartInstance restarts an instance and waits for the next one.
func (w *routeTest) restartInstance(index int) {
	w.t.Helper()
	before := w.instanceStates("shop")[index].ID
	w.dew("restart-app-instance", "shop", fmt.Sprint(index))
	w.eventually("another instance", func() error {
		if now := w.instanceStates("shop")[index]; now.State != "RUNNING" || now.ID == before || now.Routable == nil || !*now.Routable {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
}

// A readiness check removes an instance from its routes and adds it again. It records
// both, and stops no instance. The next daemon has the same state.
func TestReadinessControlsRoutes(t *testing.T) {
	w := newRouteTest(t)
	w.push("shop", "  instances: 2\n  env: {MARK: only}\n  readiness-health-check-type: http\n"+
		"  readiness-health-check-http-endpoint: /ready\n  readiness-health-check-interval: 1\n")
	w.marks(t, 2, "only")
	before := w.instanceStates("shop")
	asked := w.load(t)
	for range rounds(1, 5) {
		w.dew("ssh", "shop", "-i", "1", "-c", "touch /tmp/unready")
		w.awaitReceivers(t, 1, false)
		w.dew("ssh", "shop", "-i", "1", "-c", "rm /tmp/unready")
		w.awaitReceivers(t, 2, true)
	}
	if n := asked(); n < 100 {
		t.Errorf("only %d requests were made", n)
	}
	for i, now := range w.instanceStates("shop") {
		if now.ID != before[i].ID {
			t.Errorf("instance %d was replaced", i)
		}
	}
	var told []string
	w.eventually("the last turn is told", func() error { // routes change before that
		if told = w.readinessEvents(); len(told) < 2+2*rounds(1, 5) {
			return fmt.Errorf("%v", told)
		}
		return nil
	})
	guid := w.appGUID("shop")
	w.kill(syscall.SIGKILL)
	var log []string
	w.read(func(b diskState) { log = linesOf(t, b, guid) })
	w.startDewd()
	w.awaitReceivers(t, 2, true)
	if again := w.readinessEvents(); !slices.Equal(again, told) {
		t.Errorf("the next daemon tells %v, after %v", again, told)
	}
	pair := []string{"audit.app.process.not-ready 1", "audit.app.process.ready 1"}
	slices.Sort(told[:2])
	if want := append([]string{"audit.app.process.ready 0", "audit.app.process.ready 1"}, slices.Repeat(pair, rounds(1, 5))...); !slices.Equal(told, want) {
		t.Errorf("events %v, want %v", told, want)
	}
	for _, line := range []string{
		"CELL/1 Container passed the readiness health check", "CELL/1 Container failed the readiness health check",
		"API/0 Process became not ready with guid " + guid + ` payload: {"instance":"` + before[1].ID + `","index":1,`,
	} {
		if !slices.ContainsFunc(log, func(l string) bool { return strings.HasPrefix(l, line) }) {
			t.Errorf("no line %q among the %d of the log", line, len(log))
		}
	}
}

// linesOf returns the lines of an app with their sources.
func linesOf(t *testing.T, b diskState, guid string) (out []string) {
	t.Helper()
	l, err := b.logs.App(guid)
	if err != nil {
		t.Fatal(err)
	}
	for cur := l.Cursor(1); uint64(len(out)) < l.LastSeq(); {
		es, err := cur.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			out = append(out, fmt.Sprintf("%s/%d %s", e.Source.Type, e.Source.Index, e.Text))
		}
	}
	return out
}

// awaitReceivers waits until this number of instances get requests, and instance 1 is or is
// not one of them.
func (w *routeTest) awaitReceivers(t *testing.T, instances int, routable bool) {
	t.Helper()
	w.eventually("the routes follow", func() error {
		if now := w.instanceStates("shop")[1]; now.State != "RUNNING" || now.Routable == nil || *now.Routable != routable {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	w.marks(t, instances, "only")
}

// readinessEvents returns the readiness events with their index, oldest first.
func (w *routeTest) readinessEvents() (out []string) {
	w.t.Helper()
	var list struct {
		Resources []struct {
			Type          string
			Actor, Target struct{ GUID, Type, Name string }
			Data          struct {
				Index   int
				Process string `json:"process_guid"`
			}
		}
	}
	guid := w.appGUID("shop")
	path := "/v3/audit_events?order_by=created_at&types=audit.app.process.ready,audit.app.process.not-ready&target_guids=" + guid
	if err := json.Unmarshal([]byte(w.getBody(path)), &list); err != nil {
		w.t.Fatal(err)
	}
	for _, e := range list.Resources {
		if e.Actor.GUID != guid || e.Actor.Type != "process" || e.Actor.Name != "web" || e.Target.GUID != guid || e.Data.Process != guid {
			w.t.Errorf("event %+v", e)
		}
		out = append(out, fmt.Sprintf("%s %d", e.Type, e.Data.Index))
	}
	return out
}
