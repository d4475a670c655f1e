package logstream

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/testkit"
)

func TestLimit(t *testing.T) {
	t.Parallel()
	l := NewLimit(100)
	second := int64(time.Second)
	for i, tt := range []struct {
		at   int64
		n    int
		want bool
	}{
		{0, 60, true},
		{1, 40, true},
		{2, 0, true},              // an empty line takes nothing
		{3, 1, false},             // and now the limit is reached
		{4, 0, false},             // for every line, until the second has passed
		{second + 3, 100, true},   // a second after its first line
		{second + 4, 1, false},    // used up
		{3 * second, 101, false},  // never fits
		{3*second + 1, 1, false},  // blocked by it
		{4*second + 1, 100, true}, // and admitted again
		{second, 100, true},       // a clock that goes back starts a new second
	} {
		if got := l.admit(100*second+tt.at, tt.n); got != tt.want {
			t.Errorf("line %d (%d bytes at %v) = %v", i, tt.n, time.Duration(tt.at), got)
		}
	}
	none := NewLimit(0)
	if none.admit(0, 0) || none.admit(5*second, 1) {
		t.Error("a limit of 0 took a line")
	}
}

// flood prints numbered lines of 10 bytes.
func flood(t *testing.T, f *os.File, from, to int) {
	t.Helper()
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%09d\n", i)
	}
	put(t, f, b.String())
}

// tally counts the stored lines and the lines that gap records count. Every byte of the
// capture file is accounted for.
func tally(t *testing.T, l *Log) (kept, dropped, records int64) {
	t.Helper()
	at := int64(0)
	for _, e := range all(t, l.Cursor(0).UpTo(l.LastSeq())) {
		if e.From != at {
			t.Errorf("line %d begins at byte %d, not %d", e.Seq, e.From, at)
		}
		at = e.To
		if e.Lost == nil {
			kept++
			continue
		}
		records++
		dropped += e.Lost.Lines
		want := fmt.Sprintf("app instance exceeded log rate limit (1000 bytes/sec): %d lines of APP/PROC/WEB (%d bytes) dropped", e.Lost.Lines, e.Lost.Bytes)
		if e.Source.Type != "CELL" || e.Lost.Cause != LostRate || e.Lost.Bytes != e.To-e.From || string(e.Text) != want {
			t.Errorf("record = %+v %+v", e, e.Lost)
		}
	}
	verify(t, l)
	return kept, dropped, records
}

// Lines over the limit are dropped, counted and recorded once a second. Their bytes are
// accounted for, even if the daemon is replaced in between.
func TestTailLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ls := newLogs(t, dir, Options{})
	l := newApp(t, ls)
	f := capture(t, l, Out)
	limit := NewLimit(1000)
	tail := follow(t, l, Capture{Limit: limit})
	flood(t, f, 0, 5000)
	testkit.EventuallyTrue(t, "the flood is read", func() bool { return tail.Backlog() == 0 })
	tail.mu.Lock()
	tail.over.since = tail.over.since.Add(-limitWindow) // its second has passed
	tail.mu.Unlock()
	ls.queue.put(tail)
	testkit.EventuallyTrue(t, "what was dropped is told", func() bool { return l.offset(tail.key) == 50_000 })
	kept, dropped, records := tally(t, l)
	if kept+dropped != 5000 || dropped < 4000 || records > 3 { // a slow machine can take some seconds
		t.Fatalf("%d kept, %d dropped, %d records", kept, dropped, records)
	}
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
	flood(t, f, 5000, 6000)
	l = newApp(t, newLogs(t, dir, Options{}))
	tail = follow(t, l, Capture{Limit: limit, Late: true})
	put(t, f, "end")
	last, err := tail.Finish(t.Context())
	if err == nil {
		err = l.Append(last...)
	}
	if err != nil {
		t.Fatal(err)
	}
	if kept, dropped, _ := tally(t, l); kept+dropped != 6001 {
		t.Errorf("%d kept, %d dropped, want 6001 in all", kept, dropped)
	}
}

// Every line of every log goes to the copy, including logs that are opened later.
func TestCopy(t *testing.T) {
	ls := newLogs(t, t.TempDir(), Options{})
	l := newApp(t, ls)
	if err := l.Append(line("old")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ls.Copy(ctx, func(app string, es []Envelope) {
			for _, e := range es {
				got <- app + " " + string(e.Text)
			}
		})
	}()
	testkit.EventuallyTrue(t, "the copy begins", func() bool {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		return len(ls.opened) == 1
	})
	other, err := ls.App("app-2")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Append(line("new")); err != nil {
		t.Fatal(err)
	}
	if text := <-got; text != "app-2 new" {
		t.Errorf("got %q", text)
	}
	if err := l.Append(line("more")); err != nil {
		t.Fatal(err)
	}
	if text := <-got; text != "app-1 more" {
		t.Errorf("got %q", text)
	}
	cancel()
	<-done
}

// A log of the previous format is read, including its gap records, and continues in the
// new format.
func TestOldFormat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "app-1", "capture"), 0o700); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join("testdata", "format-1.seg"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "app-1", segmentName(5)), old, 0o600); err != nil {
		t.Fatal(err)
	}
	ls := newLogs(t, dir, Options{})
	l := newApp(t, ls)
	l.recordDropped()
	if err := l.Append(line("new")); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, e := range all(t, l.Cursor(0).UpTo(l.LastSeq())) {
		texts = append(texts, fmt.Sprint(e.Seq, " ", e.Source.Type, " ", e.Flags, " ", string(e.Text)))
	}
	want := []string{"5 API 0 hello", "6 APP/PROC/WEB 0 one", "7 CELL 8 3 lines are missing: capture_failed", "8 API 0 new"}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	verify(t, l)
	if l.recordedDrop != 4 {
		t.Errorf("told up to %d, want 4: the old log did not say", l.recordedDrop)
	}
}
