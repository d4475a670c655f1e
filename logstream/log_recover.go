package logstream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/dewrun/dew/logstream/disk"
)

// openLog restores a log's state from its last segment.
func openLog(ls *Logs, dir string) (*Log, error) {
	if err := os.MkdirAll(filepath.Join(dir, "capture"), 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the log folder: %w", err)
	}
	l := &Log{
		logs: ls, dir: dir, log: ls.log.With("app", filepath.Base(dir)), next: 1,
		enc: newEncoder(), streams: map[streamKey]*stream{}, leaves: map[leafKey]int{}, lastFreezeRecord: map[leafKey]time.Time{},
	}
	segments, err := listSegments(dir)
	if err != nil {
		return nil, err
	}
	// A segment whose first bytes are torn holds no line. The segment before it has the
	// earlier state.
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
	if err := l.removeRecorded(); err != nil {
		return nil, err
	}
	l.born = l.next
	return l, l.removeMissing()
}

// removeRecorded finishes the work of a killed daemon: it removes segments whose lines are
// already recorded as dropped. Dropped lines without a record get one soon, because the
// oldest segment and the last record say how many they are.
func (l *Log) removeRecorded() error {
	if len(l.segments) == 0 {
		return nil
	}
	if l.index.old { // the old format does not say: earlier drops were recorded, or never will be
		l.recordedDrop = l.segments[0].first - 1
	}
	for len(l.segments) > 1 && l.segments[1].first <= l.recordedDrop+1 {
		if err := os.Remove(filepath.Join(l.dir, segmentName(l.segments[0].first))); err != nil {
			return fmt.Errorf("cannot remove an old segment: %w", err)
		}
		l.segments, l.newNames = l.segments[1:], true
	}
	return nil
}

// discard removes a segment whose first bytes cannot be read. If a torn first write
// does not explain its bytes, it is kept under another name.
func (l *Log) discard(s segment, only bool) error {
	path := filepath.Join(l.dir, segmentName(s.first))
	if s.size <= disk.Block {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("cannot remove an incomplete segment: %w", err)
		}
		return nil
	}
	if only {
		return fmt.Errorf("the start of segment %s is damaged: to continue without its lines, move the file to another folder", path)
	}
	l.log.Error("the start of a log segment is damaged; dewd renames the file", "segment", path+damagedSuffix)
	if err := os.Rename(path, path+damagedSuffix); err != nil {
		return fmt.Errorf("cannot rename a damaged segment: %w", err)
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

// recover opens the last segment: it reads it, truncates a torn end and continues after
// it. On error l is unchanged.
func (l *Log) recover(s segment) error {
	f, err := os.OpenFile(filepath.Join(l.dir, segmentName(s.first)), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("cannot open segment: %w", err)
	}
	st, err := scanSegment(f, s)
	if err == nil && st.damaged {
		l.log.Error("a log segment is damaged; dewd continues after its last readable line", "segment", f.Name(), "copy", copyDamaged(f, s.size))
	}
	if err == nil && st.end < s.size {
		l.log.Warn("removed the incomplete end of a log segment", "segment", segmentName(s.first), "bytes", s.size-st.end)
		err = f.Truncate(st.end)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.active, l.end = f, st.end
	l.next, l.last, l.start = st.next, st.last, st.began
	l.enc = st.encoder()
	l.dirty = true // the previous daemon could have died before its sync
	l.rebooted = st.boot != l.logs.boot
	l.damaged = st.damaged
	l.index, l.recordedDrop = st.index, st.recordedDrop
	l.startSegment = l.rebooted || st.dec.old
	for k, offset := range st.offsets {
		l.streams[k] = &stream{offset: offset}
	}
	return nil
}

// copyDamaged stores a copy of a damaged segment for inspection, because the bytes after
// the damage are about to be truncated. It returns where the copy is or why there is
// none. A log must open without it.
func copyDamaged(f *os.File, size int64) string {
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

// segmentState is the state of a segment after reading all of it.
type segmentState struct {
	next         uint64
	last         int64
	began        int64 // time of its first line, 0 if it has none
	boot         string
	end          int64 // offset after the last whole frame
	damaged      bool  // the bytes after it were not torn by a kill
	recordedDrop uint64
	offsets      map[streamKey]int64
	dec          decoder
	index        *index
}

// scanSegment reads s. A torn end is not an error; a torn beginning is.
func scanSegment(f io.ReaderAt, s segment) (segmentState, error) {
	r := segmentReader{f: f, end: s.size}
	c, err := r.checkpoint(s)
	if err != nil {
		return segmentState{}, err
	}
	old := r.format == oldFormat
	st := segmentState{
		next: c.Next, last: c.Last, boot: c.Boot, recordedDrop: c.RecordedDrop, offsets: c.Offsets, end: r.pos,
		dec: decoder{old: old}, index: &index{first: s.first, old: old},
	}
	return st, st.scan(&r)
}

func (st *segmentState) scan(r *segmentReader) error {
	var es []Envelope
	for {
		if st.index.due(r.pos) {
			st.index.add(st.dec.mark(r.pos, st.next, st.last))
		}
		payload, err := r.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errTorn) {
			st.damaged = errors.Is(err, errDamaged)
			return nil
		}
		if err != nil {
			return err
		}
		if es, err = st.dec.batch(payload, es[:0]); err != nil {
			return fmt.Errorf("cannot decode a frame although its checksum is correct: %w", err)
		}
		st.add(es)
		st.end = r.pos
	}
}

func (st *segmentState) add(es []Envelope) {
	for i := range es {
		e := &es[i]
		st.next, st.last = e.Seq+1, e.Time.UnixNano()
		if st.began == 0 {
			st.began = st.last
		}
		if e.Lost != nil && e.Lost.Cause == LostRetention {
			st.recordedDrop += uint64(e.Lost.Lines)
		}
		if e.captured() && (i+1 == len(es) || !sameStream(e, &es[i+1])) {
			st.offsets[streamKey{e.Source.InstanceID, e.Exec, e.Stream}] = e.To
		}
	}
}

// encoder returns an encoder that continues where the segment's writer stopped.
func (st *segmentState) encoder() *encoder {
	enc := newEncoder()
	for i, s := range st.dec.entries {
		enc.positions[s] = &dictPosition{id: i, to: st.dec.to[i], lines: st.dec.lines[i]}
	}
	return enc
}

// removeMissing drops the offsets of capture files whose folder no longer exists.
func (l *Log) removeMissing() error {
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

// recordLosses writes one record of the lines that a power cut or the disk could have
// lost.
func (l *Log) recordLosses() {
	lost, text := Loss{Cause: LostPower}, "lines may be missing: the machine was restarted within a second of printing them"
	switch {
	case l.damaged:
		lost, text = Loss{Cause: LostDamage}, "lines may be missing: the end of the log's last segment was damaged"
	case !l.rebooted || len(l.streams) == 0:
		return
	}
	if err := l.Append(gapLine(Source{Type: sourceCell}, lost, text)); err != nil {
		l.log.Error("cannot record in the log that lines may be missing", "err", err)
	}
}
