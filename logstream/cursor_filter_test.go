package logstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func number(n int) *int { return &n }

func TestFilter(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	line := func(source string, index int) Envelope {
		return Envelope{Seq: 7, Time: at, Source: Source{Type: source, Index: index, InstanceID: "i"}, Stream: Out, Text: []byte("GET /a\xff 200")}
	}
	web, agent, worker := line("APP/PROC/WEB", 1), line("APP/PROC/WEB/SIDECAR/THE/AGENT", 1), line("APP/PROC/WORKER", 0)
	cell := line("CELL", 1)
	gap := gapLine(Source{Type: sourceCell}, Loss{Lines: 3, Cause: LostRetention}, "gone")
	gap.Seq, gap.Time = 7, at
	over := gap
	over.Source.InstanceID = "i"
	for _, tt := range []struct {
		name string
		f    Filter
		e    Envelope
		want bool
	}{
		{"zero", Filter{}, web, true},
		{"process", Filter{Process: "web"}, web, true},
		{"sidecar of the process", Filter{Process: "Web"}, agent, true},
		{"another process", Filter{Process: "web"}, worker, false},
		{"no part of a type", Filter{Process: "we"}, web, false},
		{"the platform is no process", Filter{Process: "web"}, cell, false},
		{"sidecar", Filter{Sidecar: "the/agent"}, agent, true},
		{"not that sidecar", Filter{Sidecar: "agent"}, agent, false},
		{"main is no sidecar", Filter{Sidecar: "agent"}, web, false},
		{"sidecar of that process", Filter{Process: "worker", Sidecar: "the/agent"}, agent, false},
		{"no sidecars", Filter{NoSidecars: true}, agent, false},
		{"main stays", Filter{NoSidecars: true}, web, true},
		{"the platform stays", Filter{NoSidecars: true}, cell, true},
		{"no platform", Filter{NoPlatform: true}, cell, false},
		{"a process is no platform", Filter{NoPlatform: true}, web, true},
		{"a task is no platform", Filter{NoPlatform: true}, line("APP/TASK/x", 0), true},
		{"tail", Filter{Tails: &map[string]uint64{"APP/PROC/WEB": 7}}, web, true},
		{"before the tail", Filter{Tails: &map[string]uint64{"APP/PROC/WEB": 8}}, web, false},
		{"no tail", Filter{Tails: &map[string]uint64{"APP/PROC/WEB": 7}}, agent, false},
		{"source", Filter{Source: "CELL"}, cell, true},
		{"another source", Filter{Source: "API"}, cell, false},
		{"instance", Filter{Instance: number(1)}, web, true},
		{"another instance", Filter{Instance: number(0)}, web, false},
		{"stream", Filter{Stream: Out}, web, true},
		{"another stream", Filter{Stream: Err}, web, false},
		{"text", Filter{Contains: "a\xff 2"}, web, true},
		{"another text", Filter{Contains: "get"}, web, false},
		{"since is inside", Filter{Since: at}, web, true},
		{"before", Filter{Since: at.Add(1)}, web, false},
		{"until is outside", Filter{Until: at}, web, false},
		{"in time", Filter{Until: at.Add(1)}, web, true},
		{"numbers", Filter{First: 7, Last: 7}, web, true},
		{"too early", Filter{First: 8}, web, false},
		{"too late", Filter{Last: 6}, web, false},
		{"a gap concerns everybody", Filter{Process: "web", Contains: "x", Stream: Out, Instance: number(5)}, gap, true},
		{"but not at another time", Filter{Since: at.Add(1)}, gap, false},
		{"a gap of an instance concerns that", Filter{Instance: number(5)}, over, false},
		{"a gap of the instance", Filter{InstanceID: "i"}, over, true},
		{"a gap of another instance", Filter{InstanceID: "j"}, over, false},
		{"unless nobody wants to know", Filter{NoGaps: true}, gap, false},
	} {
		if got := tt.f.Matches(tt.e); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// manyLines fills a log of many segments with lines of several sources.
func manyLines(t testing.TB, o Options, batches int) *Log {
	t.Helper()
	l := newApp(t, newLogs(t, t.TempDir(), o))
	rnd := rand.New(rand.NewPCG(3, 4))
	at := time.Unix(1_700_000_000, 0)
	for i := range batches {
		es := make([]Envelope, 1+rnd.IntN(40))
		for j := range es {
			at = at.Add(time.Duration(1+rnd.IntN(1000)) * time.Microsecond)
			src := []string{"APP/PROC/WEB", "APP/PROC/WEB/SIDECAR/AGENT", "CELL"}[rnd.IntN(3)]
			es[j] = Envelope{Time: at, Source: Source{Type: src, Index: rnd.IntN(2), InstanceID: "i"}, Stream: Out + Stream(rnd.IntN(2)), Text: fmt.Appendf(nil, "%d.%d %0*d", i, j, rnd.IntN(300), 0)}
		}
		if err := l.Append(es...); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// all reads all lines that a cursor returns now.
func all(t testing.TB, c *Cursor) []Envelope {
	t.Helper()
	var out []Envelope
	if rand.IntN(2) == 0 {
		c = c.Brief() // a brief cursor must return the same lines while they are valid
	}
	for {
		es, err := c.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, keep(es)...)
	}
}

func seqs(es []Envelope) []uint64 {
	out := make([]uint64, len(es))
	for i := range es {
		out[i] = es[i].Seq
	}
	return out
}

// randomFilter returns a filter that selects some of the lines.
func randomFilter(rnd *rand.Rand, lines []Envelope) Filter {
	var f Filter
	pick := func() Envelope { return lines[rnd.IntN(len(lines))] }
	if rnd.IntN(2) == 0 {
		f.Process = "web"
	}
	if rnd.IntN(3) == 0 {
		f.NoSidecars = true
	} else if rnd.IntN(3) == 0 {
		f.Sidecar = "agent"
	}
	if rnd.IntN(2) == 0 {
		f.Instance = number(rnd.IntN(2))
	}
	f.Stream = Stream(rnd.IntN(3))
	if rnd.IntN(3) == 0 {
		f.Contains = fmt.Sprint(rnd.IntN(10), ".")
	}
	if rnd.IntN(2) == 0 {
		f.Since = pick().Time.Add(time.Duration(rnd.IntN(3) - 1))
	}
	if rnd.IntN(2) == 0 {
		f.Until = pick().Time.Add(time.Duration(rnd.IntN(3) - 1))
	}
	if rnd.IntN(4) == 0 {
		f.First = pick().Seq
	}
	if rnd.IntN(4) == 0 {
		f.Last = pick().Seq
	}
	return f
}

// For any filter, a reader gets the same lines as a check of every line would give.
func TestSelect(t *testing.T) {
	t.Parallel()
	l := manyLines(t, Options{SegmentBytes: 32 << 10}, 300)
	lines := all(t, l.Cursor(1).UpTo(l.LastSeq()))
	if len(l.segments) < 10 {
		t.Fatalf("only %d segments", len(l.segments))
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		f := randomFilter(rnd, lines)
		var want []uint64
		for _, e := range lines {
			if f.Matches(e) {
				want = append(want, e.Seq)
			}
		}
		if found, err := l.Contains(t.Context(), f); err != nil || found != (len(want) > 0) {
			t.Fatalf("Contains(%+v) = %v, %v, want %d lines", f, found, err, len(want))
		}
		from := uint64(rnd.IntN(len(lines)))
		c, err := l.Select(from, f)
		if err != nil {
			t.Fatal(err)
		}
		behind := want[len(want)-len(slices.DeleteFunc(slices.Clone(want), func(n uint64) bool { return n < from })):]
		if got := seqs(all(t, c.UpTo(l.LastSeq()))); !slices.Equal(got, behind) {
			t.Fatalf("%+v from %d: got %d lines, want %d", f, from, len(got), len(behind))
		}
		n := rnd.IntN(60)
		if c, err = l.SelectNewest(t.Context(), n, f); err != nil {
			t.Fatal(err)
		}
		newest := want[len(want)-min(n, len(want)):]
		if got := seqs(all(t, c.UpTo(l.LastSeq()))); !slices.Equal(got, newest) {
			t.Fatalf("%+v newest %d: got %v, want %v", f, n, got, newest)
		}
	}
}

// A time is found in a log of many segments, even in one that an earlier daemon wrote.
// The search reads no more than one piece of one segment.
func TestAt(t *testing.T) {
	t.Parallel()
	for _, reopened := range []bool{false, true} {
		l := manyLines(t, Options{SegmentBytes: 512 << 10}, 500)
		lines := all(t, l.Cursor(1).UpTo(l.LastSeq()))
		if reopened {
			if err := l.logs.Close(); err != nil {
				t.Fatal(err)
			}
			l = newApp(t, newLogs(t, l.logs.dir, Options{SegmentBytes: 512 << 10}))
		}
		if len(l.segments) < 3 {
			t.Fatalf("only %d segments", len(l.segments))
		}
		rnd := rand.New(rand.NewPCG(5, 6))
		for range 8 {
			i := rnd.IntN(len(lines))
			for off, want := range map[time.Duration]uint64{0: lines[i].Seq, -1: lines[i].Seq, 1: lines[i].Seq + 1} {
				if got, err := l.At(lines[i].Time.Add(off)); err != nil || got != want {
					t.Fatalf("At(line %d %+d) = %d, %v, want %d", lines[i].Seq, off, got, err, want)
				}
			}
		}
		for at, want := range map[time.Time]uint64{{}: 1, lines[0].Time.Add(-time.Hour): 1, time.Now().Add(time.Hour): l.LastSeq() + 1} {
			if got, err := l.At(at); err != nil || got != want {
				t.Errorf("At(%v) = %d, %v, want %d", at, got, err, want)
			}
		}
		s := l.segments[1]
		m, _, ok := l.seek(s, func(m mark) bool { return m.next <= s.first+uint64(len(lines)/5) })
		if !ok || m.pos < markEvery {
			t.Errorf("the index of segment %d leads to byte %d, %v", s.first, m.pos, ok)
		}
		if len(l.indexes) > maxIndexes {
			t.Errorf("%d indexes are kept", len(l.indexes))
		}
	}
}

// A cursor that was found by time shares no memory with other readers.
func TestSinceSharesNothing(t *testing.T) {
	t.Parallel()
	l := manyLines(t, Options{SegmentBytes: 512 << 10}, 300)
	lines := all(t, l.Cursor(1).UpTo(l.LastSeq()))
	for i := 1; i < len(lines); i += 211 {
		c, err := l.since(lines[i].Time)
		if err != nil {
			t.Fatal(err)
		}
		other := pieces.Get().(*piece)
		for n := range other.buf {
			other.buf[n] = 0xff
		}
		got := all(t, c.UpTo(lines[i].Seq+10))
		if len(got) == 0 || got[0].Seq != lines[i].Seq || string(got[0].Text) != string(lines[i].Text) {
			t.Fatalf("from line %d: %d lines", lines[i].Seq, len(got))
		}
		pieces.Put(other)
	}
}

// Reading can start at any line, through the index.
func TestCursorBeginsAnywhere(t *testing.T) {
	t.Parallel()
	l := manyLines(t, Options{SegmentBytes: 1 << 20}, 400)
	lines := all(t, l.Cursor(1).UpTo(l.LastSeq()))
	if err := l.logs.Close(); err != nil {
		t.Fatal(err)
	}
	l = newApp(t, newLogs(t, l.logs.dir, Options{SegmentBytes: 1 << 20}))
	for i := 0; i < len(lines); i += 97 {
		got := all(t, l.Cursor(lines[i].Seq).UpTo(lines[i].Seq))
		if len(got) != 1 || string(got[0].Text) != string(lines[i].Text) || got[0].Source != lines[i].Source || !got[0].Time.Equal(lines[i].Time) {
			t.Fatalf("line %d = %v, want %v", i, got, lines[i])
		}
	}
}

// A reader with an upper bound reaches it, even in an empty log. A reader that follows
// waits.
func TestCursorEnds(t *testing.T) {
	t.Parallel()
	l := newApp(t, newLogs(t, t.TempDir(), Options{}))
	if es := all(t, l.Cursor(0).UpTo(l.LastSeq())); len(es) != 0 {
		t.Errorf("an empty log has %v", es)
	}
	if err := l.Append(line("a"), line("b"), line("c")); err != nil {
		t.Fatal(err)
	}
	if got := seqs(all(t, l.Cursor(2).UpTo(2))); !slices.Equal(got, []uint64{2}) {
		t.Errorf("got %v", got)
	}
	if got := seqs(all(t, l.Cursor(0).Only(Filter{Last: 2}))); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("got %v: a filter with an end ends", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if es, err := l.Cursor(0).Only(Filter{Contains: "z"}).Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, %v, want it to wait", es, err)
	}
}

// A reader whose last wanted line is the newest line does not wait for another line
// before it finishes.
func TestOnlyEndsAtLast(t *testing.T) {
	t.Parallel()
	l := newApp(t, newLogs(t, t.TempDir(), Options{}))
	if err := l.Append(line("one"), line("two")); err != nil {
		t.Fatal(err)
	}
	c := l.Cursor(1).Only(Filter{Last: 2})
	if es, err := c.Next(t.Context()); err != nil || len(es) != 2 {
		t.Fatalf("%d lines, %v", len(es), err)
	}
	if _, err := c.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("then %v, want EOF", err)
	}
}
