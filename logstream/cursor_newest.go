package logstream

import (
	"context"
	"sort"
	"time"
)

// newestFrom is the number of the n-th newest line that f wants. It goes back segment by
// segment, and stores none of their lines.
func (l *Log) newestFrom(ctx context.Context, n int, f Filter, within span64) (uint64, error) {
	v := l.view()
	for i := v.find(within.last); i >= 0 && within.last >= within.first; i-- {
		part := partOf(l, v.at(i), f, span64{max(v.segments[i].first, within.first), within.last})
		hits, err := part.count(ctx, part.within.last+1)
		if err != nil {
			return 0, err
		}
		if hits < n {
			n -= hits
			within.last = part.within.first - 1
			continue
		}
		return part.number(ctx, hits-n)
	}
	return within.first, nil
}

// part is the lines of a segment within a span. It finds the lines that a filter wants by
// the numbers in the marks of the segment, and reads only the lines between two marks.
type part struct {
	log    *Log
	f      Filter
	within span64
	marks  []mark // in the span
	wanted []int  // for each mark, the wanted lines in the segment before it
}

// partOf returns the lines of s within a span. It has the marks up to the first gap record
// in the span, and none if the numbers are not known.
func partOf(l *Log, s segment, f Filter, within span64) part {
	p := part{log: l, f: f, within: within}
	m, ok := f.bySource()
	if !ok {
		return p
	}
	gaps := 0 // before the first mark
	for _, x := range indexOf(l, s).marks {
		if x.next < within.first || x.next > within.last+1 {
			continue
		}
		n, others, ok := m.count(x)
		if len(p.marks) == 0 {
			gaps = others
		}
		if !ok || others != gaps { // a gap record is wanted for other reasons than its source
			break
		}
		p.marks, p.wanted = append(p.marks, x), append(p.wanted, n)
	}
	return p
}

// count returns the number of wanted lines before line end.
func (p part) count(ctx context.Context, end uint64) (n int, err error) {
	from := p.within.first
	if i := p.before(func(i int) bool { return p.marks[i].next <= end }); i > 0 {
		first := p.marks[0].next
		if n, err = p.read(ctx, span64{from, first - 1}); err != nil {
			return 0, err
		}
		n += p.wanted[i] - p.wanted[0]
		from = p.marks[i].next
	}
	rest, err := p.read(ctx, span64{from, end - 1})
	return n + rest, err
}

// number returns the number of the wanted line before which there are skip others.
func (p part) number(ctx context.Context, skip int) (found uint64, err error) {
	from := p.within.first
	if len(p.marks) > 0 {
		head, err := p.count(ctx, p.marks[0].next)
		if err != nil {
			return 0, err
		}
		if i := p.before(func(i int) bool { return head+p.wanted[i]-p.wanted[0] <= skip }); i > 0 {
			from, skip = p.marks[i].next, skip-head-p.wanted[i]+p.wanted[0]
		}
	}
	err = p.log.each(ctx, p.f, span64{from, p.within.last}, func(seq uint64) bool {
		found = seq
		skip--
		return skip >= 0
	})
	return found, err
}

// before returns the last mark for which reached returns true, or -1.
func (p part) before(reached func(i int) bool) int {
	return sort.Search(len(p.marks), func(i int) bool { return !reached(i) }) - 1
}

// read counts the wanted lines in a span by reading them.
func (p part) read(ctx context.Context, within span64) (n int, err error) {
	if within.first > within.last {
		return 0, nil
	}
	err = p.log.each(ctx, p.f, within, func(uint64) bool {
		n++
		return true
	})
	return n, err
}

// bySource returns a matcher for the sources that f wants. It returns false if f also
// selects lines by something else than their numbers and times.
func (f Filter) bySource() (matcher, bool) {
	f.Since, f.Until, f.First, f.Last = time.Time{}, time.Time{}, 0, 0
	return f.matcher(), f.Contains == "" && f.Tails == nil
}

// count returns how many lines m wants before a mark, and the number of gap records there.
// It returns false if the mark does not know.
func (m *matcher) count(x mark) (n, gaps int, ok bool) {
	if len(x.lines) != len(x.entries) {
		return 0, 0, false
	}
	for i, lines := range x.lines {
		gaps += int(lines[0])
		for stream := 1; stream < len(lines); stream++ {
			if lines[stream] > 0 && m.wants(&Envelope{Source: x.entries[i].Source, Stream: Stream(stream)}) {
				n += int(lines[stream])
			}
		}
	}
	return n, gaps, true
}
