package logstream

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// overdue returns how many of the oldest segments to drop so that the rest takes at
// most limit bytes.
func overdue(segments []segment, limit int64) int {
	total := sizeOf(segments)
	n := 0
	for ; n < len(segments) && total > limit; n++ {
		total -= segments[n].size
	}
	return n
}

// trim drops the oldest segments until the sealed ones take at most limit bytes. It
// returns the number of bytes dropped.
func (l *Log) trim(limit int64) int64 {
	l.mu.Lock()
	drop := l.cut(overdue(l.droppable(), limit))
	l.mu.Unlock()
	return l.remove(drop)
}

// cut removes the oldest n segments from the log's list. The caller holds l.mu.
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

// remove deletes the files of segments that are no longer in the log's list.
func (l *Log) remove(drop []segment) int64 {
	for _, s := range drop {
		if err := os.Remove(filepath.Join(l.dir, segmentName(s.first))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.log.Error("cannot remove an old log segment", "err", err)
		}
	}
	return sizeOf(drop)
}

// recordDropped writes one gap record with the count of dropped lines to the log. The
// record and the oldest segment together always say which drops have no record yet. So
// if a daemon is killed in between, no drop is left out or recorded twice.
func (l *Log) recordDropped() {
	l.mu.Lock()
	oldest := l.next
	if len(l.segments) > 0 {
		oldest = l.segments[0].first
	}
	l.mu.Unlock()
	if err := l.recordDrop(oldest); err != nil {
		l.log.Warn("cannot record dropped lines in the log yet", "err", err)
	}
}

// recordDrop records that the lines before oldest are dropped, unless earlier records already
// say so.
func (l *Log) recordDrop(oldest uint64) error {
	l.recordingMu.Lock()
	defer l.recordingMu.Unlock()
	l.mu.Lock()
	recordedDrop := l.recordedDrop
	l.mu.Unlock()
	if oldest <= recordedDrop+1 {
		return nil
	}
	lost := Loss{Lines: int64(oldest - 1 - recordedDrop), Cause: LostRetention}
	text := fmt.Sprintf("%s missing: dropped to keep the log within its size and age limits; the oldest stored line is number %d", howMany(lost.Lines), oldest)
	return l.appendThen(func() { l.recordedDrop = oldest - 1 }, gapLine(Source{Type: sourceCell}, lost, text))
}

// ageParts is the minimum number of segments that a log's maximum age is divided into.
// Segments are dropped as a whole, so a segment that grows slowly must not grow for
// ever.
const ageParts = 8

// sealByAge seals the active segment when its lines span one part of the age.
func (l *Log) sealByAge(age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.start != 0 && time.Now().UnixNano()-l.start > int64(age/ageParts) {
		l.startSegment = true
	}
}

// expire drops the segments whose newest line is older than before. A quiet log is
// dropped as a whole; only the record of the drop remains.
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
		return // trimmed since; the next run finds the rest
	case l.last < before.UnixNano() && !l.onlyRecord():
		l.startSegment = true // the record of the drop starts a segment
	default:
		upTo = v.segments[n].first
	}
	l.mu.Unlock()
	// Record the drop first: a recorded segment that still exists is removed at the
	// next start. In the other order, the last segment would be removed before another
	// one has the sequence numbers.
	if err := l.recordDrop(upTo); err != nil {
		l.log.Warn("cannot record dropped lines in the log yet", "err", err)
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

// onlyRecord reports whether the log contains only the record of a drop. The caller
// holds l.mu.
func (l *Log) onlyRecord() bool {
	return l.recordedDrop > 0 && l.next-l.segments[0].first <= 1
}
