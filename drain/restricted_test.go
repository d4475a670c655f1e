package drain

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/testkit"
)

// drainMessages returns the messages of drains in the app's log.
func (w *world) drainMessages() (out []string) {
	w.t.Helper()
	es, err := w.log.NewestOf(w.t.Context(), 1000, logstream.Filter{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range es {
		if e.Source.Type == "LGR" {
			out = append(out, string(e.Text))
		}
	}
	return out
}

// A drain whose URL a user set can reach only addresses that the policy allows. Its
// error names only the rule. An administrator's drain can reach any address, and gets
// all lines.
func TestDrainsOfUsersAreRestricted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t)
	w.restricted = true
	w.start("syslog://" + r.address)
	w.print(3)
	const want = "drain papers: cannot send to syslog://%: dew does not connect to a loopback address for users who are not administrators; an administrator can allow the host with dewd --allow-broker-hosts; dewd keeps the lines in the log and sends them later"
	testkit.EventuallyTrue(t, "the drain says why it sends nothing", func() bool { return len(w.drainMessages()) > 0 })
	if got := w.drainMessages()[0]; got != strings.Replace(want, "%", r.address, 1) {
		t.Errorf("it says %q", got)
	}
	if n := r.connections(); n > 0 {
		t.Errorf("%d connections to the receiver", n)
	}
	w.retarget(false)
	testkit.EventuallyTrue(t, "the receiver has all lines", func() bool { missing, _ := complete(r.lines(), 3); return missing == 0 })
}

// The same restriction applies over HTTP.
func TestPostsOfUsersAreRestricted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var met atomic.Int32
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { met.Add(1) }))
	t.Cleanup(s.Close)
	w.roots = s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	w.restricted = true
	w.start(s.URL)
	w.print(1)
	testkit.EventuallyTrue(t, "the drain says why it sends nothing", func() bool {
		return len(w.drainMessages()) > 0 && strings.Contains(w.drainMessages()[0], "dew does not connect to a loopback address")
	})
	if met.Load() > 0 {
		t.Error("the receiver was asked")
	}
	w.retarget(false)
	testkit.EventuallyTrue(t, "the receiver has the line", func() bool { return met.Load() > 0 })
}

// retarget changes whether the target is restricted.
func (w *world) retarget(restricted bool) {
	w.t.Helper()
	w.mu.Lock()
	w.targets[0].Restricted = restricted
	w.mu.Unlock()
	w.drains.Changed()
}

// connections returns how many connections the receiver had in total.
func (r *receiver) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns)
}
