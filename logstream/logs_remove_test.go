package logstream

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dewrun/dew/logstream/disk"
)

// Removing an app removes its log: readers and tails stop, no file is left, and later
// lines do not create it again.
func TestRemove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ls := newLogs(t, dir, Options{})
	l := newApp(t, ls)
	f := capture(t, l, Out)
	tail := follow(t, l, Capture{})
	put(t, f, "a\n")
	cur := l.Cursor(0)
	take(t, cur, 1)
	ended := make(chan error)
	go func() {
		_, err := cur.Next(context.Background())
		ended <- err
	}()
	for range 2 { // it can be repeated
		if err := ls.Remove("app-1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("the reader ended with %v", err)
	}
	if _, err := l.Cursor(0).Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("a late reader got %v", err)
	}
	if _, err := tail.Finish(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Finish = %v", err)
	}
	if err := l.Append(line("late")); !errors.Is(err, ErrClosed) {
		t.Errorf("Append = %v", err)
	}
	if _, err := ls.App("app-1"); !errors.Is(err, ErrRemoved) || !errors.Is(err, ErrClosed) {
		t.Errorf("App = %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*app-1*")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := ls.Remove("../x"); err == nil {
		t.Error("a path was taken for an app")
	}
}

// The next daemon finishes a removal that a kill interrupted, and sweeps the logs of
// deleted apps.
func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ls := newLogs(t, dir, Options{})
	for _, app := range []string{"keep", "open", "torn"} {
		l, err := ls.App(app)
		if err == nil {
			err = l.Append(line(app))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "torn"), filepath.Join(dir, removedPrefix+"torn")); err != nil {
		t.Fatal(err)
	}
	ls = newLogs(t, dir, Options{})
	if _, err := os.Stat(filepath.Join(dir, removedPrefix+"torn")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half-removed log: %v", err)
	}
	if _, err := ls.App("open"); err != nil {
		t.Fatal(err)
	}
	if err := ls.Sweep(func() (map[string]bool, error) { return map[string]bool{"keep": true}, nil }); err != nil {
		t.Fatal(err)
	}
	apps, err := ls.Apps()
	if err != nil || len(apps) != 1 || apps[0] != "keep" {
		t.Errorf("apps = %v, %v", apps, err)
	}
	l, err := ls.App("keep")
	if err != nil || l.LastSeq() != 1 {
		t.Errorf("the kept log: %v, %v", l, err)
	}
}

// countLines reads the whole log. It returns the number of lines, the number of dropped lines
// in the retention's records, and the first line's number.
func countLines(t *testing.T, l *Log) (lines, lost int64, first uint64) {
	t.Helper()
	for _, e := range all(t, l.Cursor(0).UpTo(l.LastSeq())) {
		lines++
		if first == 0 {
			first = e.Seq
		}
		if e.Lost != nil && e.Lost.Cause == LostRetention {
			lost += e.Lost.Lines
		}
	}
	return lines, lost, first
}

// Old lines are dropped, including those of a quiet app. Dropped lines are counted
// once, even if the daemon is killed between any two steps.
func TestAge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{SegmentBytes: disk.Block, Age: time.Hour}
	ls, err := prepare(dir, o, quickDisk()) // no background goroutine checks the age
	if err != nil {
		t.Fatal(err)
	}
	l := newApp(t, ls)
	now := time.Now()
	for i := range 300 {
		e := line("x")
		e.Time = now.Add(time.Duration(i-300) * time.Minute)
		e.Text = make([]byte, 200)
		if err := l.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	ls.retain()
	lines, lost, first := countLines(t, l)
	if lost != int64(first-1) || lines+lost != int64(l.LastSeq()) || first < 200 || first > 241 {
		t.Fatalf("%d lines from %d on, %d told as lost, of %d", lines, first, lost, l.LastSeq())
	}
	verify(t, l)
	l.expire(now.Add(time.Hour)) // all lines are old
	lines, lost, _ = countLines(t, l)
	if lines != 1 || lost == 0 {
		t.Errorf("%d lines, %d lost: want the record alone", lines, lost)
	}
	last := l.LastSeq()
	l.expire(now.Add(2 * time.Hour))
	if l.LastSeq() != last {
		t.Error("the record of what is gone was replaced by another one")
	}
	// Killed after the record was written, before the segments were removed: the next
	// start removes them.
	if err := l.Append(line("new")); err != nil {
		t.Fatal(err)
	}
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
	ls = newLogs(t, dir, o)
	l = newApp(t, ls)
	verify(t, l)
	if l.recordedDrop != last-1 {
		t.Errorf("told up to %d, want %d", l.recordedDrop, last-1)
	}
}

// An app that prints little fills no segment for weeks; its old lines are still
// dropped.
func TestAgeOfSlowLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ls, err := prepare(dir, Options{Age: 8 * time.Hour}, quickDisk())
	if err != nil {
		t.Fatal(err)
	}
	l := newApp(t, ls)
	add := func(before time.Duration) {
		t.Helper()
		e := line("x")
		e.Time = time.Now().Add(-before)
		if err := l.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	add(24 * time.Hour)
	l.sealByAge(8 * time.Hour)
	add(30 * time.Minute)
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
	if ls, err = prepare(dir, Options{Age: 8 * time.Hour}, quickDisk()); err != nil {
		t.Fatal(err)
	}
	l = newApp(t, ls)
	ls.retain() // the first segment is dropped; the second spans less than an eighth of the age
	lines, lost, first := countLines(t, l)
	if lines != 2 || lost != 1 || first != 2 {
		t.Errorf("%d lines from %d on, %d told as lost; want the newer line and the record", lines, first, lost)
	}
	if n := len(l.view().segments); n != 1 {
		t.Errorf("%d segments, want 1", n)
	}
	l.sealByAge(time.Hour)
	add(0)
	if n := len(l.view().segments); n != 2 {
		t.Errorf("%d segments, want that a new one began", n)
	}
	verify(t, l)
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
}

// The daemon is killed right before or right after it writes the records. In the end
// the records add up to the number of dropped lines.
func TestDroppedIsRecordedOnce(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		dir := t.TempDir()
		o := Options{SegmentBytes: disk.Block, Retention: 1 << 30}
		ls := newLogs(t, dir, o)
		l := newApp(t, ls)
		for range 100 {
			if err := l.Append(Envelope{Source: Source{Type: "API"}, Stream: Out, Text: make([]byte, 500)}); err != nil {
				t.Fatal(err)
			}
		}
		if before { // the segments are removed without a record
			l.trim(5 * disk.Block)
		} else { // the record is written, the segments are still there
			l.mu.Lock()
			upTo := l.segments[4].first
			l.mu.Unlock()
			if err := l.recordDrop(upTo); err != nil {
				t.Fatal(err)
			}
		}
		if err := ls.Close(); err != nil {
			t.Fatal(err)
		}
		ls = newLogs(t, dir, o)
		l = newApp(t, ls)
		l.recordDropped()
		l.recordDropped()
		lines, lost, first := countLines(t, l)
		if first == 1 || lost != int64(first-1) || lines+lost != int64(l.LastSeq()) {
			t.Errorf("before %v: %d lines from %d on, %d told as lost, of %d", before, lines, first, lost, l.LastSeq())
		}
		verify(t, l)
	}
}
