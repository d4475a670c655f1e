package link

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Kind is the kind of a frame.
type Kind byte

// The kinds of frames on streams.
const (
	// From a wrapper and from an agent.
	KindExit     Kind = 'e' // Exit
	KindFinished Kind = 'f' // Finished
	KindGrown    Kind = 'g' // from a wrapper: Position of the end of a capture file
	KindOutput   Kind = 'o' // from an agent: Position and bytes
	KindSynced   Kind = 'y' // from an agent: the number of a KindSync

	// To an agent, and from there to a wrapper.
	KindFreed Kind = 'a' // Position: the bytes before it are stored
	KindPause Kind = 'p' // to an agent: Position with 1 or 0, send no more output of a process
	KindSync  Kind = 's' // to an agent: a number

	// On the stream of a session.
	KindSpec     Kind = 'S' // Session
	KindInput    Kind = '0'
	KindInputEnd Kind = 'E'
	KindStdout   Kind = '1'
	KindStderr   Kind = '2'
	KindResize   Kind = 'r' // Size
	KindSignal   Kind = 'k' // a number
	KindResult   Kind = 'x' // SessionResult

	// At the end of an answer to PathPack.
	KindPacked Kind = 'P' // Packed
)

// maxFrame is the maximum size of a frame.
const maxFrame = 1 << 20

// Frames writes frames. Several goroutines can use it.
type Frames struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

// NewFrames returns a writer of frames.
func NewFrames(w io.Writer) *Frames { return &Frames{w: w} }

// Write writes one frame.
func (f *Frames) Write(k Kind, parts ...[]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = append(f.buf[:0], byte(k), 0, 0, 0, 0)
	for _, p := range parts {
		f.buf = append(f.buf, p...)
	}
	if len(f.buf)-5 > maxFrame {
		return errors.New("the frame is too large")
	}
	binary.BigEndian.PutUint32(f.buf[1:], uint32(len(f.buf)-5))
	_, err := f.w.Write(f.buf)
	return err
}

// JSON writes a frame with a value.
func (f *Frames) JSON(k Kind, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.Write(k, b)
}

// Frame returns a frame with a value.
func Frame(k Kind, v any) ([]byte, error) {
	var b bytes.Buffer
	err := NewFrames(&b).JSON(k, v)
	return b.Bytes(), err
}

// ReadFrame reads one frame into buf, or into a new buffer if that is too small.
func ReadFrame(r io.Reader, buf []byte) (Kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("the frame has %d bytes, the maximum is %d", n, maxFrame)
	}
	if int(n) > cap(buf) {
		buf = make([]byte, n)
	}
	b := buf[:n]
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, nil, fmt.Errorf("the frame is not complete: %w", err)
	}
	return Kind(head[0]), b, nil
}

// Position is a position in one of the capture files of a Pod.
type Position struct {
	Process byte // index in the order of the Pod's processes
	Stream  byte // 0: standard output, 1: standard error
	Offset  int64
}

// positionSize is the size of an encoded Position.
const positionSize = 10

// Encode returns the encoded position.
func (p Position) Encode() []byte {
	b := make([]byte, positionSize)
	b[0], b[1] = p.Process, p.Stream
	binary.BigEndian.PutUint64(b[2:], uint64(p.Offset))
	return b
}

// DecodePosition reads a position and returns the bytes after it.
func DecodePosition(b []byte) (Position, []byte, error) {
	if len(b) < positionSize {
		return Position{}, nil, errors.New("the position is not complete")
	}
	p := Position{Process: b[0], Stream: b[1], Offset: int64(binary.BigEndian.Uint64(b[2:]))}
	if p.Stream > 1 || p.Offset < 0 {
		return Position{}, nil, errors.New("the position is not valid")
	}
	return p, b[positionSize:], nil
}

// Number encodes a number.
func Number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// DecodeNumber reads a number.
func DecodeNumber(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, errors.New("the number does not have 8 bytes")
	}
	return binary.BigEndian.Uint64(b), nil
}
