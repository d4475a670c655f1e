package logstream

import (
	"fmt"
	"sync"
	"time"
)

const (
	limitWindow = time.Second
	maxOver     = 16 << 20 // bytes of one dropped range; then it is told early, so that they can be given back
)

// Limit is how many bytes an instance may print per second. All its processes
// share one. What is over is dropped until the second is over: counted, told,
// and never stored.
type Limit struct {
	rate int64

	mu    sync.Mutex // guards what follows
	since int64      // when the running second began
	left  int64      // bytes of it
	shut  bool       // something was too much for it
}

// NewLimit makes a limit; with 0 bytes nothing is stored.
func NewLimit(bytesPerSecond int64) *Limit { return &Limit{rate: max(bytesPerSecond, 0)} }

// admit tells whether a line of n bytes may be stored. Once one is too long for
// what is left, no other is taken before the next second: so what is missing is
// one piece and not many.
func (l *Limit) admit(at int64, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at >= l.since+int64(limitWindow) || at < l.since {
		l.since, l.left, l.shut = at, l.rate, false
	}
	if l.shut || l.rate == 0 || int64(n) > l.left {
		l.shut = true
		return false
	}
	l.left -= int64(n)
	return true
}

// over is a piece of a capture file that was dropped and is not told yet.
type over struct {
	from, to int64
	lines    int64
	since    time.Time
}

// admit asks the limit for a line. What was printed while no daemon was there is
// judged by when it was printed, not by when it is read.
func (t *Tail) admit(e *Envelope, now int64) bool {
	if e.Flags&Late != 0 {
		return t.lateLimit.admit(e.Time.UnixNano(), len(e.Text))
	}
	return t.c.Limit.admit(now, len(e.Text))
}

// judge takes out of a batch what is over the limit, and puts the record of it in
// its place. With all set what was dropped last is told too, else it waits for
// its second to be over.
func (t *Tail) judge(w *workspace, es []Envelope, all bool) []Envelope {
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
			out = append(out, t.overLine())
		}
		out = append(out, *e)
	}
	if o := t.over; o.lines > 0 && (all || o.to-o.from >= maxOver || now.Sub(o.since) >= limitWindow) {
		out = append(out, t.overLine())
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

// overLine is the record of what was dropped; it covers its bytes.
func (t *Tail) overLine() Envelope {
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

// position is up to where the file is read: what is in the log, and what was
// dropped behind it.
func (t *Tail) position() int64 { return max(t.log.offset(t.key), t.passed.Load()) }

// tellOver puts what was dropped into the log when its second is over; at once
// if it is to be given back.
func (t *Tail) tellOver(w *workspace, safe bool) error {
	if t.over.lines == 0 {
		return nil
	}
	o := t.over
	es := t.judge(w, nil, safe)
	if len(es) == 0 {
		return nil
	}
	if err := t.append(es, safe); err != nil {
		t.over = o
		return err
	}
	return nil
}
