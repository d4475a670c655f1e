//go:build integration

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// A process that prints without pause fills a small file system for logs while
// no dewd reads. Afterwards it prints on, or has a record that says why not;
// what is in the log has no hole that is not told.
func TestFloodWhileNobodyReads(t *testing.T) {
	c := newCell(t, "--immediate-restarts", "1000", "--kill-delay", "1s")
	logs := filepath.Join(c.root, "logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("dew-test", logs, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.tearDown() // while its logs are there
		if err := syscall.Unmount(logs, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c.wish("exec ./testapp flood", "while :; do sleep 1000; done")
	away := 4 * time.Second
	if os.Getenv("DEW_PROOF") != "" {
		away = 20 * time.Second
	}
	var last uint64
	for round := range rounds(1, 2) {
		c.start()
		c.eventually("the flood runs", func() error {
			for _, leaves := range c.leaves() {
				if len(leaves["main"]) > 0 {
					return nil
				}
			}
			return fmt.Errorf("no process")
		})
		time.Sleep(4 * time.Second) // some of the flood is read; the check of the captures has begun
		c.kill(syscall.SIGKILL)
		time.Sleep(away) // the file system runs full
		c.start()
		time.Sleep(4 * time.Second) // the captures are checked at once
		c.kill(syscall.SIGKILL)
		c.read(func(b books) { last = checkFlood(t, b) })
		c.start()
		time.Sleep(6 * time.Second)
		c.kill(syscall.SIGKILL)
		c.read(func(b books) {
			if now := checkFlood(t, b); now <= last {
				t.Errorf("round %d: the log ends at %d as before: the flood hangs", round, now)
			}
		})
	}
}

// checkFlood looks for holes in the numbers that the flood prints, and returns
// the last sequence number.
func checkFlood(t *testing.T, b books) uint64 {
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
		if r.First.Cause != runtime.CauseCaptureFailed {
			t.Errorf("record %s (%s), want only failed captures", r.Description, r.First.Cause)
		}
	}
	t.Logf("%d lines kept, %d gaps, %d records, last number %d", lines, gaps, len(rs), l.LastSeq())
	return l.LastSeq()
}
