package logstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/logstream/disk"
	"github.com/dewrun/dew/testkit"
)

// quickDisk does not wait for the disk, because these tests do not simulate a power
// cut.
func quickDisk() disk.Ops {
	d := disk.Real()
	d.Sync = func(*os.File) error { return nil }
	d.SyncDir = d.Sync
	return d
}

func newLogs(t testing.TB, dir string, o Options) *Logs {
	t.Helper()
	return newLogsOn(t, dir, o, quickDisk())
}

func newLogsOn(t testing.TB, dir string, o Options, d disk.Ops) *Logs {
	t.Helper()
	ls, err := open(dir, o, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ls.Close(); err != nil {
			t.Error(err)
		}
	})
	return ls
}

func newApp(t testing.TB, ls *Logs) *Log {
	t.Helper()
	l, err := ls.App("app-1")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// capture creates the capture files of exec main and opens one as the shim does.
func capture(t testing.TB, l *Log, s Stream) *os.File {
	t.Helper()
	if _, _, err := l.CreateCapture("i-1", "main"); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(l.CapturePath("i-1", "main", s), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func put(t testing.TB, f *os.File, text string) {
	t.Helper()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func follow(t testing.TB, l *Log, c Capture) *Tail {
	t.Helper()
	c.Source, c.Exec = web("i-1"), "main"
	if c.Stream == 0 {
		c.Stream = Out
	}
	tail, err := l.Tail(c)
	if err != nil {
		t.Fatal(err)
	}
	return tail
}

// take reads n lines.
func take(t testing.TB, c *Cursor, n int) []Envelope {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var es []Envelope
	for len(es) < n {
		more, err := c.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d lines: %v", len(es), n, err)
		}
		es = append(es, more...)
	}
	return es
}

func texts(es []Envelope) []string {
	var s []string
	for _, e := range es {
		s = append(s, string(e.Text))
	}
	return s
}

func verify(t testing.TB, l *Log) Report {
	t.Helper()
	r, err := l.Verify(t.Context())
	if err != nil {
		t.Errorf("verify: %v", err)
	}
	return r
}

func TestCutLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", MaxLine)
	type line struct {
		Text     string
		From, To int64
		Flags    Flags
	}
	for _, c := range []struct {
		name string
		in   string
		how  ending
		want []line
	}{
		{"nothing", "", growing, nil},
		{"lines", "a\n\nbc\n", growing, []line{{"a", 10, 12, 0}, {"", 12, 13, 0}, {"bc", 13, 16, 0}}},
		{"an unfinished line waits", "a\nb", growing, []line{{"a", 10, 12, 0}}},
		{"and is the last in the end", "a\nb", ended, []line{{"a", 10, 12, 0}, {"b", 12, 13, Partial}}},
		{"carriage returns are text", "a\r\n", growing, []line{{"a\r", 10, 13, 0}}},
		{"as long as may be", long + "\n", growing, []line{{long, 10, 11 + MaxLine, 0}}},
		{"it may still end there", long, growing, nil},
		{"too long", long + "b\n", growing, []line{{long, 10, 10 + MaxLine, Cut}, {"b", 10 + MaxLine, 12 + MaxLine, 0}}},
		{"too long, unfinished", long + "b", growing, []line{{long, 10, 10 + MaxLine, Cut}}},
		{"twice the length", long + long + "\n", growing, []line{{long, 10, 10 + MaxLine, Cut}, {long, 10 + MaxLine, 11 + 2*MaxLine, 0}}},
		{"unfinished in the end", long, ended, []line{{long, 10, 10 + MaxLine, Partial}}},
	} {
		var got []line
		for _, e := range cutLines(nil, Envelope{From: 10}, []byte(c.in), c.how) {
			got = append(got, line{string(e.Text), e.From, e.To, e.Flags})
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if got := len(cutLines(nil, Envelope{}, bytes.Repeat([]byte("\n"), batchLines+1), growing)); got != batchLines {
		t.Errorf("a batch has %d lines, want %d", got, batchLines)
	}
}

func FuzzCutLines(f *testing.F) {
	f.Add([]byte("a\nb\n"), false)
	f.Add([]byte("a\n\n\nb"), true)
	f.Add([]byte("L\nLa\nLL\nLLa"), true)
	f.Add([]byte("LL"), false)
	long := bytes.Repeat([]byte("x"), MaxLine)
	f.Fuzz(func(t *testing.T, b []byte, end bool) {
		b = bytes.Replace(b, []byte("L"), long, 6) // an L stands for a line of full length
		how := growing
		if end {
			how = ended
		}
		var whole []byte
		at := int64(0)
		es := cutLines(nil, Envelope{}, b, how)
		for i, e := range es {
			if e.From != at || e.To <= e.From || e.To != impliedTo(&e) || len(e.Text) > MaxLine {
				t.Fatalf("line %d: %d to %d with %d bytes %v, expected at %d", i, e.From, e.To, len(e.Text), e.Flags, at)
			}
			at = e.To
			whole = append(whole, e.Text...)
			if e.Flags&(Cut|Partial) == 0 {
				whole = append(whole, '\n')
			}
		}
		if !bytes.HasPrefix(b, whole) {
			t.Fatal("the lines are not what was printed")
		}
		rest := b[len(whole):]
		if full := len(es) == batchLines; !full && (len(rest) > MaxLine || bytes.IndexByte(rest, '\n') >= 0 || (end && len(rest) > 0)) {
			t.Fatalf("%d bytes left", len(rest))
		}
	})
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		last, changed int64
		want          []int64
	}{
		{"spread", 1000, 2000, []int64{1250, 1500, 2000}},
		{"no line before", 0, 2000, []int64{2000, 2000, 2000}},
		{"changed before the last line", 3000, 2000, []int64{2000, 2000, 2000}},
	} {
		es := []Envelope{{To: 125}, {To: 150}, {To: 200}, {To: 201}}
		newSpan(100, 200, c.last, c.changed).mark(es)
		for i, want := range c.want {
			if got := es[i].Time.UnixNano(); got != want || es[i].Flags != Late {
				t.Errorf("%s: line %d at %d with flags %d, want late at %d", c.name, i, got, es[i].Flags, want)
			}
		}
		if es[3].Flags != 0 || !es[3].Time.IsZero() {
			t.Errorf("%s: a line that ended later is marked", c.name)
		}
	}
}

func TestTailFollows(t *testing.T) {
	t.Parallel()
	l := newApp(t, newLogs(t, t.TempDir(), Options{}))
	f := capture(t, l, Out)
	put(t, f, "before\n")
	tail := follow(t, l, Capture{})
	cur := l.Cursor(0)
	es := take(t, cur, 1)
	put(t, f, "one\ntwo\nunfin")
	es = append(es, take(t, cur, 2)...)
	put(t, f, "ished\nlast")
	es = append(es, take(t, cur, 1)...)
	last, err := tail.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append(append(last, Envelope{Source: Source{Type: "API"}, Stream: Out, Text: []byte("exited")})...); err != nil {
		t.Fatal(err)
	}
	es = append(es, take(t, cur, 2)...)
	want := []string{"before", "one", "two", "unfinished", "last", "exited"}
	if diff := cmp.Diff(want, texts(es)); diff != "" {
		t.Fatal(diff)
	}
	for i, e := range es {
		if e.Seq != uint64(i+1) || (i > 0 && !e.Time.After(es[i-1].Time)) || e.Flags&Late != 0 {
			t.Errorf("line %d: seq %d at %v with flags %d", i, e.Seq, e.Time, e.Flags)
		}
	}
	if es[4].Flags != Partial || es[0].Source != web("i-1") || es[0].Exec != "main" {
		t.Errorf("wrong marks: %+v, %+v", es[4], es[0])
	}
	if r := verify(t, l); r.Lines != 6 || r.Streams != 1 {
		t.Errorf("verify = %+v", r)
	}
	if _, err := tail.Finish(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("a second Finish: %v, want ErrClosed", err)
	}
}

// Finish never holds more than one batch, however many bytes are unread.
func TestFinishBigBacklog(t *testing.T) {
	t.Parallel()
	l := newApp(t, newLogs(t, t.TempDir(), Options{}))
	f := capture(t, l, Out)
	var b strings.Builder
	const lines = 2*batchLines + 100
	for i := range lines {
		fmt.Fprintf(&b, "line %d %s\n", i, strings.Repeat("x", i%300))
	}
	put(t, f, b.String())
	tail := follow(t, l, Capture{})
	last, err := tail.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(last) > batchLines {
		t.Errorf("Finish returned %d lines", len(last))
	}
	if err := l.Append(last...); err != nil {
		t.Fatal(err)
	}
	for i, e := range take(t, l.Cursor(0), lines) {
		if want := fmt.Sprintf("line %d ", i); !strings.HasPrefix(string(e.Text), want) {
			t.Fatalf("line %d is %.20q", i, e.Text)
		}
	}
	verify(t, l)
	if err := l.Append(last...); err == nil {
		t.Error("the same bytes were appended twice")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	put(t, f, "more\n")
	tail = follow(t, l, Capture{})
	if _, err := tail.Finish(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Finish with an ended context: %v", err)
	}
	if last, err = tail.Finish(t.Context()); err != nil || len(last) > 1 {
		t.Errorf("Finish again = %d lines, %v", len(last), err)
	}
}

// Lines that were printed while no daemon ran are marked late. Their times lie between
// the last line before them and the file's last change.
func TestLate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ls := newLogs(t, dir, Options{})
	l := newApp(t, ls)
	f := capture(t, l, Out)
	put(t, f, "seen\n")
	before := Envelope{
		Time: time.Now().Add(-time.Hour), Source: web("i-1"), Exec: "main", Stream: Out, Text: []byte("seen"), From: 0, To: 5,
	}
	if err := l.Append(before); err != nil {
		t.Fatal(err)
	}
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, f, "missed 1\nmissed 2\n")
	changed := before.Time.Add(10 * time.Millisecond)
	if err := os.Chtimes(f.Name(), changed, changed); err != nil {
		t.Fatal(err)
	}
	thawed := make(chan bool, 10)
	l = newApp(t, newLogs(t, dir, Options{}))
	follow(t, l, Capture{Late: true, Freeze: func(frozen bool) error { thawed <- frozen; return nil }})
	cur := l.Cursor(2)
	late := take(t, cur, 2)
	put(t, f, "live\n")
	live := take(t, cur, 1)[0]
	if got, want := late[0].Time.Sub(before.Time), 5*time.Millisecond; got.Round(time.Millisecond) != want {
		t.Errorf("first late line %v after the last one before, want %v", got, want)
	}
	if !late[1].Time.Equal(changed) || late[1].Flags != Late || late[0].Flags != Late {
		t.Errorf("late lines %+v, want the last at %v", late, changed)
	}
	if live.Flags != 0 || string(live.Text) != "live" {
		t.Errorf("a line read live is %+v", live)
	}
	// The previous daemon could have died while the process was frozen.
	select {
	case frozen := <-thawed:
		if frozen {
			t.Error("a process without a backlog was frozen")
		}
	case <-time.After(testkit.Patience):
		t.Error("a process that may be frozen was not thawed")
	}
	verify(t, l)
}

func TestTailRefuses(t *testing.T) {
	t.Parallel()
	l := newApp(t, newLogs(t, t.TempDir(), Options{}))
	capture(t, l, Out)
	follow(t, l, Capture{})
	for name, c := range map[string]Capture{
		"followed already": {Source: web("i-1"), Exec: "main", Stream: Out},
		"no file":          {Source: web("i-2"), Exec: "main", Stream: Out},
		"no stream":        {Source: web("i-1"), Exec: "main"},
		"no exec":          {Source: web("i-1"), Stream: Out},
		"a way out":        {Source: web(".."), Exec: "main", Stream: Out},
	} {
		if _, err := l.Tail(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCaptures(t *testing.T) {
	t.Parallel()
	ls := newLogs(t, t.TempDir(), Options{})
	l := newApp(t, ls)
	out, errPath, err := l.CreateCapture("i-1", "sidecar-0")
	if err != nil {
		t.Fatal(err)
	}
	if out != l.CapturePath("i-1", "sidecar-0", Out) || errPath != l.CapturePath("i-1", "sidecar-0", Err) {
		t.Errorf("CreateCapture = %s, %s", out, errPath)
	}
	for path, want := range map[string]os.FileMode{out: 0o600, errPath: 0o600, filepath.Dir(out): 0o700} {
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
	f := capture(t, l, Out)
	if got, err := l.Captures(); err != nil || len(got) != 1 || got[0] != "i-1" {
		t.Errorf("Captures = %v, %v", got, err)
	}
	tail := follow(t, l, Capture{})
	put(t, f, "read\nunread")
	take(t, l.Cursor(0), 1)
	if got := tail.Backlog(); got != int64(len("unread")) {
		t.Errorf("Backlog = %d", got)
	}
	testkit.EventuallyTrue(t, "the append is counted", func() bool { return ls.Stats().Appends > 0 }) // readers get its lines first
	if s := ls.Stats(); s.Tails != 1 || s.Backlog != 6 || s.Appends == 0 || s.AppendMax == 0 {
		t.Errorf("Stats = %+v", s)
	}
	if err := l.RemoveCapture("i-1"); err != nil {
		t.Fatal(err)
	}
	gap := take(t, l.Cursor(2), 1)[0]
	if gap.Flags != Gap || !strings.HasPrefix(string(gap.Text), "6 bytes ") {
		t.Errorf("removed unread bytes became %v", gap)
	}
	if got, err := l.Captures(); err != nil || len(got) != 0 {
		t.Errorf("Captures after removal = %v, %v", got, err)
	}
	if got, err := ls.Apps(); err != nil || len(got) != 1 || got[0] != "app-1" {
		t.Errorf("Apps = %v, %v", got, err)
	}
	for _, bad := range []string{"", "..", "a/b"} {
		if l.RemoveCapture(bad) == nil {
			t.Errorf("RemoveCapture(%q) was taken", bad)
		}
		if _, err := ls.App(bad); err == nil {
			t.Errorf("App(%q) was taken", bad)
		}
	}
}

// Tails have no goroutines of their own, so the cost of an instance does not grow with
// its processes. BenchmarkTailMemory measures the bytes.
func TestTailsHaveNoGoroutines(t *testing.T) {
	const instances, execs = 40, 3
	l := newApp(t, newLogs(t, t.TempDir(), Options{}))
	cur := l.Cursor(0)
	before := goruntime.NumGoroutine()
	tailMany(t, l, instances, execs)
	take(t, cur, instances*execs)
	if after := goruntime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines, before %d", after, before)
	}
}

// tailMany follows the streams of many processes, each of which printed one line.
func tailMany(t testing.TB, l *Log, instances, execs int) {
	t.Helper()
	for i := range instances {
		for e := range execs {
			id, exec := fmt.Sprint("i-", i), fmt.Sprint("sidecar-", e)
			out, _, err := l.CreateCapture(id, exec)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(out, []byte("hello\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, s := range []Stream{Out, Err} {
				if _, err := l.Tail(Capture{Source: web(id), Exec: exec, Stream: s}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
