package builtin

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/testkit"
)

// Run starts the work for a record that was stored before Run accepts requests, when
// the request itself could no longer start it.
func TestRunStartsAllOperations(t *testing.T) {
	b, h := newBroker(t, nil)
	b.mu.Lock() // blocks Run here
	start(t, b)
	testkit.EventuallyTrue(t, "Run waits for the lock", func() bool {
		stacks := make([]byte, 1<<20)
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("builtin.(*Broker).setContext("))
	})
	rec := record{GUID: guid, Name: "db", Engine: "redis", Shape: shape{Plan: smallPlan}, Secret: newSecret(), Doing: services.Create}
	if err := b.records.Put(guid, rec); err != nil {
		t.Error(err)
	}
	b.mu.Unlock()
	testkit.EventuallyTrue(t, "Run creates the server", func() bool {
		rec, err := b.get(guid)
		return err != nil || rec.Doing == ""
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.puts) != 1 {
		t.Errorf("servers = %+v, want one", h.puts)
	}
}

// A deletion that arrives just as the creation starts cancels the creation.
func TestDeleteRightAfterCreate(t *testing.T) {
	endless := func(c *Config) {
		c.Stacks = func(ctx context.Context, _ Programs, _ func(string)) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
	}
	inBubble(t, endless, func(t *testing.T, b *Broker, h *fakeHost) {
		for range 20 {
			if _, err := b.Instance(t.Context(), req(services.Create, "redis", smallPlan, "")); err != nil {
				t.Fatal(err)
			}
			if p := ask(t, b, req(services.Delete, "redis", smallPlan, "")); p.State != services.Succeeded {
				t.Fatalf("delete = %+v", p)
			}
			nothingLeft(t, b, h)
		}
	})
}

// A snapshot that is in progress while the broker starts is not mistaken for one that
// an earlier daemon left unfinished.
func TestSnapshotWhileTheBrokerStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBroker(t, nil)
		stop := start(t, b)
		synctest.Wait()
		ask(t, b, req(services.Create, "redis", smallPlan, ""))
		stop()
		_, unlock, err := b.lockReady(t.Context(), guid)
		if err != nil {
			t.Fatal(err)
		}
		s, change := Snapshot{ID: "now"}, func(fn func(r *record)) {
			if _, err := b.change(guid, fn); err != nil {
				t.Error(err)
			}
		}
		change(func(r *record) { r.Frozen = true })
		defer start(t, b)()
		synctest.Wait()
		to := filepath.Join(b.copiesDir(guid), s.ID)
		if err := errors.Join(makeDir(b.copiesDir(guid)), makeDir(to)); err != nil {
			t.Error(err)
		}
		change(func(r *record) { r.Frozen, r.Snapshots = false, append(r.Snapshots, s) })
		unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, err := os.Stat(to); err != nil {
			t.Errorf("the snapshot: %v", err)
		}
	})
}
