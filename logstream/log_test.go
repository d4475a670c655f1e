package logstream

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/logstream/disk"
)

func line(text string) Envelope {
	return Envelope{Source: Source{Type: "API"}, Stream: Out, Text: []byte(text)}
}

func TestEnvelopeString(t *testing.T) {
	t.Parallel()
	e := Envelope{
		Time:   time.Date(2025, 11, 14, 22, 40, 0, 123456789, time.UTC),
		Source: Source{Type: "APP/PROC/WEB/SIDECAR/CONFIG-SERVER", Index: 2}, Stream: Err, Text: []byte("no [luck]"),
	}
	if got, want := e.String(), "2025-11-14T22:40:00.123Z [APP/PROC/WEB/SIDECAR/CONFIG-SERVER/2] ERR no [luck]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAppendSetsSeqAndTime(t *testing.T) {
	t.Parallel()
	l := newApp(t, newLogs(t, t.TempDir(), Options{}))
	old := time.Unix(1, 0)
	es := []Envelope{line("a"), line("b"), {Source: Source{Type: "API"}, Time: old, Text: []byte("c")}}
	if err := l.Append(es...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(es, take(t, l.Cursor(1), 3), cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("read back (-appended +read):\n%s", diff)
	}
	if es[2].Seq != 3 || es[2].Time != es[1].Time.Add(1) {
		t.Errorf("third line = %+v after %v", es[2], es[1].Time)
	}
	if l.LastSeq() != 3 {
		t.Errorf("LastSeq = %d", l.LastSeq())
	}
	if err := l.Gap(Source{Type: "CELL"}, "capture_failed", 17); err != nil {
		t.Fatal(err)
	}
	if gap := take(t, l.Cursor(4), 1)[0]; gap.Flags != Gap || string(gap.Text) != "17 lines are missing: capture_failed" {
		t.Errorf("gap = %+v", gap)
	}
}

// Newest returns the newest lines of the log without waiting for more.
func TestNewest(t *testing.T) {
	t.Parallel()
	l := newApp(t, newLogs(t, t.TempDir(), Options{}))
	if es, err := l.NewestOf(t.Context(), 5, Filter{}); err != nil || len(es) != 0 {
		t.Errorf("of an empty log: %v, %v", es, err)
	}
	for i := range 7 {
		if err := l.Append(line(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for n, first := range map[int]uint64{3: 5, 7: 1, 100: 1} {
		es, err := l.NewestOf(t.Context(), n, Filter{})
		if err != nil || len(es) != min(n, 7) || es[0].Seq != first || es[len(es)-1].Seq != 7 {
			t.Errorf("newest %d = %v, %v, want those from %d to 7", n, es, err, first)
		}
	}
}

// Many writers and readers run at once. Every reader sees the same sequence without
// gaps.
func TestConcurrentReaders(t *testing.T) {
	t.Parallel()
	l := newApp(t, newLogs(t, t.TempDir(), Options{SegmentBytes: 16 << 10}))
	const writers, each = 4, 300
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				if err := l.Append(line(fmt.Sprintf("%d %d", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		group.Go(func() {
			next := map[int]int{}
			for i, e := range take(t, l.Cursor(0), writers*each) {
				var w, n int
				if _, err := fmt.Sscan(string(e.Text), &w, &n); err != nil || n != next[w] || e.Seq != uint64(i+1) {
					t.Errorf("line %d is %v: %v", i, e, err)
					return
				}
				next[w]++
			}
		})
	}
	group.Wait()
	if r := verify(t, l); r.Segments < 2 {
		t.Errorf("only %d segments: the test does not rotate", r.Segments)
	}
}

// A last segment that was cut at any byte is recovered up to its last whole frame. No
// line before it is lost, and reading the capture file continues at the exact byte that
// the segments still have.
func TestRecoverTornEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ls := newLogs(t, dir, Options{})
	l := newApp(t, ls)
	f := capture(t, l, Out)
	follow(t, l, Capture{})
	cur := l.Cursor(0)
	var want []string
	for i := range 6 { // each round is its own frame
		a, b := fmt.Sprintf("round %d a", i), strings.Repeat("b", i*7)
		put(t, f, a+"\n"+b+"\n")
		want = append(want, a, b)
		take(t, cur, 2)
	}
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(l.dir, segmentName(1))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ls = newLogs(t, dir, Options{})
	for cut := len(whole) - 120; cut <= len(whole); cut++ {
		torn := bytes.Clone(whole[:cut])
		l := tornApp(t, ls, fmt.Sprint("torn-", cut), map[uint64][]byte{1: torn})
		kept := int(l.LastSeq())
		follow(t, l, Capture{Late: true})
		es := take(t, l.Cursor(0), len(want))
		if diff := cmp.Diff(want, texts(es)); diff != "" {
			t.Fatalf("cut at %d, %d lines kept (-want +got):\n%s", cut, kept, diff)
		}
		for i, e := range es {
			if late := e.Flags&Late != 0; late != (i >= kept) {
				t.Errorf("%d lines were kept, line %d has flags %d", kept, i, e.Flags)
			}
		}
		if l.LastSeq() != uint64(len(want)) || (cut == len(whole) && kept != len(want)) {
			t.Errorf("cut at %d: %d lines in the log, %d kept, want %d", cut, l.LastSeq(), kept, len(want))
		}
		verify(t, l)
	}
}

// Bytes that changed on the disk are never read as lines. The lines after them are read
// again from the capture file, a copy is stored, and the log records it.
func TestRecoverDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ls := newLogs(t, dir, Options{})
	l := newApp(t, ls)
	f := capture(t, l, Out)
	follow(t, l, Capture{})
	for i := range 3 {
		put(t, f, fmt.Sprintln("round", i))
		take(t, l.Cursor(uint64(i+1)), 1)
	}
	whole, err := os.ReadFile(filepath.Join(l.dir, segmentName(1)))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(whole, []byte("round 1"))
	for what, bad := range map[string][]byte{
		"flipped": append(append(bytes.Clone(whole[:at]), 'R'), whole[at+1:]...),
		"zeroed":  append(bytes.Clone(whole[:at]), make([]byte, len(whole)-at)...),
	} {
		l := tornApp(t, ls, what, map[uint64][]byte{1: bad})
		follow(t, l, Capture{Late: true})
		es := take(t, l.Cursor(0), 4)
		if es[1].Flags != Gap || !strings.HasPrefix(string(es[1].Text), "lines may be missing: the end of the log's last segment") {
			t.Errorf("%s: no word about it: %v", what, es[1])
		}
		if got := strings.Join(append(texts(es[:1]), texts(es[2:])...), ","); got != "round 0,round 1,round 2" {
			t.Errorf("%s: %s", what, got)
		}
		if kept, err := os.ReadFile(filepath.Join(l.dir, segmentName(1)+damagedSuffix)); err != nil || !bytes.Equal(kept, bad) {
			t.Errorf("%s: the damaged segment was not kept: %v", what, err)
		}
		verify(t, l)
	}
}

// tornApp opens another app that has the given segments and the capture files
// of app-1.
func tornApp(t *testing.T, ls *Logs, guid string, segments map[uint64][]byte) *Log {
	t.Helper()
	from, to := filepath.Join(ls.dir, "app-1"), filepath.Join(ls.dir, guid)
	if err := os.MkdirAll(filepath.Join(to, "capture", "i-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("capture", "i-1", "main.out")
	if err := os.Link(filepath.Join(from, file), filepath.Join(to, file)); err != nil {
		t.Fatal(err)
	}
	for first, b := range segments {
		if err := os.WriteFile(filepath.Join(to, segmentName(first)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := ls.App(guid)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A kill while the next segment is being created leaves a header without a line. The
// segment before it has all the state.
func TestRecoverTornBeginning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ls := newLogs(t, dir, Options{SegmentBytes: disk.Block})
	l := newApp(t, ls)
	f := capture(t, l, Out)
	tail := follow(t, l, Capture{})
	put(t, f, strings.Repeat("x", disk.Block)+"\n")
	take(t, l.Cursor(0), 1)
	put(t, f, "second segment\n")
	take(t, l.Cursor(2), 1)
	tail.Close()
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
	var whole [2][]byte
	for i := range whole {
		var err error
		if whole[i], err = os.ReadFile(filepath.Join(l.dir, segmentName(uint64(i+1)))); err != nil {
			t.Fatal(err)
		}
	}
	ls = newLogs(t, dir, Options{SegmentBytes: disk.Block})
	for cut := range whole[1] {
		l := tornApp(t, ls, fmt.Sprint("torn-", cut), map[uint64][]byte{1: whole[0], 2: whole[1][:cut]})
		if l.LastSeq() != 1 {
			t.Fatalf("cut at %d: %d lines", cut, l.LastSeq())
		}
		if cut%10 != 0 {
			continue // the same from here on
		}
		follow(t, l, Capture{Late: true})
		if e := take(t, l.Cursor(2), 1)[0]; string(e.Text) != "second segment" {
			t.Fatalf("cut at %d: %q", cut, e.Text)
		}
		verify(t, l)
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ls := newLogs(t, dir, Options{})
	l := newApp(t, ls)
	if err := l.Append(line("a")); err != nil {
		t.Fatal(err)
	}
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(l.dir, segmentName(1))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[8] = segmentFormat + 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newLogs(t, dir, Options{}).App("app-1"); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("err = %v, want ErrNewerFormat", err)
	}
}

// After a reboot of the machine, the log records once that lines could be missing.
func TestRebootLeavesAGap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ls := newLogs(t, dir, Options{})
	ls.boot = "another"
	l := newApp(t, ls)
	f := capture(t, l, Out)
	follow(t, l, Capture{})
	put(t, f, "a\n")
	take(t, l.Cursor(0), 1)
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ls := newLogs(t, dir, Options{})
		l := newApp(t, ls)
		if es := take(t, l.Cursor(2), 1); es[0].Flags != Gap || l.LastSeq() != 2 {
			t.Errorf("%d lines, the second is %v", l.LastSeq(), es[0])
		}
		verify(t, l)
		if err := ls.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Bytes that were punched out and are no longer in any segment are counted, not read as
// zeros.
func TestLostBytesBecomeAGap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ls := newLogs(t, dir, Options{})
	l := newApp(t, ls)
	f := capture(t, l, Out)
	put(t, f, strings.Repeat("x", 2*disk.Block-1)+"\nkept\n")
	rw, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(disk.Real().Punch(rw, 0, 2*disk.Block), rw.Close()); err != nil {
		t.Fatal(err)
	}
	follow(t, l, Capture{})
	es := take(t, l.Cursor(0), 2)
	if es[0].Flags != Gap || es[0].To != 2*disk.Block || string(es[1].Text) != "kept" {
		t.Errorf("got %v", es)
	}
	verify(t, l)
}

func TestVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ls := newLogs(t, dir, Options{SegmentBytes: disk.Block})
	l := newApp(t, ls)
	for i := range 20 {
		if err := l.Append(line(fmt.Sprint(i, strings.Repeat("x", 1000)))); err != nil {
			t.Fatal(err)
		}
	}
	verify(t, l)
	path := filepath.Join(l.dir, segmentName(1))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("verify = %v, want the damage", err)
	}
	// A reader continues after the damage and gets a record of the missing lines.
	es := take(t, l.Cursor(0), 20)
	gap := -1
	for i, e := range es {
		if e.Flags&Gap != 0 {
			gap = i
		}
		if e.Seq != uint64(i+1) {
			t.Errorf("line %d has number %d", i, e.Seq)
		}
	}
	if gap < 0 || !strings.HasPrefix(string(es[gap].Text), "1 line is missing") {
		t.Errorf("no gap in %v", texts(es))
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	ls := newLogs(t, t.TempDir(), Options{})
	l := newApp(t, ls)
	capture(t, l, Out)
	waiting := make(chan error)
	cur := l.Cursor(0)
	go func() {
		_, err := cur.Next(t.Context())
		waiting <- err
	}()
	if err := ls.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, ErrClosed) {
		t.Errorf("a waiting reader got %v", err)
	}
	if err := l.Append(line("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("Append: %v", err)
	}
	if _, err := ls.App("b"); !errors.Is(err, ErrClosed) {
		t.Errorf("App: %v", err)
	}
	if _, err := l.Tail(Capture{Source: web("i-1"), Exec: "main", Stream: Out}); !errors.Is(err, ErrClosed) {
		t.Errorf("Tail: %v", err)
	}
	if err := ls.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// A reader that is slower than the retention gets the number of lines it missed, and
// the log itself records how many were dropped.
func TestTrimmed(t *testing.T) {
	t.Parallel()
	ls, err := prepare(t.TempDir(), Options{SegmentBytes: disk.Block, Retention: 4 * disk.Block}, quickDisk())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ls.Close() })
	l := newApp(t, ls)
	if err := l.Append(line("first")); err != nil {
		t.Fatal(err)
	}
	slow := l.Cursor(0)
	take(t, slow, 1)
	for i := range 100 {
		if err := l.Append(line(fmt.Sprint(i, strings.Repeat("x", 1000)))); err != nil {
			t.Fatal(err)
		}
	}
	ls.retain()
	if _, err := slow.Next(t.Context()); !errors.Is(err, ErrTrimmed) {
		t.Fatalf("slow reader got %v, want ErrTrimmed", err)
	}
	slow, missed := slow.Skip()
	oldest := uint64(2 + missed)
	if es := take(t, slow, 1); missed < 50 || es[0].Seq != oldest {
		t.Errorf("after Skip: %d missed, then line %d", missed, es[0].Seq)
	}
	if _, none := slow.Skip(); none != 0 {
		t.Errorf("a second Skip missed %d", none)
	}
	if got := take(t, l.Cursor(1), 1)[0].Seq; got != oldest {
		t.Errorf("the beginning is line %d, want %d", got, oldest)
	}
	gap := take(t, l.Cursor(l.LastSeq()), 1)[0]
	if want := fmt.Sprint(oldest-1, " lines are missing: dropped"); gap.Flags != Gap || !strings.HasPrefix(string(gap.Text), want) {
		t.Errorf("the log says %v, want %s", gap, want)
	}
	if r := verify(t, l); r.Bytes > 6*disk.Block || r.First != oldest {
		t.Errorf("verify = %+v", r)
	}
}

func TestOverdue(t *testing.T) {
	t.Parallel()
	segments := []segment{{first: 1, size: 10}, {first: 5, size: 20}, {first: 9, size: 30}}
	for limit, want := range map[int64]int{100: 0, 60: 0, 59: 1, 50: 1, 49: 2, 30: 2, 29: 3, 0: 3} {
		if got := overdue(segments, limit); got != want {
			t.Errorf("limit %d: %d, want %d", limit, got, want)
		}
	}
}

// A report lists the gap records of lines that should be there, but not those of lines
// that were dropped as configured.
func TestVerifyNamesLosses(t *testing.T) {
	l := newApp(t, newLogs(t, t.TempDir(), Options{}))
	for _, cause := range []string{LostRetention, LostRate, LostDamage, LostPower, LostUnread} {
		if err := l.Gap(Source{Type: sourceCell}, cause, 3); err != nil {
			t.Fatal(err)
		}
	}
	r, err := l.Verify(t.Context())
	if err != nil || r.Gaps != 5 || r.Lost != 15 {
		t.Fatalf("report = %+v, %v", r, err)
	}
	if len(r.Missing) != 3 || r.Missing[0] != "line 3 records a loss: 3 lines are missing: damaged" {
		t.Errorf("missing = %q, want the last three", r.Missing)
	}
}
