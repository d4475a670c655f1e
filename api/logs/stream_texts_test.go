package logs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/logstream"
)

// The texts records of random lines have all texts, a newline after each line that was not
// cut, and the number of the last line. A gap is a line record in its place.
func TestTextsOfLines(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		es, want := randomLines(r)
		records := v3.NewLineReader(bytes.NewReader(v3.AppendEnd(appendTexts(nil, es))))
		var got []byte
		last := uint64(0)
		for {
			l, err := records.Next()
			if err != nil {
				break
			}
			if l != nil {
				got = fmt.Appendf(got, "[gap %d]", l.Seq)
				last = l.Seq
			} else {
				got = append(got, records.Texts()...)
				last, _ = records.Place()
			}
		}
		if !bytes.Equal(got, want) || last != es[len(es)-1].Seq {
			t.Fatalf("%d lines up to %d are\n%.300q up to %d, want\n%.300q", len(es), es[len(es)-1].Seq, got, last, want)
		}
	}
}

// randomLines returns lines and what a client must get of them.
func randomLines(r *rand.Rand) (es []logstream.Envelope, want []byte) {
	seq := r.Uint64N(1 << 40)
	for range 1 + r.IntN(50) {
		seq += 1 + r.Uint64N(3)
		e := logstream.Envelope{Seq: seq, Stream: logstream.Out, Text: bytes.Repeat([]byte{byte(r.IntN(256))}, r.IntN(100))}
		switch r.IntN(10) {
		case 0:
			e.Flags = logstream.Gap
			want = fmt.Appendf(want, "[gap %d]", seq)
		case 1:
			e.Flags, e.Text = logstream.Cut, bytes.Repeat([]byte("x"), logstream.MaxLine)
			want = append(want, e.Text...)
		default:
			e.Flags = logstream.Flags(r.IntN(2)) * logstream.Partial
			want = append(append(want, e.Text...), '\n')
		}
		es = append(es, e)
	}
	return es, want
}
