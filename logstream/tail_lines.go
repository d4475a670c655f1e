package logstream

import (
	"bytes"
	"time"
)

// ending says whether more bytes can follow.
type ending uint8

const (
	growing ending = iota // more can follow, so an unfinished line waits
	ended                 // nothing follows, so an unfinished line is the last
)

// cutLines appends the lines in b to es until b or the batch is used up. like has the
// source and, in From, the offset of b in its capture file. A line longer than MaxLine
// is cut only when it is certain that it continues.
func cutLines(es []Envelope, like Envelope, b []byte, how ending) []Envelope {
	for len(b) > 0 && len(es) < batchLines {
		e := like
		n := bytes.IndexByte(b[:min(len(b), MaxLine+1)], '\n')
		used := n + 1
		switch {
		case n >= 0:
		case len(b) > MaxLine:
			n, used, e.Flags = MaxLine, MaxLine, Cut
		case how == ended:
			n, used, e.Flags = len(b), len(b), Partial
		default:
			return es
		}
		e.Text = b[:n:n]
		e.To = e.From + int64(used)
		es = append(es, e)
		b, like.From = b[used:], e.To
	}
	return es
}

// span is the part of a capture file that was printed while no daemon read it.
type span struct {
	from, to   int64 // bytes
	start, end int64 // Unix nanoseconds
}

// newSpan spreads the bytes evenly between the time of the last line before them and
// the file's last change. Without a line before them, it uses only the latter.
func newSpan(from, to, last, changed int64) span {
	if last == 0 || last > changed {
		last = changed
	}
	return span{from: from, to: to, start: last, end: changed}
}

// at estimates when the byte before to was printed.
func (s span) at(to int64) time.Time {
	part := float64(to-s.from) / float64(s.to-s.from)
	return time.Unix(0, s.start+int64(part*float64(s.end-s.start)))
}

// mark flags the lines that lie in the span and estimates their times. A line that was
// completed later gets the time of its completion.
func (s span) mark(es []Envelope) {
	for i := range es {
		if es[i].To > s.to {
			return
		}
		es[i].Flags |= Late
		es[i].Time = s.at(es[i].To)
	}
}
