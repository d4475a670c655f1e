package logstream

import (
	"fmt"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// A cursor from any line reads the lines after it, each once and in order, however the
// writes and reads alternate. Its own number only grows.
func TestCursorsAreMonotone(t *testing.T) {
	r := testkit.Random(t)
	for range 20 {
		l := newApp(t, newLogs(t, t.TempDir(), Options{SegmentBytes: 16 << 10}))
		from := uint64(1 + r.IntN(50))
		c := l.Cursor(from)
		if r.IntN(2) == 0 {
			c.Brief()
		}
		written, next := 0, max(from, 1)
		for range 40 {
			for range 1 + r.IntN(40) {
				written++
				if err := l.Append(line(fmt.Sprintf("%d %0*d", written, r.IntN(100), 0))); err != nil {
					t.Fatal(err)
				}
			}
			for r.IntN(3) > 0 && next <= uint64(written) {
				before, read := c.At(), c.Next
				if r.IntN(2) == 0 {
					read = c.Stored
				}
				es, err := read(t.Context())
				if err != nil || len(es) == 0 {
					t.Fatal(len(es), err)
				}
				for _, e := range es {
					var n uint64
					if _, err := fmt.Sscan(string(e.Text), &n); err != nil || e.Seq != next || n != next {
						t.Fatalf("line %d is %v: %v", next, e, err)
					}
					next++
				}
				if c.At() < before || c.At() < next {
					t.Fatalf("the cursor went from %d to %d after line %d", before, c.At(), next-1)
				}
				if r.IntN(2) == 0 {
					c.Release()
				}
			}
			if next <= uint64(written) {
				continue
			}
			if es, err := c.Stored(t.Context()); err != nil || len(es) > 0 {
				t.Fatalf("after the last line: %d lines, %v", len(es), err)
			}
		}
	}
}
