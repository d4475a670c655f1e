package logstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxProblems limits how many problems one Verify lists.
const maxProblems = 20

// Report holds the counts of one Verify.
type Report struct {
	Segments    int
	Frames      int
	Lines       int64
	Bytes       int64 // total size of the segment files
	Streams     int   // number of capture files that lines came from
	Gaps        int   // gap records among the lines
	Lost        int64 // lines that the gap records count
	First, Last uint64

	// Missing are the gap records of lines that should be there, one sentence each: all
	// except those that the retention or a rate limit dropped.
	Missing []string
}

// Verify reads the whole log. It checks that checksums are right, sequences have no
// gaps, times increase, and byte ranges are consecutive per capture file. The error
// lists the problems it found. Verify does not block the writer. Gap records are not an
// error of the log: the report has those that record a loss.
func (l *Log) Verify(ctx context.Context) (Report, error) {
	v := l.view()
	c := newChecker()
	for i := range v.segments {
		if err := ctx.Err(); err != nil {
			return c.report, err
		}
		err := c.segment(l.dir, v.at(i))
		if errors.Is(err, fs.ErrNotExist) && l.view().find(v.segments[i].first) < 0 {
			c = newChecker() // trimmed since, along with all lines before it
			continue
		}
		if err != nil {
			return c.report, fmt.Errorf("cannot verify the log: %w", err)
		}
	}
	if c.next != 0 && c.next != v.next {
		c.addProblem("the log ends with line %d, want %d", c.next-1, v.next-1)
	}
	c.report.Streams = len(c.streams)
	return c.report, errors.Join(c.problems...)
}

// checker holds the values that the next line must follow.
type checker struct {
	report   Report
	next     uint64
	last     int64
	offsets  map[streamKey]int64
	streams  map[streamKey]bool
	problems []error
}

func newChecker() checker {
	return checker{offsets: map[streamKey]int64{}, streams: map[streamKey]bool{}}
}

func (c *checker) addProblem(format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, fmt.Errorf(format, args...))
	}
}

func (c *checker) segment(dir string, s segment) error {
	name := segmentName(s.first)
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("cannot open segment: %w", err)
	}
	defer func() { _ = f.Close() }()
	c.report.Segments++
	c.report.Bytes += s.size
	r := segmentReader{f: f, end: s.size}
	first, err := r.header()
	if err == nil && first != s.first {
		c.addProblem("segment %s starts with line %d", name, first)
	}
	dec := decoder{old: r.format == oldFormat}
	for n := 0; err == nil; n++ {
		err = c.frame(&r, &dec, n)
	}
	if errors.Is(err, errTorn) {
		c.addProblem("segment %s is damaged at byte %d", name, r.pos)
		err = nil
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// frame checks frame n of a segment.
func (c *checker) frame(r *segmentReader, dec *decoder, n int) error {
	payload, err := r.next()
	if err != nil {
		return err
	}
	c.report.Frames++
	if n == 0 {
		cp, err := decodeCheckpoint(payload, r.format)
		if err != nil {
			return err
		}
		c.checkpoint(cp)
		return nil
	}
	es, err := dec.batch(payload, nil)
	for i := range es {
		c.line(&es[i])
	}
	return err
}

// checkpoint compares a segment's checkpoint with the lines before it. Capture files
// that the checkpoint lacks were removed.
func (c *checker) checkpoint(cp checkpoint) {
	if c.next == 0 {
		c.next, c.last, c.offsets = cp.Next, cp.Last, cp.Offsets
		c.report.First = cp.Next
		return
	}
	if cp.Next != c.next {
		c.addProblem("a segment starts with line %d, want %d", cp.Next, c.next)
	}
	for k, offset := range cp.Offsets {
		if had, ok := c.offsets[k]; ok && had != offset {
			c.addProblem("%s: a segment starts at byte %d, but the segment before it ended at %d", k, offset, had)
		}
	}
	c.next, c.last, c.offsets = cp.Next, cp.Last, cp.Offsets
}

func (c *checker) line(e *Envelope) {
	if e.Seq != c.next {
		c.addProblem("found line %d, want line %d", e.Seq, c.next)
	}
	if at := e.Time.UnixNano(); at <= c.last {
		c.addProblem("the time of line %d is not later than that of the line before it", e.Seq)
	}
	c.next, c.last = e.Seq+1, e.Time.UnixNano()
	c.report.Lines++
	c.report.Last = e.Seq
	if e.Flags&Gap != 0 {
		c.report.Gaps++
		c.gap(e)
	}
	if !e.captured() {
		return
	}
	k := streamKey{e.Source.InstanceID, e.Exec, e.Stream}
	if at, ok := c.offsets[k]; ok && at != e.From {
		c.addProblem("%s: line %d starts at byte %d, but the line before it ended at %d", k, e.Seq, e.From, at)
	}
	c.offsets[k] = e.To
	c.streams[k] = true
}

// gap counts the losses of a gap record.
func (c *checker) gap(e *Envelope) {
	cause := ""
	if e.Lost != nil {
		c.report.Lost += e.Lost.Lines
		cause = e.Lost.Cause
	}
	if cause == LostRetention || cause == LostRate || len(c.report.Missing) == maxProblems {
		return
	}
	c.report.Missing = append(c.report.Missing, fmt.Sprintf("line %d records a loss: %s", e.Seq, e.Text))
}
