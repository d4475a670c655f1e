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

// Log is one app's log: its segment files and how far its capture files are in
// them.
type Log struct {
	logs *Logs
	dir  string
	log  *slog.Logger
	born uint64 // number of the first line that this daemon appended

	mu       sync.Mutex // guards what follows; the writer holds it for one write(2), readers for a copy
	segments []segment  // oldest first, never changed in place: views share it; the last one is written to
	active   *os.File   // the last segment, nil before the first append
	end      int64      // its committed size; the one in segments is old
	sealed   []*os.File // full, not synced yet
	dirty    bool       // active has what is not synced
	newNames bool       // a segment was made or removed since the last sync
	enc      *encoder
	next     uint64 // sequence number of the next line
	last     int64  // time of the last line, Unix nanoseconds
	start    int64  // time of the first line of the segment that is written to; 0: it has none
	fresh    bool   // the next append begins a segment, whatever the size of this one
	rebooted bool   // the machine has started anew since the last segment began
	damaged  bool   // the end of the last segment could not be read
	streams  map[streamKey]*stream
	told     uint64            // the lines up to this one were told as dropped
	index    *index            // of the segment that is written to
	indexes  map[uint64]*index // of some sealed ones, by first number
	grown    chan struct{}     // closed by the next append; nil when nobody waits
	closed   bool

	leaf   sync.Mutex            // held while a process is frozen or thawed; guards what follows; taken before mu
	leaves map[leafKey]int       // frozen capture files per process
	said   map[leafKey]time.Time // when the log last told that a process is frozen

	telling sync.Mutex // one record of dropped lines at a time; taken before mu
	syncing sync.Mutex // one sync at a time; taken before mu
	failed  error      // a sync failed: nothing is punched any more; guarded by syncing
}

// segment is one segment file as far as it is committed.
type segment struct {
	first uint64
	size  int64
	last  int64 // time of its last line once it is sealed; 0: nobody has looked
}

// stream is how far a capture file is in the log.
type stream struct {
	offset int64 // its bytes before this are in segments
	synced int64 // and before this they are safe on disk
}

// view is what readers may read: a copy, so they hold nothing.
type view struct {
	segments []segment
	end      int64 // of the last segment
	next     uint64
	grown    <-chan struct{}
	closed   bool
}

// at gives segment i as far as it is committed.
func (v view) at(i int) segment {
	s := v.segments[i]
	if i == len(v.segments)-1 {
		s.size = v.end
	}
	return s
}

// find gives the index of the segment that holds line seq, -1 if it was trimmed.
func (v view) find(seq uint64) int {
	return sort.Search(len(v.segments), func(i int) bool { return v.segments[i].first > seq }) - 1
}

// LastSeq is the sequence number of the newest line, 0 when there is none.
func (l *Log) LastSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next - 1
}

// Kept is how much of a log there is.
type Kept struct {
	Lines, Dropped int64
	Oldest, Newest time.Time // zero without lines
}

// Kept tells how much of the log there is.
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

// Append adds lines as one frame with one write, and wakes the readers once. It
// sets Seq and Time of the envelopes in es. It does not wait for the disk: what
// it wrote survives the death of any process, and a power cut one second later.
// Either all lines are in the log or none.
func (l *Log) Append(es ...Envelope) error {
	if len(es) == 0 {
		return nil
	}
	return l.appendThen(nil, es...)
}

// appendThen does what Append does, and then, in the same moment for all others,
// what then does.
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

// Gap appends a record that count lines of src are missing, and why. A count
// that nobody knows is 0.
func (l *Log) Gap(src Source, cause string, count int64) error {
	return l.Append(gapLine(src, Loss{Lines: count, Cause: cause}, howMany(count)+" missing: "+cause))
}

// howMany begins the sentence of a gap record.
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
	if l.active == nil || l.fresh || l.end >= l.logs.o.SegmentBytes {
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

// checkRanges refuses lines that the log has already: each capture byte is in
// the log once, whoever asks.
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
			return fmt.Errorf("bytes %d to %d of %s are in the log already: it is at %d", e.From, e.To, key, at)
		}
		at = e.To
	}
	return nil
}

// appendActive writes the batch behind the last one.
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

// appendNew begins a segment with the batch. On failure the old one stays.
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
		return fmt.Errorf("cannot make a segment: %w", err)
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
	l.active, l.enc, l.fresh, l.newNames, l.start = f, enc, false, true, 0
	l.index = &index{first: l.next}
	// A new list: views share the old one.
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
	c := checkpoint{Next: l.next, Last: l.last, Boot: l.logs.boot, Told: l.told, Offsets: make(map[streamKey]int64, len(l.streams))}
	for k, s := range l.streams {
		c.Offsets[k] = s.offset
	}
	return c
}

// writeAll writes b at at, or nothing: what a failed write left is cut off, so
// that the next one begins cleanly.
func (l *Log) writeAll(f *os.File, b []byte, at int64) error {
	n, err := l.logs.disk.write(f, b, at)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("cannot write to a segment: %w", err), f.Truncate(at))
}

// commit makes the written batch known.
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

// stamper gives strictly increasing times: now, or the time an envelope brings,
// unless the log is already beyond it.
type stamper struct{ last, now int64 }

func (s *stamper) stamp(t time.Time) int64 {
	at := s.now
	if !t.IsZero() {
		at = min(at, t.UnixNano()) // a time to come would push all later ones
	}
	s.last = max(at, s.last+1)
	return s.last
}

// frames are the buffers of all logs; a log at rest holds none.
var frames = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}
