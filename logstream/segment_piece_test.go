package logstream

import (
	"bytes"
	"fmt"
	"testing"
)

// A cursor returns every line of a batch that is longer than its memory, in pieces. It
// holds no memory once it is released.
func TestCursorReadsLongBatches(t *testing.T) {
	l := newApp(t, newLogs(t, t.TempDir(), Options{}))
	var es []Envelope
	for i := range 3000 {
		text := fmt.Appendf(nil, "%d ", i)
		if i%500 == 7 {
			text = append(text, bytes.Repeat([]byte{'x'}, MaxLine-len(text))...)
		}
		es = append(es, Envelope{Source: web(fmt.Sprint("i-", i%40)), Stream: Out, Text: text})
	}
	if err := l.Append(es...); err != nil {
		t.Fatal(err)
	}
	c := l.Cursor(1).Brief()
	for n := 0; n < len(es); {
		got, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(got) > maxNext || cap(c.piece.buf) > keptPiece {
			t.Fatalf("%d lines with a buffer of %d bytes at once", len(got), cap(c.piece.buf))
		}
		for _, e := range got {
			if !bytes.Equal(e.Text, es[n].Text) || e.Source != es[n].Source || e.Seq != uint64(n+1) {
				t.Fatalf("line %d = %.40q of %v", n+1, e.Text, e.Source)
			}
			n++
		}
		if c.Behind() != (n < len(es)) {
			t.Fatalf("behind = %v after %d lines", c.Behind(), n)
		}
		c.Release()
		if c.piece != nil {
			t.Fatal("a released cursor holds memory")
		}
	}
}
