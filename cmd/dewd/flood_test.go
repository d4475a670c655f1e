//go:build integration

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// A process that prints all the time does not fill a small file system for logs while
// no dewd reads. Afterwards it continues: it was not stopped, and every hole in the log
// is recorded.
func TestFloodWhileNobodyReads(t *testing.T) {
	runParallel(t)
	c := newCell(t, "--immediate-restarts", "1000", "--kill-delay", "1s")
	logs := filepath.Join(c.root, "logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("dew-test", logs, "tmpfs", 0, "size=32m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.tearDown() // before its logs are removed
		if err := syscall.Unmount(logs, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c.storeApp("exec ./testapp flood", "while :; do sleep 1000; done")
	var last uint64
	for round := range rounds(1, 2) {
		c.start()
		if round == 0 {
			c.floodRuns() // dewd has not paused it yet
		} else {
			c.floodGrows(logs)
		}
		c.kill(syscall.SIGKILL)
		time.Sleep(time.Duration(rounds(0, 20)) * time.Second) // the long version gives the process this time to fill the disk
		c.floodStands(logs)
		c.start()
		c.floodGrows(logs)
		c.kill(syscall.SIGKILL)
		c.read(func(b diskState) { last = checkFlood(t, b) })
		c.start()
		c.floodGrows(logs)
		c.kill(syscall.SIGKILL)
		c.read(func(b diskState) {
			if now := checkFlood(t, b); now <= last {
				t.Errorf("round %d: the log ends at %d as before: the flood hangs", round, now)
			}
		})
	}
}

// floodRuns waits for the process itself.
func (c *cell) floodRuns() {
	c.t.Helper()
	c.eventually("the flood runs", func() error {
		for _, leaves := range c.leaves() {
			if len(leaves["main"]) > 0 {
				return nil
			}
		}
		return errors.New("no process")
	})
}

// floodGrows waits until the log has several segments.
func (c *cell) floodGrows(logs string) {
	c.t.Helper()
	newest := func() string {
		found, err := filepath.Glob(filepath.Join(logs, guid, "*.seg"))
		if err != nil || len(found) == 0 {
			return ""
		}
		return slices.Max(found)
	}
	for range 4 {
		before := newest()
		c.eventually("the log grows", func() error {
			if newest() == before {
				return fmt.Errorf("the newest segment is still %q", before)
			}
			return nil
		})
	}
}

// floodStands waits until nothing more is written.
func (c *cell) floodStands(logs string) {
	c.t.Helper()
	var now syscall.Statfs_t
	var since time.Time // the last change
	c.eventually("the flood stands", func() error {
		before := now.Bfree
		if err := syscall.Statfs(logs, &now); err != nil {
			return err
		}
		if now.Bfree != before || since.IsZero() {
			since = time.Now()
		}
		if still := time.Since(since); still < 500*time.Millisecond {
			return fmt.Errorf("%d blocks have been free for %v, %d were before", now.Bfree, still, before)
		}
		return nil
	})
	c.t.Logf("%d of %d blocks are free", now.Bfree, now.Blocks)
}

// checkFlood checks for holes in the numbers that the process prints, and returns the
// last sequence number.
func checkFlood(t *testing.T, b diskState) uint64 {
	t.Helper()
	l, err := b.logs.App(guid)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if report, err := l.Verify(ctx); err != nil {
		t.Errorf("the log is damaged: %v (%+v)", err, report)
	}
	next := map[string]int{} // by instance
	lines, gaps := 0, 0
	for cur := l.Cursor(1); ; {
		es, err := cur.Next(ctx)
		if errors.Is(err, logstream.ErrTrimmed) { // the full disk is still being cleared
			cur, _ = cur.Skip()
			clear(next)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			switch n := 0; {
			case e.Flags&logstream.Gap != 0:
				gaps++
				t.Logf("gap: %s", e.Text)
				if e.Lost != nil && e.Lost.Cause == string(runtime.CauseCaptureFailed) {
					t.Error("the file system ran full: its output is lost")
				}
			case strings.HasPrefix(string(e.Text), "line "):
				lines++
				if _, err := fmt.Sscanf(string(e.Text), "line %d", &n); err != nil {
					t.Fatalf("odd line %q", e.Text)
				}
				if want, seen := next[e.Source.InstanceID]; seen && n != want && e.Flags&logstream.Partial == 0 {
					t.Errorf("instance %s: line %d follows line %d", e.Source.InstanceID, n, want-1)
				}
				next[e.Source.InstanceID] = n + 1
			}
		}
		if len(es) > 0 && es[len(es)-1].Seq >= l.LastSeq() {
			break
		}
	}
	rs, err := b.exits.Process(guid)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		t.Errorf("record %s (%s), want none", r.Description, r.First.Cause)
	}
	t.Logf("%d lines kept, %d gaps, %d records, last number %d", lines, gaps, len(rs), l.LastSeq())
	return l.LastSeq()
}
