package api

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
)

// successor is the daemon after this one: the same store, everything else anew.
func (w *world) successor() {
	w.t.Helper()
	for _, stop := range w.stops {
		stop()
	}
	w.stops = nil
	w.c.Jobs = registry.NewJobs(w.c.DB, w.c.Logger)
	w.s = must(New(w.c))(w.t)
	w.local, w.door = w.s.Local(), w.s.Handler()
	w.run(w.c.Jobs.Run)
	w.run(w.c.Builds.Run)
	w.run(w.c.Services.Run)
}

// An org goes with everything in it, also when the daemon ends in the middle: the
// next one goes on, and who began it finds the same job.
func TestDeletionGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, pkg, droplet := w.pushed("shop")
	db := w.makeService("db")
	w.want(202, "PATCH", "/v3/service_instances/"+db.GUID, `{"parameters":{"hold":true}}`, nil)
	deletion := w.want(202, "DELETE", "/v3/organizations/"+w.space.Org, "", nil)
	time.Sleep(50 * time.Millisecond) // likely enough for it to wait for the update
	w.jobIs(deletion, "PROCESSING")
	w.successor()
	w.jobIs(deletion, "PROCESSING")
	w.release()
	w.complete(deletion)

	if asked := w.broker.wasAsked(); !slices.Contains(asked, "delete instance db") {
		t.Errorf("the broker was asked %v, want to delete db", asked)
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
	// The bits go by jobs of their own, which the deletion has begun.
	w.eventually("its bits are gone", func() bool {
		_, noPackage := w.c.Packages.Get(pkg)
		_, noDroplet := w.c.Shelf.Get(droplet)
		return noPackage != nil && noDroplet != nil
	})
}
