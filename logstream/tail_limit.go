package logstream

import (
	"fmt"
	"sync"
	"time"
)

const (
	limitWindow = time.Second
	maxOver     = 16 << 20 // bytes of one dropped range before its record is written early, so that they can be freed
)

// Limit is how many bytes an instance can print per second. All its processes share
// one. Output over the limit is dropped until the second has passed: it is counted and
// recorded, but never stored.
type Limit struct {
	rate int64

	mu       sync.Mutex // guards the fields below
	since    int64      // when the current second started
	left     int64      // remaining bytes of the second
	exceeded bool       // a line exceeded the limit in this second
}

// NewLimit returns a limit. With 0 bytes per second no line is stored.
func NewLimit(bytesPerSecond int64) *Limit { return &Limit{rate: max(bytesPerSecond, 0)} }

// admit reports whether a line of n bytes can be stored. Once a line is too long for
// the remaining bytes, no other is admitted before the next second. So the dropped
// lines are one range, not many.
func (l *Limit) admit(at int64, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at >= l.since+int64(limitWindow) || at < l.since {
		l.since, l.left, l.exceeded = at, l.rate, false
	}
	if l.exceeded || l.rate == 0 || int64(n) > l.left {
		l.exceeded = true
		return false
	}
	l.left -= int64(n)
	return true
}

// over is a dropped range of a capture file that has no record yet.
type over struct {
	from, to int64
	lines    int64
	since    time.Time
}

// admit checks a line against the limit. Lines that were printed while no daemon ran
// are checked with their print time, not the time of reading.
func (t *Tail) admit(e *Envelope, now int64) bool {
	if e.Flags&Late != 0 {
		return t.lateLimit.admit(e.Time.UnixNano(), len(e.Text))
	}
	return t.c.Limit.admit(now, len(e.Text))
}

// applyLimit removes the lines over the limit from a batch and puts a gap record in their
// place. If all is set, the record of the last range is written at once. Otherwise it
// waits until its second has passed.
func (t *Tail) applyLimit(w *workspace, es []Envelope, all bool) []Envelope {
	if t.c.Limit == nil {
		return es
	}
	now := time.Now()
	out := w.kept[:0]
	for i := range es {
		e := &es[i]
		if !t.admit(e, now.UnixNano()) {
			t.drop(e, now)
			continue
		}
		if t.over.lines > 0 {
			out = append(out, t.overRecord())
		}
		out = append(out, *e)
	}
	if o := t.over; o.lines > 0 && (all || o.to-o.from >= maxOver || now.Sub(o.since) >= limitWindow) {
		out = append(out, t.overRecord())
	}
	w.kept = out
	return out
}

func (t *Tail) drop(e *Envelope, now time.Time) {
	if t.over.lines == 0 {
		t.over = over{from: e.From, since: now}
	}
	t.over.lines++
	t.over.to = e.To
	t.passed.Store(e.To)
}

// overRecord is the record of the dropped range. It covers the range's bytes.
func (t *Tail) overRecord() Envelope {
	o := t.over
	t.over = over{}
	lost := Loss{Lines: o.lines, Bytes: o.to - o.from, Cause: LostRate}
	lines := fmt.Sprintf("%d lines", lost.Lines)
	if lost.Lines == 1 {
		lines = "1 line"
	}
	src := Source{Type: sourceCell, Index: t.c.Source.Index, InstanceID: t.c.Source.InstanceID}
	e := gapLine(src, lost, fmt.Sprintf("app instance exceeded log rate limit (%d bytes/sec): %s of %s (%d bytes) dropped", t.c.Limit.rate, lines, t.c.Source.Type, lost.Bytes))
	e.Stream, e.Exec, e.From, e.To = t.c.Stream, t.c.Exec, o.from, o.to
	return e
}

// position is the offset up to which the file is read: the bytes in the log and the
// dropped bytes after them.
func (t *Tail) position() int64 { return max(t.log.offset(t.key), t.passed.Load()) }

// recordOver writes the record of the dropped range to the log when its second has
// passed, or at once if safe is set.
func (t *Tail) recordOver(w *workspace, safe bool) error {
	if t.over.lines == 0 {
		return nil
	}
	o := t.over
	es := t.applyLimit(w, nil, safe)
	if len(es) == 0 {
		return nil
	}
	if err := t.append(es, safe); err != nil {
		t.over = o
		return err
	}
	return nil
}
