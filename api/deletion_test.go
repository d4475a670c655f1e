package api

import (
	"bytes"
	"errors"
	"reflect"
	goruntime "runtime"
	"slices"
	"testing"

	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/marketplace"
	"github.com/dewrun/dew/testkit"
)

// successor replaces the server with a new one on the same store, as after a restart of
// the daemon.
func (w *testServer) successor() {
	w.t.Helper()
	for _, stop := range w.stops {
		stop()
	}
	w.stops = nil
	w.c.Jobs = registry.NewJobs(w.c.DB, w.c.Logger)
	w.s = must(New(w.c))(w.t)
	w.local, w.listener = w.s.Local(), w.s.Handler()
	w.run(w.c.Jobs.Run)
	w.run(w.c.Builds.Run)
	w.run(w.c.Services.Run)
}

// waitsForBroker waits until a goroutine waits for an operation of a service. The test
// must not be parallel, so that the goroutine is its own.
func waitsForBroker(t *testing.T) {
	t.Helper()
	wait := goruntime.FuncForPC(reflect.ValueOf((*marketplace.Marketplace).Wait).Pointer()).Name()
	stacks := make([]byte, 1<<20)
	testkit.EventuallyTrue(t, "a deletion waits for the broker", func() bool {
		return bytes.Contains(stacks[:goruntime.Stack(stacks, true)], []byte("\n"+wait+"("))
	})
}

// An org is deleted with all its resources, even if the daemon exits in between. The
// next daemon continues, and the client finds the same job.
func TestDeletionContinues(t *testing.T) {
	w := newTestServer(t) // not parallel, see waitsForBroker
	a, pkg, droplet := w.pushed("shop")
	db := w.makeService("db")
	w.want(202, "PATCH", "/v3/service_instances/"+db.GUID, `{"parameters":{"hold":true}}`, nil)
	deletion := w.want(202, "DELETE", "/v3/organizations/"+w.space.Org, "", nil)
	waitsForBroker(t)
	w.jobIs(deletion, "PROCESSING")
	w.successor()
	w.jobIs(deletion, "PROCESSING")
	w.release()
	w.complete(deletion)

	if requests := w.broker.requestLog(); !slices.Contains(requests, "delete instance db") {
		t.Errorf("the broker was asked %v, want to delete db", requests)
	}
	if _, err := w.c.Services.Instance(db.GUID); !errors.Is(err, services.ErrNotFound) {
		t.Errorf("the service is left: %v", err)
	}
	if ps := must(w.c.Registry.Processes(a.GUID))(t); len(ps) > 0 {
		t.Errorf("processes are left, and would run on: %v", ps)
	}
	for _, path := range []string{"/v3/organizations/" + w.space.Org, "/v3/spaces/" + w.space.GUID, "/v3/apps/" + a.GUID} {
		w.want(404, "GET", path, "", nil)
	}
	// Separate jobs, which the deletion started, delete the files.
	testkit.EventuallyTrue(t, "its bits are gone", func() bool {
		_, noPackage := w.c.Packages.Get(pkg)
		_, noDroplet := w.c.Shelf.Get(droplet)
		return noPackage != nil && noDroplet != nil
	})
}
