package logstream

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"
)

// Log is one app's log: its segment files, and how far each capture file has been read
// into them.
type Log struct {
	logs *Logs
	dir  string
	log  *slog.Logger
	born uint64 // number of the first line that this daemon appended

	mu           sync.Mutex // guards the fields below. The writer holds it for one write(2), readers for a copy.
	segments     []segment  // oldest first. Never changed in place because views share it. The last one is being written.
	active       *os.File   // the last segment, nil before the first append
	end          int64      // committed size of active. The size in segments is out of date.
	sealed       []*os.File // full, not synced yet
	dirty        bool       // active has unsynced bytes
	newNames     bool       // a segment was created or removed since the last sync
	enc          *encoder
	next         uint64 // sequence number of the next line
	last         int64  // time of the last line, Unix nanoseconds
	start        int64  // time of the first line of the active segment, 0 if it has none
	startSegment bool   // the next append starts a segment, whatever the size of this one
	rebooted     bool   // the machine has rebooted since the last segment was created
	damaged      bool   // the last bytes of the last segment could not be read
	streams      map[streamKey]*stream
	recordedDrop uint64            // lines up to this one are already recorded as dropped
	index        *index            // index of the active segment
	indexes      map[uint64]*index // indexes of some sealed segments, by first number
	grown        chan struct{}     // closed by the next append, nil if no reader waits
	closed       bool

	leaf             sync.Mutex            // held while a process is frozen or thawed. Guards the fields below. Taken before mu.
	leaves           map[leafKey]int       // number of frozen capture files per process
	lastFreezeRecord map[leafKey]time.Time // when the log last recorded that a process is frozen

	recordingMu sync.Mutex // one record of dropped lines at a time. Taken before mu.
	syncing     sync.Mutex // one sync at a time. Taken before mu.
	failed      error      // a sync failed, so nothing is punched any more. Guarded by syncing.
}

// segment is one segment file up to its committed size.
type segment struct {
	first uint64
	size  int64
	last  int64 // time of its last line once it is sealed, 0 if not read yet
}

// stream says how far a capture file has been read into the log.
type stream struct {
	offset int64 // bytes before this offset are in segments
	synced int64 // bytes before this offset are synced to disk
}

// view is a copy of the state that readers need, so they hold no lock.
type view struct {
	segments []segment
	end      int64 // committed size of the last segment
	next     uint64
	grown    <-chan struct{}
	closed   bool
}

// at returns segment i up to its committed size.
func (v view) at(i int) segment {
	s := v.segments[i]
	if i == len(v.segments)-1 {
		s.size = v.end
	}
	return s
}

// find returns the index of the segment that holds line seq, or -1 if it was trimmed.
func (v view) find(seq uint64) int {
	return sort.Search(len(v.segments), func(i int) bool { return v.segments[i].first > seq }) - 1
}

// LastSeq is the sequence number of the newest line, or 0 if there is none.
func (l *Log) LastSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next - 1
}

// Kept is the size and time range of a stored log.
type Kept struct {
	Lines, Dropped int64
	Oldest, Newest time.Time // zero if there are no lines
}

// Kept returns the size and time range of the stored log.
func (l *Log) Kept() Kept {
	v := l.view()
	first := oldestOf(v)
	k := Kept{Lines: int64(v.next - first), Dropped: int64(first - 1)}
	if k.Lines == 0 {
		return k
	}
	l.mu.Lock()
	k.Newest = time.Unix(0, l.last).UTC()
	l.mu.Unlock()
	k.Oldest = k.Newest
	if es, err := l.Cursor(first).read(v); err == nil && len(es) > 0 {
		k.Oldest = es[0].Time
	}
	return k
}

// Append adds lines as one frame with one write, and wakes the readers once. It sets
// Seq and Time of the envelopes in es. It does not wait for the disk: the lines survive
// a crash of any process at once, and a power cut after a second. Either all lines are
// in the log or none.
func (l *Log) Append(es ...Envelope) error {
	if len(es) == 0 {
		return nil
	}
	return l.appendThen(nil, es...)
}

// appendThen does the same as Append and then calls then. Other goroutines see both
// changes at once.
func (l *Log) appendThen(then func(), es ...Envelope) error {
	begin := time.Now()
	defer func() { l.logs.pace.add(time.Since(begin)) }()
	for tries := 0; ; tries++ {
		err := l.append(es, then)
		if err == nil {
			return nil
		}
		if !isFull(err) || tries == maxRoomTries || !l.logs.makeRoom() {
			return fmt.Errorf("cannot append to the log: %w", err)
		}
	}
}

// Gap appends a record that count lines of src are missing, and why. A count of 0 means
// unknown.
func (l *Log) Gap(src Source, cause string, count int64) error {
	return l.Append(gapLine(src, Loss{Lines: count, Cause: cause}, howMany(count)+" missing: "+cause))
}

// howMany returns the first words of a gap record's sentence.
func howMany(count int64) string {
	switch {
	case count <= 0:
		return "lines may be"
	case count == 1:
		return "1 line is"
	default:
		return fmt.Sprintf("%d lines are", count)
	}
}

func (l *Log) append(es []Envelope, then func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if err := l.checkRanges(es); err != nil {
		return err
	}
	clock := stamper{last: l.last, now: time.Now().UnixNano()}
	buf := frames.Get().(*[]byte)
	defer frames.Put(buf)
	var err error
	if l.active == nil || l.startSegment || l.end >= l.logs.o.SegmentBytes {
		err = l.appendNew(buf, clock, es)
	} else {
		err = l.appendActive(buf, clock, es)
	}
	if err != nil {
		return err
	}
	l.commit(clock, es)
	if then != nil {
		then()
	}
	return nil
}

// checkRanges refuses lines that the log already has: each byte of a capture file is in
// the log only once.
func (l *Log) checkRanges(es []Envelope) error {
	var last *stream
	var lastKey streamKey
	var at int64
	for i := range es {
		e := &es[i]
		if !e.captured() {
			continue
		}
		key := streamKey{e.Source.InstanceID, e.Exec, e.Stream}
		if key != lastKey {
			last, lastKey, at = l.streams[key], key, 0
		}
		if last != nil {
			at = max(at, last.offset)
		}
		if e.From < at || e.To < e.From {
			return fmt.Errorf("bytes %d to %d of %s are already in the log, which has all bytes up to %d", e.From, e.To, key, at)
		}
		at = e.To
	}
	return nil
}

// appendActive writes the batch after the last one.
func (l *Log) appendActive(buf *[]byte, clock stamper, es []Envelope) error {
	b, err := l.enc.batch((*buf)[:0], l.next, clock, es)
	*buf = b
	if err == nil {
		err = l.writeAll(l.active, b, l.end)
	}
	if err != nil {
		l.enc.rollback()
		return err
	}
	l.end += int64(len(b))
	return nil
}

// appendNew starts a segment with the batch. On failure the old segment stays active.
func (l *Log) appendNew(buf *[]byte, clock stamper, es []Envelope) error {
	enc := newEncoder()
	b := appendHeader((*buf)[:0], l.next)
	b, err := appendCheckpoint(b, l.checkpoint())
	if err == nil {
		b, err = enc.batch(b, l.next, clock, es)
	}
	*buf = b
	if err != nil {
		return err
	}
	path := filepath.Join(l.dir, segmentName(l.next))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot create a segment: %w", err)
	}
	if err := l.writeAll(f, b, 0); err != nil {
		return errors.Join(err, f.Close(), os.Remove(path))
	}
	if l.active != nil {
		l.sealed = append(l.sealed, l.active)
	}
	if l.index != nil {
		l.keepIndexLocked(l.index)
	}
	l.active, l.enc, l.startSegment, l.newNames, l.start = f, enc, false, true, 0
	l.index = &index{first: l.next}
	// A new slice, because views share the old one.
	segments := make([]segment, len(l.segments), len(l.segments)+1)
	copy(segments, l.segments)
	if n := len(segments); n > 0 {
		segments[n-1].size, segments[n-1].last = l.end, l.last
	}
	l.segments = append(segments, segment{first: l.next})
	l.end = int64(len(b))
	l.logs.wakeSyncer()
	return nil
}

func (l *Log) checkpoint() checkpoint {
	c := checkpoint{Next: l.next, Last: l.last, Boot: l.logs.boot, RecordedDrop: l.recordedDrop, Offsets: make(map[streamKey]int64, len(l.streams))}
	for k, s := range l.streams {
		c.Offsets[k] = s.offset
	}
	return c
}

// writeAll writes all of b at offset at, or nothing. After a failed write it truncates
// the file, so that the next write starts cleanly.
func (l *Log) writeAll(f *os.File, b []byte, at int64) error {
	n, err := l.logs.disk.Write(f, b, at)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("cannot write to a segment: %w", err), f.Truncate(at))
}

// commit makes the written batch visible to readers.
func (l *Log) commit(clock stamper, es []Envelope) {
	for i := range es {
		e := &es[i]
		e.Seq = l.next
		e.Time = time.Unix(0, clock.stamp(e.Time)).UTC()
		l.next++
		if e.captured() && (i+1 == len(es) || !sameStream(e, &es[i+1])) {
			l.reached(streamKey{e.Source.InstanceID, e.Exec, e.Stream}, e.To)
		}
	}
	l.last, l.dirty = clock.last, true
	if l.start == 0 {
		l.start = es[0].Time.UnixNano()
	}
	if l.index.due(l.end) {
		l.index.add(l.enc.mark(l.end, l.next, l.last))
	}
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

func sameStream(a, b *Envelope) bool {
	return a.Stream == b.Stream && a.Exec == b.Exec && a.Source.InstanceID == b.Source.InstanceID
}

func (l *Log) reached(k streamKey, to int64) {
	s := l.streams[k]
	if s == nil {
		s = &stream{}
		l.streams[k] = s
	}
	s.offset = to
}

func (l *Log) view() view {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return view{segments: l.segments, end: l.end, next: l.next, grown: l.grown, closed: l.closed}
}

func (l *Log) close() error {
	err := l.sync()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return err
	}
	l.closed = true
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
	for _, f := range l.sealed {
		err = errors.Join(err, f.Close())
	}
	l.sealed = nil
	if l.active != nil {
		err = errors.Join(err, l.active.Close())
	}
	return err
}

// stamper returns strictly increasing times. It uses the current time, or the
// envelope's own time unless the log already has a later one.
type stamper struct{ last, now int64 }

func (s *stamper) stamp(t time.Time) int64 {
	at := s.now
	if !t.IsZero() {
		at = min(at, t.UnixNano()) // a time in the future would push all later times
	}
	s.last = max(at, s.last+1)
	return s.last
}

// frames are the buffers of all logs. An idle log holds none.
var frames = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}
