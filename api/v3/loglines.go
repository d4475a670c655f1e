package v3

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// LinesType is the media type of log lines in their binary form: consecutive records,
// each a length and that many bytes.
//
//	record  length uvarint, kind byte, fields
//	line    seq uvarint, time varint (ns), stream byte, flags byte, index varint, source, instance, text
//	        and with the flag gap: lines uvarint, bytes uvarint, cause, before the text
//	texts   seq of the last line in 8 bytes, lowest first; the texts, each with a newline unless it was cut
//	beat    seq uvarint of the last line that was checked, selected or not
//
// Only a client that accepts TextsType gets texts records.
//
// Strings start with their length; the text is the rest. A stream that stops without an
// end record was broken off.
const LinesType = "application/vnd.dew.lines"

// TextsType is the media type of the same records for clients that need only the texts of
// lines. A record of lines that are missing is still a line record.
const TextsType = "application/vnd.dew.texts"

const (
	recordEnd   byte = 0 // all selected lines have been sent
	recordLine  byte = 1
	recordBeat  byte = 2 // heartbeat
	recordTexts byte = 3

	maxRecord = 1 << 20 // a line has at most 64 KiB
)

// MaxTexts is the size after which a texts record gets no further line. With one more
// line, it still fits into the buffer of a reader.
const MaxTexts = 128 << 10

// textsHead is the size of a texts record before its texts: length, kind and seq.
const textsHead = lengthRoom + 1 + 8

// BeginTexts appends the head of a texts record. The caller appends the texts, and then
// calls EndTexts with the length of b before the call.
func BeginTexts(b []byte) []byte {
	b = append(b, make([]byte, textsHead)...)
	b[len(b)-textsHead+lengthRoom] = recordTexts
	return b
}

// EndTexts completes the texts record at start, whose last line is seq.
func EndTexts(b []byte, start int, seq uint64) []byte {
	binary.LittleEndian.PutUint64(b[start+lengthRoom+1:], seq)
	return prefixed(b, start, lengthRoom)
}

// lengthRoom is the size of the length of a line or texts record. The length comes first
// but is known last.
const lengthRoom = 3

// lineFlags are the flags of a line, in the order of their bits.
var lineFlags = []string{FlagLate, FlagCut, FlagPartial, FlagGap}

const flagGapBit = 1 << 3

// AppendLine appends the record of a line.
func AppendLine(b []byte, l *Line) []byte {
	start := len(b)
	b = append(b, make([]byte, lengthRoom)...)
	b = append(b, recordLine)
	b = binary.AppendUvarint(b, l.Seq)
	b = binary.AppendVarint(b, l.Time.UnixNano())
	stream, flags := byte(0), byte(0)
	if l.Stream == "ERR" {
		stream = 1
	}
	for _, f := range l.Flags {
		if i := slices.Index(lineFlags, f); i >= 0 {
			flags |= 1 << i
		}
	}
	b = append(b, stream, flags)
	b = binary.AppendVarint(b, int64(l.Index))
	b = appendText(b, l.Source)
	b = appendText(b, l.Instance)
	if flags&flagGapBit != 0 {
		lost := Loss{}
		if l.Lost != nil {
			lost = *l.Lost
		}
		b = binary.AppendUvarint(b, uint64(max(lost.Lines, 0)))
		b = binary.AppendUvarint(b, uint64(max(lost.Bytes, 0)))
		b = appendText(b, lost.Cause)
	}
	b = append(b, l.Text...)
	return prefixed(b, start, lengthRoom)
}

// prefixed writes the length of the record into the room bytes at start. If the length
// needs fewer bytes, it is padded, which every reader of varints accepts.
func prefixed(b []byte, start, room int) []byte {
	n := len(b) - start - room
	for i := range room - 1 {
		b[start+i] = byte(n>>(7*i))&0x7f | 0x80
	}
	b[start+room-1] = byte(n >> (7 * (room - 1)))
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// AppendBeat appends a heartbeat record, which also says that there are no more
// selected lines up to line seq.
func AppendBeat(b []byte, seq uint64) []byte {
	start := len(b)
	b = append(b, 0, recordBeat)
	b = binary.AppendUvarint(b, seq)
	b[start] = byte(len(b) - start - 1)
	return b
}

// AppendEnd appends the last record of a stream.
func AppendEnd(b []byte) []byte { return append(b, 1, recordEnd) }

// ErrBrokenOff says that a stream stopped without its end record.
var ErrBrokenOff = errors.New("the log stream ended before its last line")

// brokenOff replaces io.EOF in the error, because io.EOF means a complete stream.
func brokenOff(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrBrokenOff
	}
	return fmt.Errorf("%w: %w", ErrBrokenOff, err)
}

// LineReader reads records.
type LineReader struct {
	r    *bufio.Reader
	buf  []byte
	line Line // the previous line, because most lines have the same source

	place  uint64 // position from the last heartbeat or texts record
	placed bool
	texts  []byte // of the last record
}

// NewLineReader reads the binary form from r.
func NewLineReader(r io.Reader) *LineReader {
	return &LineReader{r: bufio.NewReaderSize(r, 256<<10)}
}

// Next returns the next line. Nil without an error is a heartbeat or a texts record.
// io.EOF means that all selected lines were sent, ErrBrokenOff that the stream stopped
// early. The line is valid until the next call.
func (lr *LineReader) Next() (*Line, error) {
	lr.texts = nil
	n, err := binary.ReadUvarint(lr.r)
	if err != nil {
		return nil, brokenOff(err)
	}
	if n == 0 || n > maxRecord {
		return nil, fmt.Errorf("%w: a record has an invalid size of %d bytes", ErrBrokenOff, n)
	}
	b, err := lr.readBytes(int(n))
	if err != nil {
		return nil, brokenOff(err)
	}
	switch b[0] {
	case recordEnd:
		return nil, io.EOF
	case recordLine:
		return &lr.line, lr.parse(b[1:])
	case recordBeat:
		p := fields{b: b[1:]}
		lr.place = p.uvarint()
		lr.placed = !p.bad
		return nil, nil //nolint:nilnil // a sign of life
	case recordTexts:
		const seq = 8
		if len(b) < 1+seq {
			return nil, fmt.Errorf("%w: a record of texts is damaged", ErrBrokenOff)
		}
		lr.place, lr.placed, lr.texts = binary.LittleEndian.Uint64(b[1:]), true, b[1+seq:]
		return nil, nil //nolint:nilnil // Texts has them
	default:
		return nil, nil //nolint:nilnil // what a later version may have to say
	}
}

// Texts returns the texts of the last record, or nil if it had none. They are valid until
// the next call of Next.
func (lr *LineReader) Texts() []byte { return lr.texts }

// Place is the number up to which there are no more selected lines, if the last
// heartbeat or texts record had it.
func (lr *LineReader) Place() (seq uint64, ok bool) { return lr.place, lr.placed }

// Buffered reports whether another record is probably buffered.
func (lr *LineReader) Buffered() bool { return lr.r.Buffered() > 0 }

// readBytes returns the next n bytes, without a copy if they are buffered.
func (lr *LineReader) readBytes(n int) ([]byte, error) {
	if n <= lr.r.Size() {
		b, err := lr.r.Peek(n)
		if err != nil {
			return nil, err
		}
		_, err = lr.r.Discard(n)
		return b, err
	}
	lr.buf = slices.Grow(lr.buf[:0], n)[:n]
	_, err := io.ReadFull(lr.r, lr.buf)
	return lr.buf, err
}

// flagLists are the lists for every combination of flags, so that no line has to
// allocate its own.
var flagLists = func() (lists [16][]string) {
	for bits := range lists {
		for i, f := range lineFlags {
			if bits&(1<<i) != 0 {
				lists[bits] = append(lists[bits], f)
			}
		}
	}
	return lists
}()

func (lr *LineReader) parse(b []byte) error {
	p := fields{b: b}
	l := &lr.line
	l.Seq = p.uvarint()
	l.Time = time.Unix(0, p.varint()).UTC()
	l.Stream = "OUT"
	if p.byte() == 1 {
		l.Stream = "ERR"
	}
	flags := p.byte()
	l.Flags = flagLists[flags&0x0f]
	l.Index = int(p.varint())
	p.text(&l.Source)
	p.text(&l.Instance)
	l.Lost = nil
	if flags&flagGapBit != 0 {
		lost := Loss{Lines: int64(min(p.uvarint(), math.MaxInt64)), Bytes: int64(min(p.uvarint(), math.MaxInt64))}
		p.text(&lost.Cause)
		l.Lost = &lost
	}
	l.Text = p.b
	if p.bad {
		return fmt.Errorf("%w: a line is damaged", ErrBrokenOff)
	}
	return nil
}

// fields reads fields from the front of a record.
type fields struct {
	b   []byte
	bad bool
}

func (p *fields) byte() byte {
	if len(p.b) == 0 {
		p.bad = true
		return 0
	}
	c := p.b[0]
	p.b = p.b[1:]
	return c
}

func (p *fields) uvarint() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.bad, p.b = true, nil
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *fields) varint() int64 {
	v, n := binary.Varint(p.b)
	if n <= 0 {
		p.bad, p.b = true, nil
		return 0
	}
	p.b = p.b[n:]
	return v
}

// text reads a string into s. It does not allocate if the string is the same as before.
func (p *fields) text(s *string) {
	n := p.uvarint()
	if n > uint64(len(p.b)) {
		p.bad, p.b = true, nil
		return
	}
	if string(p.b[:n]) != *s {
		*s = string(p.b[:n])
	}
	p.b = p.b[n:]
}
