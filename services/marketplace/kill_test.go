package marketplace

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/servicestest"
)

// killedDaemon is a daemon that is killed at a commit. After that, nothing it does
// reaches the disk or the broker.
type killedDaemon struct {
	path   string
	dies   int  // after this commit; 0: never
	before bool // killed before this commit, after everything that leads to it
	count  int
	last   []byte // the file after the previous commit
	left   []byte // the file that the next daemon finds
	dead   atomic.Bool
	end    context.CancelFunc
}

// committed is called while no other goroutine writes.
func (l *killedDaemon) committed(time.Duration) {
	if l.dead.Load() {
		return
	}
	l.count++
	if l.dies == 0 || l.count < l.dies-1 {
		return
	}
	now, err := os.ReadFile(l.path)
	if err != nil {
		panic(err)
	}
	if l.count < l.dies {
		l.last = now
		return
	}
	l.left = now
	if l.before {
		l.left = l.last
	}
	l.dead.Store(true)
	l.end()
}

// dropAfterKill returns a transport that drops all requests after the kill.
func (l *killedDaemon) dropAfterKill(to http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if l.dead.Load() {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		return to.RoundTrip(r)
	})
}

type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// run creates, binds, unbinds and deletes until it is done or killed.
func (l *killedDaemon) run(t *testing.T, base []byte, broker *servicestest.Broker) {
	if err := os.WriteFile(l.path, base, 0o600); err != nil {
		t.Fatal(err)
	}
	l.last = base
	ctx, cancel := context.WithCancel(context.Background())
	l.end = cancel
	defer cancel()
	w := open(t, l.path, broker, l.committed)
	w.client.Transport = l.dropAfterKill(w.client.Transport)
	w.saveState()
	w.run()
	defer w.stop()
	i, o, err := w.CreateInstance(services.NewInstance{Type: services.Managed, Name: "db", Space: w.space.GUID, Plan: w.planNamed("small").GUID, By: testActor})
	if !l.waited(ctx, w, o, err) {
		return
	}
	bi, o, err := w.CreateBinding(services.NewBinding{Type: services.AppBinding, Instance: i.GUID, App: w.app.GUID, By: testActor})
	if !l.waited(ctx, w, o, err) {
		return
	}
	_, o, err = w.UpdateInstance(i.GUID, services.InstanceChange{Plan: ptr(w.planNamed("large").GUID)})
	if !l.waited(ctx, w, o, err) {
		return
	}
	o, err = w.DeleteBinding(bi.GUID, testActor)
	if !l.waited(ctx, w, o, err) {
		return
	}
	bi, o, err = w.CreateBinding(services.NewBinding{Type: services.KeyBinding, Name: "k", Instance: i.GUID, By: testActor})
	if !l.waited(ctx, w, o, err) {
		return
	}
	o, err = w.DeleteInstance(i.GUID, testActor) // with a key
	l.waited(ctx, w, o, err)
}

// waited reports whether the operation succeeded before the daemon was killed.
func (l *killedDaemon) waited(ctx context.Context, w *world, o services.Operation, err error) bool {
	w.t.Helper()
	if err != nil {
		w.t.Error(err)
		return false
	}
	ended, err := w.Wait(ctx, o.GUID, services.Operation.Ended)
	if l.dead.Load() {
		return false
	}
	if err != nil || ended.State != services.Succeeded {
		w.t.Errorf("operation = %+v, error %v", ended, err)
		return false
	}
	return true
}

// A daemon is killed after any commit, or immediately before it. The next daemon
// completes every operation, and its records match the resources of the broker.
func TestKilledAtEveryCommit(t *testing.T) {
	t.Parallel()
	modes, stride, proof := []int{1}, 4, os.Getenv("DEW_PROOF") != ""
	if proof {
		modes, stride = []int{0, 1}, 1
	}
	for _, async := range modes {
		t.Run(fmt.Sprintf("async %d", async), func(t *testing.T) {
			base := baseOf(t)
			scripted := func() *servicestest.Broker {
				b := servicestest.New(testCatalog)
				for _, kind := range []string{servicestest.Provision, servicestest.Update, servicestest.Bind, servicestest.Unbind, servicestest.Deprovision} {
					b.On(kind, servicestest.Behaviour{Async: async})
				}
				return b
			}
			all := &killedDaemon{path: filepath.Join(t.TempDir(), "dew.db")}
			synctest.Test(t, func(t *testing.T) { all.run(t, base, scripted()) })
			if all.count < 15 {
				t.Fatalf("commits = %d: the tale is too short", all.count)
			}
			for n := 1; n <= all.count; n += stride {
				ways := []bool{n/stride%2 == 0}
				if proof {
					ways = []bool{false, true}
				}
				for _, before := range ways {
					broker := scripted()
					l := &killedDaemon{path: filepath.Join(t.TempDir(), "dew.db"), dies: n, before: before}
					synctest.Test(t, func(t *testing.T) { l.run(t, base, broker) })
					if !l.dead.Load() {
						continue // the order of the last commits can vary
					}
					synctest.Test(t, func(t *testing.T) { l.runNext(t, broker) })
					if t.Failed() {
						t.Fatalf("killed at commit %d, before it: %t", n, before)
					}
				}
			}
		})
	}
}

// A broker that refuses a repeated request keeps no orphan: the instance fails, and
// dewd deletes it at the broker.
func TestKilledWithUnforgivingBroker(t *testing.T) {
	t.Parallel()
	broker := servicestest.New(testCatalog)
	broker.On(servicestest.Provision, servicestest.Behaviour{Times: 1}, servicestest.Behaviour{NoEffect: true, Status: http.StatusConflict, Body: `{"description": "you have it"}`})
	l := &killedDaemon{path: filepath.Join(t.TempDir(), "dew.db"), dies: 3, before: true} // created and requested, but the result is not stored yet
	base := baseOf(t)
	synctest.Test(t, func(t *testing.T) { l.run(t, base, broker) })
	if got := len(broker.Instances()); got != 1 {
		t.Fatalf("the broker has %d instances, want 1: the daemon died at another moment", got)
	}
	path := l.path + ".left"
	if err := os.WriteFile(path, l.left, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := open(t, path, broker, nil)
		w.run()
		settled()
		i := must(w.Instances(services.InstanceFilter{}))[0]
		if got := last(i.Last); got != "create failed: Service broker error: you have it" {
			t.Errorf("last operation = %q", got)
		}
		if got := broker.Instances(); len(got) > 0 {
			t.Errorf("the broker has %v", got)
		}
	})
}

// runNext runs the next daemon.
func (l *killedDaemon) runNext(t *testing.T, broker *servicestest.Broker) {
	path := l.path + ".left"
	if err := os.WriteFile(path, l.left, 0o600); err != nil {
		t.Fatal(err)
	}
	w := open(t, path, broker, nil)
	w.run()
	settled()
	if open := must(w.operations.By("open", "open")); len(open) > 0 {
		t.Errorf("open operations = %+v", open)
	}
	var instances, bindings []string
	for _, i := range must(w.Instances(services.InstanceFilter{})) {
		instances = append(instances, i.GUID)
		if i.Last.State != services.Succeeded {
			t.Errorf("instance = %+v", i)
		}
	}
	for _, bi := range must(w.Bindings(services.BindingFilter{})) {
		bindings = append(bindings, bi.GUID)
		if !bi.Usable() || len(bi.Credentials) == 0 {
			t.Errorf("binding = %+v", bi)
		}
	}
	if got := broker.Instances(); !slices.Equal(got, instances) {
		t.Errorf("the broker has instances %v, the marketplace %v", got, instances)
	}
	if got := broker.Bindings(); !slices.Equal(got, bindings) {
		t.Errorf("the broker has bindings %v, the marketplace %v", got, bindings)
	}
}
