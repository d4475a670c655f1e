package logstream

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/dewrun/dew/logstream/disk"
)

const (
	markEvery  = 64 << 10 // bytes of a segment between two marks
	maxIndexes = 16       // indexes of sealed segments, per log
)

// index is a sparse index of one segment: at regular distances, a position where
// reading can start. It is never on disk, so it cannot disagree with the segment after
// a crash. The writer creates it while writing. The index of a segment that was sealed
// earlier is created on first use.
type index struct {
	first uint64 // first number of the segment
	old   bool   // the segment has the old format
	marks []mark
}

// mark is a position between two frames, with the decoder state there. It is never
// changed.
type mark struct {
	pos     int64
	next    uint64 // number of the line after it
	last    int64  // time of the line before it
	entries []dictEntry
	to      [][tagStreamMask + 1]int64
	lines   []lineCount // of the entries before the position, or nil if not known
}

// due reports whether a frame that starts at pos gets a mark.
func (x *index) due(pos int64) bool {
	return len(x.marks) == 0 || pos-x.marks[len(x.marks)-1].pos >= markEvery
}

// add appends a mark. Marks share their entries, because the entries of a segment
// only grow.
func (x *index) add(m mark) {
	if n := len(x.marks); n > 0 && len(x.marks[n-1].entries) == len(m.entries) {
		m.entries = x.marks[n-1].entries
	}
	x.marks = append(x.marks, m)
}

// before returns the last mark for which reached returns true.
func (x index) before(reached func(mark) bool) (mark, bool) {
	i := sort.Search(len(x.marks), func(i int) bool { return !reached(x.marks[i]) })
	if i == 0 {
		return mark{}, false
	}
	return x.marks[i-1], true
}

// decoder returns a decoder that continues at the mark.
func (m mark) decoder(old bool) decoder {
	return decoder{old: old, entries: m.entries, to: m.to, lines: m.lines}.clone()
}

// clone returns an independent copy of the decoder.
func (d decoder) clone() decoder {
	lines := make([]lineCount, len(d.entries)) // of a mark without numbers
	copy(lines, d.lines)
	return decoder{old: d.old, entries: slices.Clip(d.entries), to: slices.Clone(d.to), lines: lines}
}

// mark returns the encoder's current position as a mark.
func (e *encoder) mark(pos int64, next uint64, last int64) mark {
	m := mark{pos: pos, next: next, last: last, entries: make([]dictEntry, len(e.positions)), to: make([][tagStreamMask + 1]int64, len(e.positions))}
	for s, p := range e.positions {
		m.entries[p.id], m.to[p.id] = s, p.to
	}
	if e.uncounted {
		return m
	}
	m.lines = make([]lineCount, len(e.positions))
	for _, p := range e.positions {
		m.lines[p.id] = p.lines
	}
	return m
}

// mark returns the decoder's current position as a mark.
func (d *decoder) mark(pos int64, next uint64, last int64) mark {
	return mark{pos: pos, next: next, last: last, entries: slices.Clip(d.entries), to: slices.Clone(d.to), lines: slices.Clone(d.lines)}
}

// seek returns the last mark of s for which reached returns true, and whether s has the
// old format. If there is no such mark, ok is false and reading starts at the beginning
// of the segment.
func (l *Log) seek(s segment, reached func(mark) bool) (m mark, old, ok bool) {
	x := indexOf(l, s)
	m, ok = x.before(reached)
	return m, x.old, ok
}

// indexOf returns the index of s as it is now. It has no marks if s cannot be read.
func indexOf(l *Log, s segment) index {
	l.mu.Lock()
	x := l.index
	if x == nil || x.first != s.first {
		x = l.indexes[s.first]
	}
	if x != nil {
		now := *x // the writer only adds to the marks
		l.mu.Unlock()
		return now
	}
	l.mu.Unlock()
	if x = l.buildIndex(s); x == nil {
		return index{first: s.first}
	}
	return *x
}

// buildIndex reads a sealed segment once. A segment that cannot be read has no index.
// Reading its lines meets the same error and reports it.
func (l *Log) buildIndex(s segment) *index {
	f, err := os.Open(filepath.Join(l.dir, segmentName(s.first)))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	st, err := scanSegment(f, s)
	if err != nil {
		return nil
	}
	l.keepIndex(st.index)
	return st.index
}

// keepIndex stores the index of a sealed segment. If the maximum is reached, it drops
// another index.
func (l *Log) keepIndex(x *index) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keepIndexLocked(x)
}

func (l *Log) keepIndexLocked(x *index) {
	if l.indexes == nil {
		l.indexes = map[uint64]*index{}
	}
	for first := range l.indexes {
		if len(l.indexes) < maxIndexes {
			break
		}
		delete(l.indexes, first)
	}
	l.indexes[x.first] = x
}

// At returns the number of the first line that is not earlier than t. If there is none,
// it returns the number of the next line to come.
func (l *Log) At(t time.Time) (uint64, error) {
	c, err := l.since(t)
	if err != nil {
		return 0, err
	}
	return c.next, nil
}

// since returns a cursor that starts with the first line that is not earlier than t.
func (l *Log) since(t time.Time) (*Cursor, error) {
	for {
		v := l.view()
		c, err := l.at(v, t.UnixNano())
		if errors.Is(err, fs.ErrNotExist) && len(v.segments) > 0 && l.view().find(v.segments[0].first) < 0 {
			continue // trimmed since
		}
		if err != nil {
			return nil, fmt.Errorf("cannot find a line by time in the log: %w", err)
		}
		return c, nil
	}
}

func (l *Log) at(v view, t int64) (*Cursor, error) {
	var failed error
	// Find the first segment that starts too late. The line is in the segment before
	// it.
	i := sort.Search(len(v.segments), func(i int) bool {
		began, err := l.began(v, i)
		failed = errors.Join(failed, err)
		return began >= t
	}) - 1
	if failed != nil {
		return nil, failed
	}
	if i < 0 {
		c := l.Cursor(oldestOf(v))
		c.oldest = false
		return c, nil
	}
	s := v.at(i)
	c := l.Cursor(s.first).Brief()
	c.oldest = false
	if m, old, ok := l.seek(s, func(m mark) bool { return m.last < t }); ok {
		c.next, c.segment, c.pos, c.dec = m.next, s.first, m.pos, m.decoder(old)
	}
	return c.findTime(v, t)
}

// findTime reads up to the first line that is not earlier than t, and returns a cursor
// there.
func (c *Cursor) findTime(v view, t int64) (*Cursor, error) {
	defer c.Release()
	for {
		before := *c
		before.reuse, before.piece, before.dec = false, nil, c.dec.clone()
		es, err := c.read(v)
		if err != nil && !errors.Is(err, ErrTrimmed) {
			return nil, err
		}
		for i := range es {
			if es[i].Time.UnixNano() >= t && es[i].Seq >= before.next {
				before.next = es[i].Seq
				return &before, nil
			}
		}
		if len(es) == 0 {
			before.next = c.next // of the next segment, or of the next line
			return &before, nil
		}
	}
}

// oldestOf is the number of the oldest stored line.
func oldestOf(v view) uint64 {
	if len(v.segments) == 0 {
		return v.next
	}
	return v.segments[0].first
}

// began returns the time of the line before segment i.
func (l *Log) began(v view, i int) (int64, error) {
	if i > 0 && v.segments[i-1].last != 0 {
		return v.segments[i-1].last, nil
	}
	c, err := readCheckpoint(l.dir, v.at(i))
	return c.Last, err
}

// readCheckpoint reads the checkpoint of a segment.
func readCheckpoint(dir string, s segment) (checkpoint, error) {
	f, err := os.Open(filepath.Join(dir, segmentName(s.first)))
	if err != nil {
		return checkpoint{}, fmt.Errorf("cannot open segment: %w", err)
	}
	defer func() { _ = f.Close() }()
	r := segmentReader{f: f, end: s.size, chunk: disk.Block}
	return r.checkpoint(s)
}

// checkpoint reads the header and the first frame of s.
func (s *segmentReader) checkpoint(of segment) (checkpoint, error) {
	first, err := s.header()
	if err != nil {
		return checkpoint{}, err
	}
	payload, err := s.next()
	if errors.Is(err, io.EOF) {
		err = errTorn
	}
	if err != nil {
		return checkpoint{}, err
	}
	c, err := decodeCheckpoint(payload, s.format)
	if err != nil {
		return checkpoint{}, err
	}
	if first != of.first || c.Next != of.first {
		return checkpoint{}, fmt.Errorf("segment %s starts with line %d, so its file was renamed: move the file to another folder", segmentName(of.first), first)
	}
	return c, nil
}
