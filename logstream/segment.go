package logstream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A segment file is a header and frames:
//
//	header  magic 8, format u32, reserved u32, first seq u64, crc32c u32, reserved u32
//	frame   payload length u32, crc32c of the payload u32, payload
//	payload kind byte, then varints
//
// The first frame is a checkpoint: how far each capture file was read when the segment
// was created. So recovery reads only the last segment. A batch names each source once
// per segment. A line costs 4 to 6 bytes in addition to its text. Format 1 had no
// losses in gap records and no RecordedDrop in checkpoints.
const (
	segmentMagic  = "dewseg\r\n"
	segmentFormat = 2
	oldFormat     = 1
	segmentSuffix = ".seg"
	damagedSuffix = ".damaged"
	headerSize    = 32
	frameHead     = 8
	maxFrame      = 32 << 20
	readChunk     = 256 << 10

	kindCheckpoint byte = 1
	kindBatch      byte = 2

	tagStreamMask    = 0x03
	tagFlagShift     = 2
	tagFlagMask      = 0x0f
	tagCaptured      = 0x40
	tagExplicitRange = 0x80
)

// ErrNewerFormat says that segments were written by a newer daemon.
var ErrNewerFormat = errors.New("written by a newer dewd")

// errTorn says that the bytes at this position are not a whole frame, because a kill or
// a power cut interrupted the write.
var errTorn = errors.New("incomplete frame")

// errDamaged says that a frame is whole but its checksum is wrong. A kill cannot cause
// that, only a power cut or the disk.
var errDamaged = fmt.Errorf("%w: wrong checksum", errTorn)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// streamKey names one capture file of an app.
type streamKey struct {
	Instance, Exec string
	Stream         Stream
}

func (k streamKey) String() string { return k.Instance + "/" + k.Exec + k.Stream.suffix() }

// checkpoint is the state that a segment needs from the segments before it.
type checkpoint struct {
	Next         uint64 // sequence number of the segment's first line
	Last         int64  // time of the line before it, Unix nanoseconds
	Boot         string // the machine's boot ID when the segment was created
	RecordedDrop uint64 // lines up to this one are recorded as dropped
	Offsets      map[streamKey]int64
}

func segmentName(first uint64) string { return fmt.Sprintf("%020d%s", first, segmentSuffix) }

// segmentFirst reads the first sequence number out of a segment's file name.
func segmentFirst(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(filepath.Base(name), segmentSuffix)
	if !ok {
		return 0, false
	}
	first, err := strconv.ParseUint(digits, 10, 64)
	return first, err == nil && first > 0
}

func appendHeader(b []byte, first uint64) []byte {
	start := len(b)
	b = append(b, segmentMagic...)
	b = binary.LittleEndian.AppendUint32(b, segmentFormat)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, first)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
	return binary.LittleEndian.AppendUint32(b, 0)
}

// readHeader returns the first sequence number and the format. It reads the format
// before the checksum, because a newer format can have a different checksum.
func readHeader(b []byte) (first uint64, format uint32, err error) {
	if len(b) < headerSize || string(b[:8]) != segmentMagic {
		return 0, 0, errTorn
	}
	format = binary.LittleEndian.Uint32(b[8:])
	if f := format; f > segmentFormat {
		return 0, 0, fmt.Errorf("%w (the segment has format %d, this dewd supports formats up to %d): start the newer dewd, or move the app's log folder to another place", ErrNewerFormat, f, segmentFormat)
	}
	if binary.LittleEndian.Uint32(b[24:]) != crc32.Checksum(b[:24], castagnoli) {
		return 0, 0, errTorn
	}
	return binary.LittleEndian.Uint64(b[16:]), format, nil
}

// beginFrame reserves space for the frame's head; endFrame fills it in.
func beginFrame(b []byte) ([]byte, int) {
	return append(b, make([]byte, frameHead)...), len(b)
}

func endFrame(b []byte, start int) error {
	payload := b[start+frameHead:]
	if len(payload) > maxFrame {
		return fmt.Errorf("a batch of %d bytes is larger than %d", len(payload), maxFrame)
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[start+4:], crc32.Checksum(payload, castagnoli))
	return nil
}

// frameSize returns the size of the frame that starts with b, including its head.
func frameSize(b []byte) (int, error) {
	if len(b) < frameHead {
		return 0, errTorn
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > maxFrame {
		return 0, errTorn
	}
	return frameHead + int(n), nil
}

// framePayload returns the payload of the whole frame b if its checksum is right.
func framePayload(b []byte) ([]byte, error) {
	n, err := frameSize(b)
	if err != nil || len(b) < n {
		return nil, errTorn
	}
	payload := b[frameHead:n:n]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, errDamaged
	}
	return payload, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendCheckpoint(b []byte, c checkpoint) ([]byte, error) {
	b, start := beginFrame(b)
	b = append(b, kindCheckpoint)
	b = binary.AppendUvarint(b, c.Next)
	b = binary.AppendVarint(b, c.Last)
	b = appendString(b, c.Boot)
	b = binary.AppendUvarint(b, uint64(len(c.Offsets)))
	for k, offset := range c.Offsets {
		b = appendString(b, k.Instance)
		b = appendString(b, k.Exec)
		b = append(b, byte(k.Stream))
		b = binary.AppendUvarint(b, uint64(offset))
	}
	b = binary.AppendUvarint(b, c.RecordedDrop)
	return b, endFrame(b, start)
}

func decodeCheckpoint(payload []byte, format uint32) (checkpoint, error) {
	r := fieldReader{b: payload}
	if r.byte() != kindCheckpoint {
		return checkpoint{}, errTorn
	}
	c := checkpoint{Next: r.uvarint(), Last: r.varint(), Boot: r.string(), Offsets: map[streamKey]int64{}}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		k := streamKey{Instance: r.string(), Exec: r.string(), Stream: Stream(r.byte())}
		c.Offsets[k] = r.int64()
	}
	if format > oldFormat {
		c.RecordedDrop = r.uvarint()
	}
	if r.bad || len(r.b) > 0 {
		return checkpoint{}, errTorn
	}
	return c, nil
}

// dictEntry is an entry of a segment's dictionary: a source and its exec.
type dictEntry struct {
	Source
	Exec string
}

// dictPosition is an entry's number in the dictionary and the offsets of its streams. With
// them, a range that follows the one before need not be written.
type dictPosition struct {
	id    int
	to    [tagStreamMask + 1]int64
	lines lineCount
}

// lineCount is how many lines of an entry a segment has so far, for each stream. Gap
// records are in element 0, because a reader wants them for other reasons.
type lineCount [tagStreamMask + 1]uint32

func (n *lineCount) add(stream byte, f Flags) {
	if f&Gap != 0 {
		stream = 0
	}
	n[stream]++
}

var unknownOffsets = [tagStreamMask + 1]int64{-1, -1, -1, -1}

// encoder writes the batches of one segment.
type encoder struct {
	positions map[dictEntry]*dictPosition
	added     []dictEntry // added by the batch that is being written
	uncounted bool        // the numbers of lines are not known
}

func newEncoder() *encoder { return &encoder{positions: map[dictEntry]*dictPosition{}} }

// rollback forgets the last batch, whose write failed. The stream offsets before it are
// no longer known, so the next ranges are written in full. Neither are the numbers of
// lines.
func (e *encoder) rollback() {
	for _, s := range e.added {
		delete(e.positions, s)
	}
	for _, p := range e.positions {
		p.to = unknownOffsets
	}
	e.added, e.uncounted = e.added[:0], true
}

// batch appends one frame with es to b. first is the number of its first line. clock is
// a copy: it returns the same times that commit will set later.
func (e *encoder) batch(b []byte, first uint64, clock stamper, es []Envelope) ([]byte, error) {
	e.added = e.added[:0]
	b, start := beginFrame(b)
	b = append(b, kindBatch)
	b = binary.AppendUvarint(b, first)
	b = binary.AppendVarint(b, clock.last)
	b = binary.AppendUvarint(b, uint64(len(es)))
	var who dictEntry
	var at *dictPosition
	for i := range es {
		before := clock.last
		delta := uint64(clock.stamp(es[i].Time) - before)
		if next := (dictEntry{es[i].Source, es[i].Exec}); at == nil || next != who {
			who, at = next, e.positions[next]
		}
		b = e.record(b, &es[i], delta, &at)
	}
	return b, endFrame(b, start)
}

// record appends one line. An entry that the dictionary lacks gets the next number,
// and its definition follows directly.
func (e *encoder) record(b []byte, env *Envelope, delta uint64, at **dictPosition) []byte {
	p := *at
	isNew := p == nil
	if isNew {
		p = &dictPosition{id: len(e.positions), to: unknownOffsets}
		*at = p
		e.positions[dictEntry{env.Source, env.Exec}] = p
		e.added = append(e.added, dictEntry{env.Source, env.Exec})
	}
	stream := byte(env.Stream) & tagStreamMask
	tag := stream | (byte(env.Flags)&tagFlagMask)<<tagFlagShift
	explicit := false
	if env.captured() {
		tag |= tagCaptured
		explicit = env.From != p.to[stream] || env.To != impliedTo(env)
	}
	if explicit {
		tag |= tagExplicitRange
	}
	b = append(b, tag)
	b = binary.AppendUvarint(b, uint64(p.id))
	if isNew {
		b = appendString(b, env.Source.Type)
		b = binary.AppendVarint(b, int64(env.Source.Index))
		b = appendString(b, env.Source.InstanceID)
		b = appendString(b, env.Exec)
	}
	b = binary.AppendUvarint(b, delta)
	if explicit {
		b = binary.AppendUvarint(b, uint64(env.From))
		b = binary.AppendUvarint(b, uint64(env.To-env.From))
	}
	if env.captured() {
		p.to[stream] = env.To
	}
	p.lines.add(stream, env.Flags)
	if env.Flags&Gap != 0 {
		b = appendLoss(b, env.Lost)
	}
	b = binary.AppendUvarint(b, uint64(len(env.Text)))
	return append(b, env.Text...)
}

func appendLoss(b []byte, lost *Loss) []byte {
	if lost == nil {
		lost = &Loss{}
	}
	b = binary.AppendUvarint(b, uint64(max(lost.Lines, 0)))
	b = binary.AppendUvarint(b, uint64(max(lost.Bytes, 0)))
	return appendString(b, lost.Cause)
}

// impliedTo is the offset where a line that starts at From would end: after its
// newline, if it has one.
func impliedTo(e *Envelope) int64 {
	to := e.From + int64(len(e.Text))
	if e.Flags&(Cut|Partial) == 0 {
		to++
	}
	return to
}

// decoder reads the batches of one segment, in order from the first.
type decoder struct {
	old     bool // the segment has the old format
	entries []dictEntry
	to      [][tagStreamMask + 1]int64
	lines   []lineCount
}

// batch appends the payload's lines to es. Their texts alias the payload.
func (d *decoder) batch(payload []byte, es []Envelope) ([]Envelope, error) {
	r := fieldReader{b: payload}
	b, err := readBatch(&r, len(payload))
	if err != nil {
		return es, err
	}
	es = slices.Grow(es, int(min(b.left, maxNext))) // do not trust the count with more memory than this
	for b.left > 0 {
		es = append(es, Envelope{})
		if !d.line(&r, &b, &es[len(es)-1]) {
			return es[:len(es)-1], errTorn
		}
	}
	if len(r.b) > 0 {
		return es, errTorn
	}
	return es, nil
}

// batch is the read position within a batch.
type batch struct {
	left uint64 // remaining lines
	seq  uint64 // number of the next line
	now  int64  // time of the previous line
	end  int64  // position after the batch's frame
}

// readBatch reads the fields before the lines of a payload of size bytes.
func readBatch(r *fieldReader, size int) (batch, error) {
	kind := r.byte()
	b := batch{seq: r.uvarint(), now: r.varint(), left: r.uvarint()}
	if r.bad || kind != kindBatch || b.left > uint64(size) { // a line takes more than one byte
		return batch{}, errTorn
	}
	return b, nil
}

// line reads the next line of b into env. It returns false if r does not hold all of
// the line; then it has changed only env and r.
func (d *decoder) line(r *fieldReader, b *batch, env *Envelope) bool {
	known := len(d.entries)
	env.Seq = b.seq
	now := d.record(r, env, b.now)
	if r.bad {
		d.entries, d.to, d.lines = d.entries[:known], d.to[:known], d.lines[:known]
		return false
	}
	b.seq, b.now, b.left = b.seq+1, now, b.left-1
	return true
}

func (d *decoder) record(r *fieldReader, env *Envelope, before int64) int64 {
	tag := r.byte()
	id := r.uvarint()
	if id > uint64(len(d.entries)) {
		r.bad = true
		return before
	}
	if id == uint64(len(d.entries)) {
		src := Source{Type: r.string(), Index: int(r.varint()), InstanceID: r.string()}
		d.entries = append(d.entries, dictEntry{src, r.string()})
		d.to, d.lines = append(d.to, unknownOffsets), append(d.lines, lineCount{})
	}
	now := before + r.int64()
	stream := tag & tagStreamMask
	env.Source, env.Exec = d.entries[id].Source, d.entries[id].Exec
	env.Stream = Stream(stream)
	env.Flags = Flags(tag >> tagFlagShift & tagFlagMask)
	env.Time = time.Unix(0, now).UTC()
	env.From = d.to[id][stream]
	length := int64(0)
	if tag&tagExplicitRange != 0 {
		env.From, length = r.int64(), r.int64()
	}
	if env.Flags&Gap != 0 && !d.old {
		if lost := (Loss{Lines: r.int64(), Bytes: r.int64(), Cause: r.string()}); lost != (Loss{}) {
			env.Lost = &lost
		}
	}
	env.Text = r.bytes()
	if tag&tagCaptured == 0 {
		env.From, env.Exec = 0, ""
		if !r.bad {
			d.lines[id].add(stream, env.Flags)
		}
		return now
	}
	env.To = env.From + length
	if tag&tagExplicitRange == 0 {
		env.To = impliedTo(env)
	}
	if env.From < 0 || env.To < env.From {
		r.bad = true
	}
	if !r.bad {
		d.to[id][stream] = env.To
		d.lines[id].add(stream, env.Flags)
	}
	return now
}
