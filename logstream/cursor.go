package logstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// maxNext is how many lines one Next gives at most.
const maxNext = 256

// ErrTrimmed says that the retention dropped lines that a Cursor had not read.
// Cursor.Skip goes on behind them.
var ErrTrimmed = errors.New("the log was trimmed beyond the reader's place")

// Cursor is a reader's place in a Log. It holds no file and no lock between
// calls, so it may be dropped at any time. One goroutine may use it.
type Cursor struct {
	log    *Log
	next   uint64 // sequence number of the next line
	last   time.Time
	oldest bool // next is not chosen yet: the oldest line there is

	reuse bool   // its lines are valid until the next call only
	piece *piece // their memory; nil between Release and Next
	more  bool   // the log had more than the last Next gave

	want matcher
	ends bool // upTo is the last line it gives
	upTo uint64
	over bool // it met the end of what it wants

	segment uint64 // first number of the segment that pos, batch and dec belong to
	pos     int64
	batch   batch
	dec     decoder
}

// Cursor gives a reader that begins at sequence number from; 0 and 1 mean the
// oldest line that is kept.
func (l *Log) Cursor(from uint64) *Cursor {
	return &Cursor{log: l, next: max(from, 1), oldest: from <= 1, want: matcher{all: true}}
}

// Brief makes the cursor reuse memory, and returns it: what Next gives is then
// valid until the next call of Next or Release only.
func (c *Cursor) Brief() *Cursor {
	c.reuse = true
	return c
}

// Release gives the memory of a brief cursor to other readers. Call it before
// waiting for a slow client; Next takes new memory.
func (c *Cursor) Release() {
	if c.piece == nil {
		return
	}
	if cap(c.piece.buf) <= keptPiece {
		pieces.Put(c.piece)
	}
	c.piece = nil
}

// Behind tells whether the log had more lines than the last Next gave.
func (c *Cursor) Behind() bool { return c.more }

// At is the number of the line that the cursor looks at next.
func (c *Cursor) At() uint64 { return c.next }

// Next gives the next lines that the cursor wants, in order. It blocks until
// there are some, ctx ends or the logs are closed; behind the end of what it
// wants it gives io.EOF. It never holds the writer: it reads the files. The
// texts of one call share their memory; copy one that is kept for long.
func (c *Cursor) Next(ctx context.Context) ([]Envelope, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if c.done() {
			return nil, io.EOF
		}
		v := c.log.view()
		es, err := c.read(v)
		c.more = c.next < v.next
		if err != nil || len(es) > 0 {
			return es, err
		}
		if c.more || c.done() {
			continue // it came to the end of a segment, or nobody wants what it read
		}
		if v.closed {
			return nil, ErrClosed
		}
		c.Release() // a reader at rest holds nothing
		select {
		case <-v.grown:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// done tells whether the cursor is behind all that it wants.
func (c *Cursor) done() bool {
	return c.over || c.ends && c.next > c.upTo || c.want.f.Last != 0 && c.next > c.want.f.Last
}

// Past tells whether the cursor wants no line that is printed now or later.
func (c *Cursor) Past(now time.Time) bool { return c.want.until != 0 && now.UnixNano() >= c.want.until }

// Skip gives a Cursor at the oldest line that is kept, and how many lines the
// retention dropped in front of it.
func (c *Cursor) Skip() (*Cursor, int64) {
	v := c.log.view()
	oldest := v.next
	if len(v.segments) > 0 {
		oldest = v.segments[0].first
	}
	if oldest <= c.next {
		return c, 0
	}
	skipped := int64(oldest - c.next)
	c.Release()
	return &Cursor{log: c.log, next: oldest, want: c.want, ends: c.ends, upTo: c.upTo, reuse: c.reuse}, skipped
}

// read gives lines of the segment that holds c.next, or none at its end.
func (c *Cursor) read(v view) ([]Envelope, error) {
	if len(v.segments) == 0 || c.next >= v.next {
		return nil, nil
	}
	if c.oldest {
		c.next, c.oldest = v.segments[0].first, false
	}
	i := v.find(c.next)
	if i < 0 {
		return nil, fmt.Errorf("cannot read line %d: %w", c.next, ErrTrimmed)
	}
	s := v.at(i)
	if c.segment != s.first {
		c.enterAt(s)
	}
	from := c.next
	es, err := c.readSegment(s)
	if len(es) > 0 || c.next > from {
		return es, nil // an error is met again by the next call
	}
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && c.log.view().find(s.first) < 0 {
		return nil, nil // trimmed since; the next view says so
	}
	if missing && c.log.view().closed {
		return nil, ErrClosed // removed with its app
	}
	if err != nil && !missing && !errors.Is(err, errTorn) {
		return nil, err
	}
	return c.leave(v, i, err)
}

// leave goes from the end of segment i to the next. Lines that should have been
// in it and are not become one gap record.
func (c *Cursor) leave(v view, i int, cause error) ([]Envelope, error) {
	last := i == len(v.segments)-1
	if last {
		return nil, fmt.Errorf("cannot read segment %s: %w", segmentName(v.segments[i].first), errors.Join(cause, io.ErrUnexpectedEOF))
	}
	follows := v.segments[i+1].first
	missing := follows - c.next
	c.next = follows
	if missing == 0 {
		return nil, nil
	}
	text := fmt.Sprintf("%s missing: segment %s is damaged", howMany(int64(missing)), segmentName(v.segments[i].first))
	gap := gapLine(Source{Type: sourceCell}, Loss{Lines: int64(missing), Cause: LostDamage}, text)
	gap.Seq, gap.Time = follows-1, c.last
	return []Envelope{gap}, nil
}

// enterAt goes to the place of s from which c.next is near.
func (c *Cursor) enterAt(s segment) {
	c.segment, c.pos, c.batch, c.dec = s.first, 0, batch{}, decoder{}
	if c.next == s.first {
		return
	}
	if m, old, ok := c.log.seek(s, func(m mark) bool { return m.next <= c.next }); ok {
		c.pos, c.dec = m.pos, m.decoder(old)
	}
}

// enter goes behind the header and the checkpoint.
func (c *Cursor) enter(r *segmentReader) error {
	if _, err := r.header(); err != nil {
		return err
	}
	if _, err := r.next(); err != nil {
		return err
	}
	c.pos, c.dec.old = r.pos, r.format == oldFormat
	return nil
}

// fresh leaves out the lines before c.next and those that nobody wants, and
// moves c.next behind them all.
func (c *Cursor) fresh(es []Envelope) []Envelope {
	for len(es) > 0 && es[0].Seq < c.next {
		es = es[1:]
	}
	if len(es) == 0 {
		return es
	}
	c.next, c.last = es[len(es)-1].Seq+1, es[len(es)-1].Time
	if c.ends && c.next > c.upTo {
		es = es[:len(es)-int(min(c.next-1-c.upTo, uint64(len(es))))]
	}
	if c.want.all || len(es) == 0 {
		return es
	}
	c.over = c.want.over(&es[len(es)-1])
	kept := es[:0]
	for i := range es {
		if c.want.wants(&es[i]) {
			kept = append(kept, es[i])
		}
	}
	return kept
}

// Newest gives the last n lines that are in the log now, or as many as are kept.
func (l *Log) Newest(ctx context.Context, n int) ([]Envelope, error) {
	return l.NewestOf(ctx, n, Filter{})
}

// NewestOf gives the last n lines that f wants of those that are in the log now, or as
// many as are kept.
func (l *Log) NewestOf(ctx context.Context, n int, f Filter) ([]Envelope, error) {
	last := l.LastSeq()
	if last == 0 || n <= 0 {
		return nil, nil
	}
	f.Last = last
	c, err := l.SelectNewest(ctx, n, f)
	if err != nil {
		return nil, err
	}
	var es []Envelope
	for c = c.UpTo(last); ; {
		batch, err := c.Next(ctx)
		switch {
		case errors.Is(err, ErrTrimmed):
			c, _ = c.Skip()
		case errors.Is(err, io.EOF):
			return es, nil
		case err != nil:
			return nil, err
		}
		es = append(es, batch...)
	}
}
