package logstream

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The newest lines of sources are found by the numbers in the marks, also in a log of an
// earlier daemon, with gap records, and after a failed write. The lines that are found are
// those that a check of every line finds.
func TestNewestByMarks(t *testing.T) {
	t.Parallel()
	o := Options{SegmentBytes: 512 << 10}
	for name, change := range map[string]func(t *testing.T, l *Log) *Log{
		"written": func(_ *testing.T, l *Log) *Log { return l },
		"reopened": func(t *testing.T, l *Log) *Log {
			if err := l.logs.Close(); err != nil {
				t.Fatal(err)
			}
			l = newApp(t, newLogs(t, l.logs.dir, o))
			if err := l.Append(Envelope{Source: Source{Type: "CELL"}, Stream: Out, Text: []byte("later")}); err != nil {
				t.Fatal(err)
			}
			return l
		},
		"with a gap": func(t *testing.T, l *Log) *Log {
			if err := l.Gap(Source{Type: "CELL"}, LostRetention, 3); err != nil {
				t.Fatal(err)
			}
			for i := range 100 { // several marks
				if err := l.Append(bulk(i, 20)...); err != nil {
					t.Fatal(err)
				}
			}
			return l
		},
		"failed write": func(t *testing.T, l *Log) *Log {
			write := l.logs.disk.Write
			l.logs.disk.Write = func(*os.File, []byte, int64) (int, error) { return 0, unix.EIO }
			lines := slices.Repeat([]Envelope{{Source: Source{Type: "APP/PROC/WEB", InstanceID: "i"}, Stream: Out, Text: []byte("again")}}, 1000)
			if err := l.Append(lines...); err == nil {
				t.Fatal("a failed write is no error")
			}
			l.logs.disk.Write = write
			for range 10 {
				if err := l.Append(slices.Clone(lines)...); err != nil {
					t.Fatal(err)
				}
			}
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := change(t, manyLines(t, o, 500))
			if len(l.segments) < 3 {
				t.Fatalf("only %d segments", len(l.segments))
			}
			lines := all(t, l.Cursor(1).UpTo(l.LastSeq()))
			rnd := rand.New(rand.NewPCG(7, 8))
			for range 20 {
				f := randomFilter(rnd, lines)
				f.Contains, f.NoGaps = "", rnd.IntN(2) == 0
				var want []uint64
				for _, e := range lines {
					if f.Matches(e) {
						want = append(want, e.Seq)
					}
				}
				n := rnd.IntN(len(lines))
				c, err := l.SelectNewest(t.Context(), n, f)
				if err != nil {
					t.Fatal(err)
				}
				newest := want[len(want)-min(n, len(want)):]
				if got := seqs(all(t, c.UpTo(l.LastSeq()))); !slices.Equal(got, newest) {
					t.Fatalf("%+v newest %d: got %d lines, want %d", f, n, len(got), len(newest))
				}
			}
		})
	}
}

// A count of the lines of a source reads less than two marks are apart at each end.
func TestCountReadsLittle(t *testing.T) {
	t.Parallel()
	l := manyLines(t, Options{SegmentBytes: 512 << 10}, 500)
	for i := range l.segments[:2] {
		s := l.segments[i]
		p := partOf(l, s, Filter{NoSidecars: true}, span64{s.first, l.segments[i+1].first - 1})
		if len(p.marks) < 5 {
			t.Fatalf("segment %d has %d marks", i, len(p.marks))
		}
		first, last := p.marks[0].pos, p.marks[len(p.marks)-1].pos
		if first > markEvery || s.size-last > 2*markEvery {
			t.Errorf("the marks of segment %d are from %d to %d of %d bytes", i, first, last, s.size)
		}
		for n := 1; n < len(p.wanted); n++ {
			if p.wanted[n] <= p.wanted[n-1] {
				t.Errorf("mark %d of segment %d has %d lines before it, the one before has %d", n, i, p.wanted[n], p.wanted[n-1])
			}
		}
	}
	if p := partOf(l, l.segments[0], Filter{Contains: "1"}, span64{1, 100}); len(p.marks) > 0 {
		t.Error("a filter by text uses the marks")
	}
}
