package logstream

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// overdue is how many of the oldest segments must go so that the rest takes at
// most limit bytes.
func overdue(segments []segment, limit int64) int {
	total := sizeOf(segments)
	n := 0
	for ; n < len(segments) && total > limit; n++ {
		total -= segments[n].size
	}
	return n
}

// trim drops the oldest segments until the sealed ones take at most limit
// bytes. It returns the bytes dropped.
func (l *Log) trim(limit int64) int64 {
	l.mu.Lock()
	drop := l.cut(overdue(l.droppable(), limit))
	l.mu.Unlock()
	return l.remove(drop)
}

// cut takes the oldest n segments out of the log. Needs l.mu.
func (l *Log) cut(n int) []segment {
	drop := l.segments[:n]
	if n > 0 {
		l.segments = l.segments[n:]
		l.newNames = true
	}
	for _, s := range drop {
		delete(l.indexes, s.first)
	}
	return drop
}

// remove deletes the files of segments that are out of the log.
func (l *Log) remove(drop []segment) int64 {
	for _, s := range drop {
		if err := os.Remove(filepath.Join(l.dir, segmentName(s.first))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.log.Error("cannot remove an old log segment", "err", err)
		}
	}
	return sizeOf(drop)
}

// sayDropped puts one gap record with the count of dropped lines into the log.
// The record and the oldest segment together always tell what was not told yet,
// so a daemon that is killed in between leaves nothing out and says nothing
// twice.
func (l *Log) sayDropped() {
	l.mu.Lock()
	oldest := l.next
	if len(l.segments) > 0 {
		oldest = l.segments[0].first
	}
	l.mu.Unlock()
	if err := l.tell(oldest); err != nil {
		l.log.Warn("cannot record dropped lines yet", "err", err)
	}
}

// tell records that the lines before oldest are dropped, as far as no record
// tells so.
func (l *Log) tell(oldest uint64) error {
	l.telling.Lock()
	defer l.telling.Unlock()
	l.mu.Lock()
	told := l.told
	l.mu.Unlock()
	if oldest <= told+1 {
		return nil
	}
	lost := Loss{Lines: int64(oldest - 1 - told), Cause: LostRetention}
	text := fmt.Sprintf("%s missing: dropped to keep the log within its bounds; the oldest line kept is number %d", howMany(lost.Lines), oldest)
	return l.appendThen(func() { l.told = oldest - 1 }, gapLine(Source{Type: sourceCell}, lost, text))
}

// ageParts is how many segments a log has at least whose lines span its age: a
// segment goes as a whole, so one that grows slowly must not grow for ever.
const ageParts = 8

// part ends the segment that is written to when its lines span a part of the age.
func (l *Log) part(age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.start != 0 && time.Now().UnixNano()-l.start > int64(age/ageParts) {
		l.fresh = true
	}
}

// expire drops the segments whose newest line is older than the time. A quiet
// log is dropped as a whole: the record of it is all that stays.
func (l *Log) expire(before time.Time) {
	v := l.view()
	n := 0
	for n < len(v.segments)-1 {
		last, err := l.began(v, n+1)
		if err != nil || last >= before.UnixNano() {
			break
		}
		n++
	}
	l.mu.Lock()
	upTo := l.next // the first line that stays
	switch {
	case len(l.segments) == 0 || len(v.segments) == 0 || l.segments[0].first != v.segments[0].first:
		l.mu.Unlock()
		return // trimmed meanwhile; the next look finds the rest
	case l.last < before.UnixNano() && !l.onlyRecord():
		l.fresh = true // the record of it begins a segment
	default:
		upTo = v.segments[n].first
	}
	l.mu.Unlock()
	// Told first: a segment that is told and still there is removed at the next
	// start. The other way round the last segment would go before there is
	// another that knows the numbers.
	if err := l.tell(upTo); err != nil {
		l.log.Warn("cannot record dropped lines yet", "err", err)
		return
	}
	l.mu.Lock()
	drop := 0
	for drop < len(l.segments)-1 && l.segments[drop+1].first <= upTo {
		drop++
	}
	gone := l.cut(drop)
	l.mu.Unlock()
	l.remove(gone)
}

// onlyRecord tells whether all that is kept is the record of what was dropped.
// Needs l.mu.
func (l *Log) onlyRecord() bool {
	return l.told > 0 && l.next-l.segments[0].first <= 1
}
