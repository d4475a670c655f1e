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
	fresh    bool   // the next append begins a segment, whatever the size of this one
	rebooted bool   // the machine has started anew since the last segment began
	damaged  bool   // the end of the last segment could not be read
	streams  map[streamKey]*stream
	unsaid   int64         // lines dropped that no gap record tells of yet
	grown    chan struct{} // closed by the next append; nil when nobody waits
	closed   bool

	leaf   sync.Mutex            // held while a process is frozen or thawed; guards what follows; taken before mu
	leaves map[leafKey]int       // frozen capture files per process
	said   map[leafKey]time.Time // when the log last told that a process is frozen

	syncing sync.Mutex // one sync at a time; taken before mu
	failed  error      // a sync failed: nothing is punched any more; guarded by syncing
}

// segment is one segment file as far as it is committed.
type segment struct {
	first uint64
	size  int64
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

// openLog reads what the last segment knows.
func openLog(ls *Logs, dir string) (*Log, error) {
	if err := os.MkdirAll(filepath.Join(dir, "capture"), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the log folder: %w", err)
	}
	l := &Log{
		logs: ls, dir: dir, log: ls.log.With("app", filepath.Base(dir)), next: 1,
		enc: newEncoder(), streams: map[streamKey]*stream{}, leaves: map[leafKey]int{}, said: map[leafKey]time.Time{},
	}
	segments, err := listSegments(dir)
	if err != nil {
		return nil, err
	}
	// A segment whose beginning was torn holds no line; what came before it is
	// in the one before.
	for len(segments) > 0 {
		n := len(segments) - 1
		err := l.recover(segments[n])
		if err == nil {
			break
		}
		if !errors.Is(err, errTorn) {
			return nil, err
		}
		if err := l.discard(segments[n], n == 0); err != nil {
			return nil, err
		}
		segments = segments[:n]
	}
	l.segments = segments
	return l, l.forgetGone()
}

// discard takes a segment without a readable beginning out of the way. Bytes
// that a torn first write does not explain are kept under another name.
func (l *Log) discard(s segment, only bool) error {
	path := filepath.Join(l.dir, segmentName(s.first))
	if s.size <= blockSize {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("cannot remove a torn segment: %w", err)
		}
		return nil
	}
	if only {
		return fmt.Errorf("segment %s is damaged at its beginning: move it away to go on without its lines", path)
	}
	l.log.Error("a log segment is damaged at its beginning and was put aside", "segment", path+damagedSuffix)
	if err := os.Rename(path, path+damagedSuffix); err != nil {
		return fmt.Errorf("cannot put a damaged segment aside: %w", err)
	}
	return nil
}

func listSegments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list segments: %w", err)
	}
	var segments []segment
	for _, e := range entries {
		first, ok := segmentFirst(e.Name())
		if !ok {
			continue
		}
		st, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("cannot list segments: %w", err)
		}
		segments = append(segments, segment{first: first, size: st.Size()})
	}
	sort.Slice(segments, func(i, j int) bool { return segments[i].first < segments[j].first })
	return segments, nil
}

// recover takes up the last segment: reads it, cuts a torn end off and goes on
// behind it. On error l is as before.
func (l *Log) recover(s segment) error {
	f, err := os.OpenFile(filepath.Join(l.dir, segmentName(s.first)), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("cannot open segment: %w", err)
	}
	st, err := scanSegment(f, s)
	if err == nil && st.damaged {
		l.log.Error("a log segment is damaged; reading goes on before the damage", "segment", f.Name(), "copy", setAside(f, s.size))
	}
	if err == nil && st.end < s.size {
		l.log.Warn("cut off the torn end of a log segment", "segment", segmentName(s.first), "bytes", s.size-st.end)
		err = f.Truncate(st.end)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.active, l.end = f, st.end
	l.next, l.last = st.next, st.last
	l.enc = st.encoder()
	l.dirty = true // the daemon before may have died before its sync
	l.rebooted = st.boot != l.logs.boot
	l.damaged = st.damaged
	l.fresh = l.rebooted
	for k, offset := range st.offsets {
		l.streams[k] = &stream{offset: offset}
	}
	return nil
}

// setAside keeps a copy of a damaged segment: what lies behind the damage is
// about to be cut off, and somebody may want to look at it. It tells where the
// copy is or why there is none; a log must open without it.
func setAside(f *os.File, size int64) string {
	path := f.Name() + damagedSuffix
	aside, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err.Error()
	}
	_, err = io.Copy(aside, io.NewSectionReader(f, 0, size))
	if err = errors.Join(err, aside.Close()); err != nil {
		return errors.Join(err, os.Remove(path)).Error()
	}
	return path
}

// segmentState is what a segment says when read from its first byte to its last.
type segmentState struct {
	next    uint64
	last    int64
	boot    string
	end     int64 // behind the last whole frame
	damaged bool  // what follows it was not torn by a kill
	offsets map[streamKey]int64
	dec     decoder
}

// scanSegment reads s; a torn end is no error, a torn beginning is.
func scanSegment(f io.ReaderAt, s segment) (segmentState, error) {
	r := segmentReader{f: f, end: s.size}
	first, err := r.header()
	if err != nil {
		return segmentState{}, err
	}
	payload, err := r.next()
	if errors.Is(err, io.EOF) {
		err = errTorn
	}
	if err != nil {
		return segmentState{}, err
	}
	c, err := decodeCheckpoint(payload)
	if err != nil {
		return segmentState{}, err
	}
	if first != s.first || c.Next != s.first {
		return segmentState{}, fmt.Errorf("segment %s says that it begins with line %d: it was renamed; move it away", segmentName(s.first), first)
	}
	st := segmentState{next: c.Next, last: c.Last, boot: c.Boot, offsets: c.Offsets, end: r.pos}
	return st, st.scan(&r)
}

func (st *segmentState) scan(r *segmentReader) error {
	var es []Envelope
	for {
		payload, err := r.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errTorn) {
			st.damaged = errors.Is(err, errDamaged)
			return nil
		}
		if err != nil {
			return err
		}
		if es, err = st.dec.batch(payload, es[:0]); err != nil {
			return fmt.Errorf("a frame with a right checksum cannot be read: %w", err)
		}
		st.take(es)
		st.end = r.pos
	}
}

func (st *segmentState) take(es []Envelope) {
	for i := range es {
		e := &es[i]
		st.next, st.last = e.Seq+1, e.Time.UnixNano()
		if e.captured() && (i+1 == len(es) || !sameStream(e, &es[i+1])) {
			st.offsets[streamKey{e.Source.InstanceID, e.Exec, e.Stream}] = e.To
		}
	}
}

// encoder goes on where the segment's writer stopped.
func (st *segmentState) encoder() *encoder {
	enc := newEncoder()
	for i, s := range st.dec.speakers {
		enc.places[s] = &place{id: i, to: st.dec.to[i]}
	}
	return enc
}

// forgetGone drops the offsets of capture files whose folder is no more.
func (l *Log) forgetGone() error {
	instances, err := l.Captures()
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, id := range instances {
		there[id] = true
	}
	for k := range l.streams {
		if !there[k.Instance] {
			delete(l.streams, k)
		}
	}
	return nil
}

// sayLosses leaves one record of what a power cut or the disk may have taken.
func (l *Log) sayLosses() {
	cause := "the machine was restarted within a second of printing them"
	switch {
	case l.damaged:
		cause = "the end of the log's last segment was damaged"
	case !l.rebooted || len(l.streams) == 0:
		return
	}
	if err := l.Gap(Source{Type: "CELL"}, cause, 0); err != nil {
		l.log.Error("cannot record what may be missing", "err", err)
	}
}

// LastSeq is the sequence number of the newest line, 0 when there is none.
func (l *Log) LastSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next - 1
}

// Append adds lines as one frame with one write, and wakes the readers once. It
// sets Seq and Time of the envelopes in es. It does not wait for the disk: what
// it wrote survives the death of any process, and a power cut one second later.
// Either all lines are in the log or none.
func (l *Log) Append(es ...Envelope) error {
	if len(es) == 0 {
		return nil
	}
	begin := time.Now()
	defer func() { l.logs.pace.add(time.Since(begin)) }()
	for tries := 0; ; tries++ {
		err := l.append(es)
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
	text := howMany(count) + " missing: " + cause
	return l.Append(Envelope{Source: src, Stream: Err, Flags: Gap, Text: []byte(text)})
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

func (l *Log) append(es []Envelope) error {
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
	l.active, l.enc, l.fresh, l.newNames = f, enc, false, true
	// A new list: views share the old one.
	segments := make([]segment, len(l.segments), len(l.segments)+1)
	copy(segments, l.segments)
	if n := len(segments); n > 0 {
		segments[n-1].size = l.end
	}
	l.segments = append(segments, segment{first: l.next})
	l.end = int64(len(b))
	l.logs.wakeSyncer()
	return nil
}

func (l *Log) checkpoint() checkpoint {
	c := checkpoint{Next: l.next, Last: l.last, Boot: l.logs.boot, Offsets: make(map[streamKey]int64, len(l.streams))}
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
