package logstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"
)

// Filter selects the lines that a reader wants. The zero Filter selects all lines.
//
// A gap record passes regardless of Source and text, unless NoGaps is set: a reader
// must see that lines are missing.
type Filter struct {
	Source     string // the whole source type, such as CELL
	Process    string // process type such as web, case-insensitive, including its sidecars
	Sidecar    string // sidecar name, case-insensitive
	NoSidecars bool
	NoPlatform bool // only lines printed by the app's own processes
	NoGaps     bool
	Instance   *int   // instance index
	InstanceID string // ID of one present or past instance
	Stream     Stream
	Contains   string // substring of the text, byte for byte

	Since, Until time.Time // Since is inclusive, Until is exclusive
	First, Last  uint64    // sequence numbers, both inclusive

	// Tails has the sources whose lines are wanted, each from a sequence number on. Nil
	// selects the lines of all sources.
	Tails *map[string]uint64
}

// appPrefix is the start of the source types of the app's own processes.
const appPrefix = "APP/"

// matcher is a Filter prepared for checking many lines.
type matcher struct {
	all      bool // it wants all lines
	f        Filter
	process  string
	sidecar  string
	contains []byte
	since    int64
	until    int64
}

func (f Filter) matcher() matcher {
	m := matcher{f: f, process: strings.ToUpper(f.Process), sidecar: strings.ToUpper(f.Sidecar), contains: []byte(f.Contains)}
	if !f.Since.IsZero() {
		m.since = f.Since.UnixNano()
	}
	if !f.Until.IsZero() {
		m.until = f.Until.UnixNano()
	}
	m.all = f == Filter{}
	return m
}

// Matches reports whether the filter wants the line.
func (f Filter) Matches(e Envelope) bool {
	m := f.matcher()
	return m.wants(&e)
}

// wants reports whether the filter wants the line.
func (m *matcher) wants(e *Envelope) bool {
	if m.all {
		return true
	}
	if !m.inside(e) {
		return false
	}
	if m.f.Instance != nil && e.Source.Index != *m.f.Instance && (e.Flags&Gap == 0 || e.Source.InstanceID != "") {
		return false
	}
	if e.Flags&Gap != 0 {
		return !m.f.NoGaps && (m.f.InstanceID == "" || e.Source.InstanceID == m.f.InstanceID)
	}
	return (m.f.InstanceID == "" || e.Source.InstanceID == m.f.InstanceID) &&
		(m.f.Source == "" || e.Source.Type == m.f.Source) && (m.f.Stream == 0 || e.Stream == m.f.Stream) && m.matchesSource(e) &&
		(len(m.contains) == 0 || bytes.Contains(e.Text, m.contains))
}

// inside reports whether the line lies between the bounds.
func (m *matcher) inside(e *Envelope) bool {
	at := e.Time.UnixNano()
	return (m.since == 0 || at >= m.since) && (m.until == 0 || at < m.until) &&
		e.Seq >= m.f.First && (m.f.Last == 0 || e.Seq <= m.f.Last)
}

// over reports whether neither e nor any later line can lie between the bounds.
func (m *matcher) over(e *Envelope) bool {
	return m.until != 0 && e.Time.UnixNano() >= m.until || m.f.Last != 0 && e.Seq > m.f.Last
}

// matchesSource reports whether a line is from a source that the filter wants.
func (m *matcher) matchesSource(e *Envelope) bool {
	source := e.Source.Type
	if m.f.NoPlatform && !strings.HasPrefix(source, appPrefix) {
		return false
	}
	if m.f.Tails != nil {
		if from, ok := (*m.f.Tails)[source]; !ok || e.Seq < from {
			return false
		}
	}
	if m.process == "" && m.sidecar == "" && !m.f.NoSidecars {
		return true
	}
	process, sidecar := e.Source.Process()
	return (m.process == "" || process == m.process) && (m.sidecar == "" || sidecar == m.sidecar) &&
		(!m.f.NoSidecars || sidecar == "")
}

// bounds returns the first and the last number that a line wanted by the filter can
// have now. If there is no such line, last is less than first.
func (l *Log) bounds(f Filter) (first, last uint64, err error) {
	v := l.view()
	first, last = max(oldestOf(v), f.First), v.next-1
	if f.Last != 0 {
		last = min(last, f.Last)
	}
	if !f.Since.IsZero() {
		at, err := l.At(f.Since)
		if err != nil {
			return 0, 0, err
		}
		first = max(first, at)
	}
	if !f.Until.IsZero() {
		at, err := l.At(f.Until)
		if err != nil {
			return 0, 0, err
		}
		last = min(last, at-1)
	}
	return first, last, nil
}

// Only makes the cursor return only the lines that f wants, and returns the cursor. If
// f has an upper bound, Next returns io.EOF after it.
func (c *Cursor) Only(f Filter) *Cursor {
	c.want = f.matcher()
	if f.First > c.next {
		c.next, c.oldest = f.First, false
	}
	return c
}

// UpTo makes Next return io.EOF after line last, and returns the cursor.
func (c *Cursor) UpTo(last uint64) *Cursor {
	c.upTo, c.ends = last, true
	return c
}

// Select returns a cursor over the stored lines that f wants. It starts at the first of
// them, or at number from if that is later.
func (l *Log) Select(from uint64, f Filter) (*Cursor, error) {
	if f.First == 0 && f.Since.IsZero() {
		return l.Cursor(from).Only(f), nil
	}
	from = max(from, f.First, oldestOf(l.view()))
	if f.Since.IsZero() {
		return l.Cursor(from).Only(f), nil
	}
	c, err := l.since(f.Since)
	if err != nil {
		return nil, err
	}
	if from > c.next {
		c = l.Cursor(from)
	}
	return c.Only(f), nil
}

// SelectNewest returns a cursor that starts with the newest n lines that f wants, or
// with all of them if fewer are stored.
func (l *Log) SelectNewest(ctx context.Context, n int, f Filter) (*Cursor, error) {
	first, last, err := l.bounds(f)
	if err != nil {
		return nil, err
	}
	if n <= 0 || first > last {
		return l.Cursor(max(last, first-min(first, 1)) + 1).Only(f), nil
	}
	if f.everyLine() {
		from := first
		if last-first >= uint64(n) {
			from = last - uint64(n) + 1
		}
		return l.Cursor(from).Only(f), nil
	}
	from, err := l.newestFrom(ctx, n, f, span64{first, last})
	if err != nil {
		return nil, err
	}
	return l.Cursor(from).Only(f), nil
}

// Contains reports whether a line that f wants is in the log now.
func (l *Log) Contains(ctx context.Context, f Filter) (bool, error) {
	first, last, err := l.bounds(f)
	if err != nil || first > last {
		return false, err
	}
	found := false
	err = l.each(ctx, f, span64{first, last}, func(uint64) bool {
		found = true
		return false
	})
	return found, err
}

// everyLine reports whether the filter wants all lines between its bounds.
func (f Filter) everyLine() bool {
	f.Since, f.Until, f.First, f.Last = time.Time{}, time.Time{}, 0, 0
	return f == Filter{}
}

// span64 is a range of sequence numbers, both inclusive.
type span64 struct{ first, last uint64 }

// each calls tell with the number of each line in the range that f wants. It skips
// lines that were trimmed since.
func (l *Log) each(ctx context.Context, f Filter, within span64, tell func(seq uint64) bool) error {
	c := l.Cursor(within.first).Brief().Only(f).UpTo(within.last)
	defer func() { c.Release() }()
	for {
		es, err := c.Next(ctx)
		switch {
		case errors.Is(err, ErrTrimmed):
			c, _ = c.Skip()
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		for i := range es {
			if !tell(es[i].Seq) {
				return nil
			}
		}
	}
}
