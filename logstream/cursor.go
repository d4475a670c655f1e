package logstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// maxNext is the maximum number of lines that one Next returns.
const maxNext = 256

// ErrTrimmed says that the retention dropped lines that a Cursor had not read.
// Cursor.Skip continues after them.
var ErrTrimmed = errors.New("the next line was already dropped from the log")

// Cursor is a reader's position in a Log. It holds no file and no lock between calls,
// so it can be dropped at any time. Only one goroutine can use it at a time.
type Cursor struct {
	log    *Log
	next   uint64 // sequence number of the next line
	last   time.Time
	oldest bool // next is not chosen yet: start at the oldest line

	reuse bool   // returned lines are valid only until the next call
	piece *piece // memory of the returned lines, nil between Release and Next
	more  bool   // the log had more lines than the last Next returned

	want matcher
	ends bool // upTo is the last line to return
	upTo uint64
	over bool // it reached the last line that it wants

	segment uint64 // first number of the segment that pos, batch and dec belong to
	pos     int64
	batch   batch
	dec     decoder
}

// Cursor returns a reader that starts at sequence number from. Both 0 and 1 mean the
// oldest stored line.
func (l *Log) Cursor(from uint64) *Cursor {
	return &Cursor{log: l, next: max(from, 1), oldest: from <= 1, want: matcher{all: true}}
}

// Brief makes the cursor reuse memory, and returns the cursor. The lines that Next
// returns are then valid only until the next call of Next or Release.
func (c *Cursor) Brief() *Cursor {
	c.reuse = true
	return c
}

// Release returns the memory of a brief cursor to the pool for other readers. Call it
// before waiting for a slow client. The following Next takes new memory.
func (c *Cursor) Release() {
	if c.piece == nil {
		return
	}
	if cap(c.piece.buf) <= keptPiece {
		c.piece.have = nil
		pieces.Put(c.piece)
	}
	c.piece = nil
}

// Behind reports whether the log had more lines than the last Next returned.
func (c *Cursor) Behind() bool { return c.more }

// At is the number of the next line that the cursor reads.
func (c *Cursor) At() uint64 { return c.next }

// Next returns the next lines that the cursor wants, in order. It blocks until there
// are some, ctx is done, or the logs are closed. After the last wanted line it returns
// io.EOF. It never blocks the writer, because it reads the files. The texts of one call
// share their memory: copy a text that you keep for long.
func (c *Cursor) Next(ctx context.Context) ([]Envelope, error) {
	for {
		es, v, err := c.stored(ctx)
		if err != nil || len(es) > 0 {
			return es, err
		}
		if v.closed {
			return nil, ErrClosed
		}
		c.Release() // a waiting reader holds no memory
		select {
		case <-v.grown:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Stored is Next without waiting: it returns no lines if the cursor wants none of those
// that are in the log now. Next returns the same error again.
func (c *Cursor) Stored(ctx context.Context) ([]Envelope, error) {
	es, _, err := c.stored(ctx)
	return es, err
}

// stored returns the next lines in the log that the cursor wants. If there are none, it
// returns the view in which it reached the end.
func (c *Cursor) stored(ctx context.Context) ([]Envelope, view, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, view{}, err
		}
		if c.done() {
			return nil, view{}, io.EOF
		}
		v := c.log.view()
		es, err := c.read(v)
		c.more = c.next < v.next
		if err != nil || len(es) > 0 {
			return es, v, err
		}
		if !c.more && !c.done() {
			return nil, v, nil
		}
		// It reached the end of a segment, or the filter wants none of these lines.
	}
}

// done reports whether the cursor has passed the last line that it wants.
func (c *Cursor) done() bool {
	return c.over || c.ends && c.next > c.upTo || c.want.f.Last != 0 && c.next > c.want.f.Last
}

// Past reports whether the cursor wants no line that is printed at now or later.
func (c *Cursor) Past(now time.Time) bool { return c.want.until != 0 && now.UnixNano() >= c.want.until }

// Skip returns a Cursor at the oldest stored line, and how many lines the retention
// dropped before it.
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

// read returns lines of the segment that holds c.next, or none at the segment's end.
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
		c.seekInSegment(s)
	}
	from := c.next
	es, err := c.readSegment(s)
	if len(es) > 0 || c.next > from {
		return es, nil // the next call meets the same error again
	}
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && c.log.view().find(s.first) < 0 {
		return nil, nil // trimmed since; the next view reports it
	}
	if missing && c.log.view().closed {
		return nil, ErrClosed // removed with its app
	}
	if err != nil && !missing && !errors.Is(err, errTorn) {
		return nil, err
	}
	return c.nextSegment(v, i, err)
}

// nextSegment moves from the end of segment i to the next segment. Lines that are missing
// from segment i become one gap record.
func (c *Cursor) nextSegment(v view, i int, cause error) ([]Envelope, error) {
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

// seekInSegment moves to the position in s that is nearest before c.next.
func (c *Cursor) seekInSegment(s segment) {
	c.segment, c.pos, c.batch, c.dec = s.first, 0, batch{}, decoder{}
	if c.piece != nil {
		c.piece.have = nil
	}
	if c.next == s.first {
		return
	}
	if m, old, ok := c.log.seek(s, func(m mark) bool { return m.next <= c.next }); ok {
		c.pos, c.dec = m.pos, m.decoder(old)
	}
}

// skipHeader moves past the header and the checkpoint.
func (c *Cursor) skipHeader(r *segmentReader) error {
	if _, err := r.header(); err != nil {
		return err
	}
	if _, err := r.next(); err != nil {
		return err
	}
	c.pos, c.dec.old = r.pos, r.format == oldFormat
	return nil
}

// selectWanted leaves out the lines before c.next and the lines that the filter does not want.
// It moves c.next after all of them.
func (c *Cursor) selectWanted(es []Envelope) []Envelope {
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

// NewestOf returns the last n of the lines in the log that f wants, or all of them if
// fewer are stored.
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
