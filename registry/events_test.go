package registry

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

func eventTypes(es []app.Event) []string {
	out := []string{}
	for _, e := range es {
		out = append(out, e.Type)
	}
	return out
}

func TestEvents(t *testing.T) {
	es := NewEvents(openDB(t))
	for i, e := range []app.Event{
		{Type: "audit.app.create", Target: app.Target{GUID: "a1", Type: "app", Name: "shop"}, Space: "s1", Org: "o1", Actor: app.Actor{GUID: "u", Type: "user", Name: "root"}},
		{Type: "audit.app.create", Target: app.Target{GUID: "a2", Type: "app"}, Space: "s2", Org: "o1"},
		{Type: "audit.app.start", Target: app.Target{GUID: "a1", Type: "app"}, Space: "s1", Org: "o1", Data: map[string]any{"index": 1.0}},
		{Type: "app.crash", Target: app.Target{GUID: "a1", Type: "app"}, Space: "s1", Org: "o2"},
	} {
		e.Type += fmt.Sprintf(" %d", i)
		must(t, es.Record(e))
	}
	for name, tt := range map[string]struct {
		f    app.EventFilter
		want []string
	}{
		"all":         {app.EventFilter{}, []string{"audit.app.create 0", "audit.app.create 1", "audit.app.start 2", "app.crash 3"}},
		"newest":      {app.EventFilter{Newest: true}, []string{"app.crash 3", "audit.app.start 2", "audit.app.create 1", "audit.app.create 0"}},
		"target":      {app.EventFilter{Targets: []string{"a1", "a1"}}, []string{"audit.app.create 0", "audit.app.start 2", "app.crash 3"}},
		"targets":     {app.EventFilter{Targets: []string{"a2", "a1"}, Newest: true}, []string{"app.crash 3", "audit.app.start 2", "audit.app.create 1", "audit.app.create 0"}},
		"no target":   {app.EventFilter{Targets: []string{"a"}}, []string{}},
		"types":       {app.EventFilter{Types: []string{"app.crash 3", "audit.app.create 1"}}, []string{"audit.app.create 1", "app.crash 3"}},
		"space":       {app.EventFilter{Spaces: []string{"s2"}}, []string{"audit.app.create 1"}},
		"org":         {app.EventFilter{Orgs: []string{"o2"}}, []string{"app.crash 3"}},
		"all at once": {app.EventFilter{Targets: []string{"a1"}, Spaces: []string{"s1"}, Orgs: []string{"o1"}, Types: []string{"audit.app.start 2"}}, []string{"audit.app.start 2"}},
	} {
		if diff := cmp.Diff(eventTypes(one[[]app.Event](t)(es.List(tt.f))), tt.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", name, diff)
		}
	}
	e := one[[]app.Event](t)(es.List(app.EventFilter{}))[0]
	if e.GUID == "" || e.CreatedAt.IsZero() || e.Actor.Name != "root" || e.Target.Name != "shop" {
		t.Errorf("event = %+v", e)
	}
}

// An event is part of the transaction of its change.
func TestEventsInTransaction(t *testing.T) {
	db := openDB(t)
	es := NewEvents(db)
	stop := errors.New("stop")
	err := db.Update(func(tx *store.Tx) error {
		if err := es.With(tx).Record(app.Event{Type: "x"}); err != nil {
			return err
		}
		return stop
	})
	if got := one[[]app.Event](t)(es.List(app.EventFilter{})); !errors.Is(err, stop) || len(got) != 0 {
		t.Errorf("events = %v, %v, want none", got, err)
	}
}

func TestEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t)
		es := NewEvents(db)
		must(t, es.Record(app.Event{Type: "old", Target: app.Target{GUID: "a1"}}))
		time.Sleep(eventAge - time.Hour)
		must(t, es.Record(app.Event{Type: "young", Target: app.Target{GUID: "a1"}}))
		if got := eventTypes(one[[]app.Event](t)(es.List(app.EventFilter{}))); len(got) != 2 {
			t.Errorf("events = %v, want both", got)
		}
		time.Sleep(2 * time.Hour)
		if got := eventTypes(one[[]app.Event](t)(es.List(app.EventFilter{}))); !cmp.Equal(got, []string{"young"}) {
			t.Errorf("events = %v, want the young one", got)
		}
		time.Sleep(sweepEveryTime)
		must(t, es.Record(app.Event{Type: "new", Target: app.Target{GUID: "a2"}}))
		if kept := eventTypes(one[[]app.Event](t)(es.bucket.All())); !cmp.Equal(kept, []string{"young", "new"}) {
			t.Errorf("kept = %v, want the old one swept", kept)
		}

		const most, every = 100, 10
		es.bounds = eventBounds{most, every}
		must(t, db.Update(func(tx *store.Tx) error {
			for i := range 3 * most {
				if err := es.With(tx).Record(app.Event{Type: fmt.Sprint(i), Target: app.Target{GUID: "a1"}}); err != nil {
					return err
				}
			}
			return nil
		}))
		kept := one[[]app.Event](t)(es.bucket.Prefix("a1/"))
		if n := len(kept); n < most || n >= most+every || kept[n-1].Type != fmt.Sprint(3*most-1) {
			t.Errorf("kept %d events of the app up to %s, want the newest %d and few more", n, kept[n-1].Type, most)
		}
		if got := one[[]app.Event](t)(es.bucket.Prefix("a2/")); len(got) != 1 {
			t.Errorf("events of the other app = %d, want 1", len(got))
		}
	})
}

// A key can be decoded into its target and time, whatever the target is called.
func TestEventKey(t *testing.T) {
	at := time.Unix(1700000000, 42)
	for _, target := range []string{"a1", "a/b", "", "/"} {
		key := app.Event{GUID: "e1", Target: app.Target{GUID: target}, CreatedAt: at}.Key()
		if got, when, err := readEventKey(key); err != nil || got != target || !when.Equal(at) {
			t.Errorf("readEventKey(%q) = %q, %v, %v", key, got, when, err)
		}
	}
	for _, key := range []string{"", "/", "a1", "a1/e1", "a1/yesterday/e1"} {
		if target, _, err := readEventKey(key); err == nil {
			t.Errorf("readEventKey(%q) = %q, want an error", key, target)
		}
	}
}
