package route

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// Instances that have the new port use the new destination. Others keep the old one
// until they are restarted.
func TestPendingDestination(t *testing.T) {
	rt := routeTo("shop", "", "a")
	rt.Destinations[0].Port, rt.Destinations[0].Protocol = 9000, app.ProtocolHTTP2
	rt.Destinations[0].Former = []app.Former{{Port: 7000, Protocol: app.ProtocolHTTP1}, {Protocol: app.ProtocolHTTP1}}
	for _, c := range []struct {
		ports    []int
		want     int
		protocol string
	}{
		{[]int{8080}, 8080, app.ProtocolHTTP1},
		{[]int{8080, 7000}, 7000, app.ProtocolHTTP1},
		{[]int{8080, 7000, 9000}, 9000, app.ProtocolHTTP2},
	} {
		w := newWorld(t, rt)
		st := ready("a", 0)
		st.Ports = c.ports
		w.router.Changed(st)
		got, ok := w.router.table.Load().match("shop.dew.localhost", "/").pick(nil)
		if !ok || got.port != c.want || got.protocol != c.protocol {
			t.Errorf("ports %v: %d %s %v, want %d %s", c.ports, got.port, got.protocol, ok, c.want, c.protocol)
		}
	}
}

func TestPending(t *testing.T) {
	with := func(state runtime.State, ports ...int) runtime.Status {
		st := ready("a", 0)
		st.State, st.Ports = state, ports
		return st
	}
	d := app.Destination{Port: 9000}
	for _, c := range []struct {
		d    app.Destination
		sts  []runtime.Status
		want bool
	}{
		{d, nil, false},
		{d, []runtime.Status{with(runtime.Running, 8080)}, true},
		{d, []runtime.Status{with(runtime.Starting, 8080)}, true},
		{d, []runtime.Status{with(runtime.Crashed, 8080), with(runtime.Stopping, 8080), with(runtime.Down)}, false},
		{d, []runtime.Status{with(runtime.Running, 8080, 9000)}, false},
		{d, []runtime.Status{with(runtime.Running, 8080, 9000), with(runtime.Running, 8080)}, true},
		{app.Destination{}, []runtime.Status{with(runtime.Running, 8080)}, false},
	} {
		if got := Pending(c.d, c.sts); got != c.want {
			t.Errorf("%+v with %+v: %v, want %v", c.d, c.sts, got, c.want)
		}
	}
}

// A replaced destination is dropped when no instance needs it, but not before all
// instances are known.
func TestReplacedDestinationsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := routeTo("shop", "", "a")
		rt.GUID = "r"
		rt.Destinations[0] = app.Destination{GUID: "d", App: "a", ProcessType: app.Web, Port: 9000, Former: []app.Former{{}}}
		reg := &fakeRegistry{
			domains: []app.Domain{{GUID: "d", Name: "dew.localhost"}}, routes: []app.Route{rt},
			apps: []app.App{{GUID: "a"}}, processes: map[string][]app.Process{"a": {{GUID: "a", App: "a", Type: app.Web}}},
		}
		var now atomic.Pointer[runtime.Status]
		has := func(ports ...int) runtime.Status {
			st := ready("a", 0)
			st.Ports = ports
			now.Store(&st)
			return st
		}
		has(8080)
		var forgotten []string
		failing := true
		r, stop := quiet(t, reg, func(c *Config) {
			c.Instances = func(string) []runtime.Status { return []runtime.Status{*now.Load()} }
			c.DeleteReplaced = func(route string, needed func(app.Destination) bool) error {
				if failing {
					failing = false
					return errors.New("full")
				}
				if !needed(app.Destination{GUID: "another"}) {
					t.Error("what nobody knows of is taken for useless")
				}
				if !needed(rt.Destinations[0]) {
					forgotten = append(forgotten, route)
				}
				return nil
			}
		})
		defer stop()
		check := func(when string, want int) {
			t.Helper()
			time.Sleep(2 * retryPause)
			synctest.Wait()
			if len(forgotten) != want {
				t.Errorf("%s: forgotten %v, want %d", when, forgotten, want)
			}
		}
		r.Changed(has(8080, 9000))
		check("before the earlier instances are known", 0)
		has(8080)
		r.Adopted()
		check("while an instance lacks the port", 0)
		r.Changed(has(8080))
		check("after it said so", 0)
		r.Changed(has(8080, 9000))
		check("after its restart", 1)
	})
}

// If an app listens only on loopback, its log says why it is unreachable, at intervals.
func TestLoopbackOnlyIsLogged(t *testing.T) {
	rt := routeTo("shop", "", "a")
	w := newWorld(t, rt)
	refuse := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	w.mu.Lock()
	w.refusal = refuse
	w.loopback = map[string]string{"127.0.0.1:8080": w.front.Listener.Addr().String()}
	w.mu.Unlock()
	w.run()
	w.refuses("a", 0)
	for range 3 {
		if res, body := w.get("shop", "/"); res.StatusCode != 502 || body != endpointFailure.text {
			t.Errorf("%d %q", res.StatusCode, body)
		}
	}
	var told []string
	for range 4 {
		if line := <-w.lines; strings.Contains(line, "cannot connect to") {
			told = append(told, line)
		}
	}
	want := "[RTR/0] ERR cannot connect to instance 0 of process web on port 8080: the app listens only on 127.0.0.1:8080; it must listen on 0.0.0.0"
	if len(told) != 1 || !strings.HasSuffix(told[0], want) {
		t.Errorf("told %q, want one %q", told, want)
	}
}

func TestUnreachableLogIsLimited(t *testing.T) {
	var c unreachableLog
	at := time.Unix(0, 0)
	for i, step := range []struct {
		what  unreachableKey
		after time.Duration
		want  bool
	}{
		{unreachableKey{"a", 1}, 0, true},
		{unreachableKey{"a", 1}, time.Second, false},
		{unreachableKey{"a", 2}, time.Second, true},
		{unreachableKey{"b", 1}, time.Second, true},
		{unreachableKey{"a", 1}, unreachableLogInterval, true},
	} {
		at = at.Add(step.after)
		if got := c.due(step.what, at); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	for i := range 100 {
		at = at.Add(unreachableLogInterval)
		c.due(unreachableKey{runtime.InstanceID(fmt.Sprint(i)), 1}, at)
	}
	if n := len(c.written); n != 1 {
		t.Errorf("%d complaints are remembered, want 1", n)
	}
}
