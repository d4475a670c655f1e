package logstream

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// With an app its log goes: readers end, tails let go, nothing is left, and
// nothing that is said later makes it anew.
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
	for range 2 { // it may be repeated
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

// A removal that a kill interrupted is finished by the next daemon, and the logs
// of apps that are no more are swept.
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

// kept reads all there is: lines by number, and what the retention's records say.
func told(t *testing.T, l *Log) (lines, lost int64, first uint64) {
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

// Old lines go, those of a quiet app too; what went is counted once, also when the
// daemon is killed between any two steps.
func TestAge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{SegmentBytes: blockSize, Age: time.Hour}
	ls, err := prepare(dir, o, quickDisk()) // nobody else looks at the age
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
	lines, lost, first := told(t, l)
	if lost != int64(first-1) || lines+lost != int64(l.LastSeq()) || first < 200 || first > 241 {
		t.Fatalf("%d lines from %d on, %d told as lost, of %d", lines, first, lost, l.LastSeq())
	}
	verify(t, l)
	l.expire(now.Add(time.Hour)) // everything is old
	lines, lost, _ = told(t, l)
	if lines != 1 || lost == 0 {
		t.Errorf("%d lines, %d lost: want the record alone", lines, lost)
	}
	last := l.LastSeq()
	l.expire(now.Add(2 * time.Hour))
	if l.LastSeq() != last {
		t.Error("the record of what is gone was replaced by another one")
	}
	// Killed behind the record, before the segments went: they go at the next start.
	if err := l.Append(line("new")); err != nil {
		t.Fatal(err)
	}
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
	ls = newLogs(t, dir, o)
	l = newApp(t, ls)
	verify(t, l)
	if l.told != last-1 {
		t.Errorf("told up to %d, want %d", l.told, last-1)
	}
}

// An app that prints little fills no segment for weeks, and yet its old lines go.
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
	l.part(8 * time.Hour)
	add(30 * time.Minute)
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
	if ls, err = prepare(dir, Options{Age: 8 * time.Hour}, quickDisk()); err != nil {
		t.Fatal(err)
	}
	l = newApp(t, ls)
	ls.retain() // the first segment goes; the second is not an eighth of the age long
	lines, lost, first := told(t, l)
	if lines != 2 || lost != 1 || first != 2 {
		t.Errorf("%d lines from %d on, %d told as lost; want the newer line and the record", lines, first, lost)
	}
	if n := len(l.view().segments); n != 1 {
		t.Errorf("%d segments, want 1", n)
	}
	l.part(time.Hour)
	add(0)
	if n := len(l.view().segments); n != 2 {
		t.Errorf("%d segments, want that a new one began", n)
	}
	verify(t, l)
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
}

// A log is killed right after the records, and right before: in the end what the
// records say adds up to what is gone.
func TestDroppedIsToldOnce(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		dir := t.TempDir()
		o := Options{SegmentBytes: blockSize, Retention: 1 << 30}
		ls := newLogs(t, dir, o)
		l := newApp(t, ls)
		for range 100 {
			if err := l.Append(Envelope{Source: Source{Type: "API"}, Stream: Out, Text: make([]byte, 500)}); err != nil {
				t.Fatal(err)
			}
		}
		if before { // the segments went, nobody said so
			l.trim(5 * blockSize)
		} else { // it was said, the segments stayed
			l.mu.Lock()
			upTo := l.segments[4].first
			l.mu.Unlock()
			if err := l.tell(upTo); err != nil {
				t.Fatal(err)
			}
		}
		if err := ls.Close(); err != nil {
			t.Fatal(err)
		}
		ls = newLogs(t, dir, o)
		l = newApp(t, ls)
		l.sayDropped()
		l.sayDropped()
		lines, lost, first := told(t, l)
		if first == 1 || lost != int64(first-1) || lines+lost != int64(l.LastSeq()) {
			t.Errorf("before %v: %d lines from %d on, %d told as lost, of %d", before, lines, first, lost, l.LastSeq())
		}
		verify(t, l)
	}
}
