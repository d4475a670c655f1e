package registry

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

func TestRevisionReasons(t *testing.T) {
	t.Parallel()
	old := app.Revision{Droplet: "d", Env: map[string]string{"A": "1"}, Commands: map[string]string{"web": "", "worker": "w", "clock": "c"}, Sidecars: []app.Sidecar{{Name: "s", ProcessTypes: []string{"web", "worker"}}}}
	same := app.Revision{Droplet: "d", Env: map[string]string{"A": "1"}, Commands: map[string]string{"web": "", "worker": "w", "clock": "c"}, Sidecars: []app.Sidecar{{GUID: "g", Name: "s", ProcessTypes: []string{"worker", "web"}}}}
	if got := revisionReasons(old, same); len(got) != 0 {
		t.Errorf("reasons = %v, want none", got)
	}
	next := app.Revision{Droplet: "e", Commands: map[string]string{"web": "x", "worker": "", "cron": ""}}
	want := []string{
		"Custom start command added for 'web' process.", "Custom start command removed for 'worker' process.",
		"New droplet deployed.", "New environment variables deployed.", "New process type 'cron' added.",
		"Process type 'clock' removed.", "Sidecars updated.",
	}
	if diff := cmp.Diff(revisionReasons(old, next), want); diff != "" {
		t.Errorf("reasons (-got +want):\n%s", diff)
	}
}

// After the last number the numbers start again at 1. An old revision with that number is
// deleted, even if there are few.
func TestRevisionNumbersStartAgain(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	a := one[app.App](t)(r.PutApp(app.App{Name: "shop", Space: "s1", Droplet: "d"}))
	at := app.Now().Add(-time.Hour)
	for i, version := range []int{1, 2, lastRevision} {
		v := app.Revision{GUID: fmt.Sprint("v", i), App: a.GUID, Version: version, CreatedAt: at.Add(time.Duration(i))}
		must(t, r.revisions.Put(v.GUID, v))
	}
	other := app.Revision{GUID: "other", App: a.GUID + "0", Version: 1, CreatedAt: app.Now().Add(time.Hour)}
	must(t, r.revisions.Put(other.GUID, other))
	for n, want := range []string{"2 9999 1", "9999 1 2"} {
		a.Env = map[string]string{"N": fmt.Sprint(n)}
		rev, made, err := r.Revise(a)
		if err != nil || !made || rev.Version != n+1 {
			t.Errorf("revision = %+v, %v, %v, want a new one with number %d", rev, made, err, n+1)
		}
		var got []string
		for _, v := range one[[]app.Revision](t)(r.Revisions(a.GUID)) {
			got = append(got, fmt.Sprint(v.Version))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("numbers = %v, want %s", got, want)
		}
	}
	if latest := one[app.Revision](t)(r.LatestRevision(a.GUID)); latest.Version != 2 {
		t.Errorf("latest = %+v, want number 2", latest)
	}
}

// An older dewd writes revisions without the index of the newest. The next one notices.
func TestRevisionsOfAnOlderDaemon(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dew.db")
	open := func() *store.DB { return one[*store.DB](t)(store.Open(path, store.Options{Format: 1})) }
	db := open()
	r := New(db)
	a := one[app.App](t)(r.PutApp(app.App{Name: "shop", Space: "s1", Droplet: "d"}))
	var made []app.Revision
	for n := range 3 {
		a.Env = map[string]string{"N": fmt.Sprint(n)}
		rev, _, err := r.Revise(a)
		must(t, err)
		made = append(made, rev)
	}
	must(t, db.Close())

	db = open()
	older := store.In(db, "revisions", store.Index("app", func(v app.Revision) string { return v.App }))
	newest := app.Revision{GUID: "newest", App: a.GUID, Droplet: "d", Version: 9, CreatedAt: app.Now().Add(time.Hour)}
	must(t, older.Delete(made[2].GUID))
	must(t, older.Put(newest.GUID, newest))
	must(t, db.Close())

	db = open()
	defer db.Close()
	r = New(db)
	if got := one[app.Revision](t)(r.LatestRevision(a.GUID)); got.GUID != newest.GUID {
		t.Errorf("latest = %+v, want what the older dewd stored", got)
	}
	a.Env = map[string]string{"N": "later"}
	if rev, fresh, err := r.Revise(a); err != nil || !fresh || rev.Version != newest.Version+1 {
		t.Errorf("next = %+v, %v, %v, want number %d", rev, fresh, err, newest.Version+1)
	}
}
