package logstream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// fieldReader reads fields from the front of a payload. A field that does not fit sets
// bad, and all later fields are zero.
type fieldReader struct {
	b   []byte
	bad bool
}

func (r *fieldReader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *fieldReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *fieldReader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// int64 reads an unsigned number that must fit an int64.
func (r *fieldReader) int64() int64 {
	v := r.uvarint()
	if v > math.MaxInt64 {
		r.bad = true
		return 0
	}
	return int64(v)
}

func (r *fieldReader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *fieldReader) string() string { return string(r.bytes()) }

// segmentReader returns the frames of a segment up to end. Without a buffer from the
// caller it never reuses one, so the payloads stay valid.
type segmentReader struct {
	f    io.ReaderAt
	pos  int64 // position of the next frame
	end  int64
	have []byte // bytes from pos on that are already read

	format uint32 // format from the header
	chunk  int64  // bytes per read, 0 for readChunk
	buf    []byte // reused for every read; if nil, each read allocates
}

// header reads the segment's header and moves past it.
func (s *segmentReader) header() (uint64, error) {
	if err := s.fill(headerSize); err != nil {
		return 0, err
	}
	first, format, err := readHeader(s.have)
	if err != nil {
		return 0, err
	}
	s.format = format
	s.skip(headerSize)
	return first, nil
}

// next returns the next frame's payload, io.EOF at the end, or errTorn.
func (s *segmentReader) next() ([]byte, error) {
	if s.pos >= s.end {
		return nil, io.EOF
	}
	if err := s.fill(frameHead); err != nil {
		return nil, err
	}
	n, err := frameSize(s.have)
	if err != nil {
		return nil, err
	}
	if err := s.fill(n); err != nil {
		return nil, err
	}
	payload, err := framePayload(s.have)
	if err != nil {
		return nil, err
	}
	s.skip(n)
	return payload, nil
}

// buffered reports whether the whole next frame is in memory.
func (s *segmentReader) buffered() bool {
	n, err := frameSize(s.have)
	return err == nil && len(s.have) >= n
}

func (s *segmentReader) skip(n int) {
	s.pos += int64(n)
	s.have = s.have[n:]
}

// fill makes sure that n bytes are in memory.
func (s *segmentReader) fill(n int) error {
	if len(s.have) >= n {
		return nil
	}
	left := s.end - s.pos
	if int64(n) > left {
		return errTorn
	}
	chunk := s.chunk
	if chunk == 0 {
		chunk = readChunk
	}
	size := max(int64(n), min(chunk, left))
	buf := s.buf
	if int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if s.buf != nil {
		s.buf = buf
	}
	got, err := s.f.ReadAt(buf, s.pos)
	if got < n {
		if err == nil || errors.Is(err, io.EOF) {
			return errTorn
		}
		return fmt.Errorf("cannot read segment: %w", err)
	}
	s.have = buf[:got]
	return nil
}
