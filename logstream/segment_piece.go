package logstream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
)

const (
	pieceSize = 64 << 10  // bytes of a segment that a cursor has in memory
	keptPiece = 256 << 10 // a longer buffer is not reused
)

// piece is the memory that one Next needs. Cursors share a few pieces: a cursor that
// waits for a client has returned its piece.
type piece struct {
	lines []Envelope
	buf   []byte
	have  []byte // the end of buf, if it is the bytes at the position of the cursor
}

var pieces = sync.Pool{New: func() any {
	return &piece{lines: make([]Envelope, 0, maxNext), buf: make([]byte, pieceSize)}
}}

// segmentFile is a segment that is opened when it is read for the first time.
type segmentFile struct {
	path string
	file *os.File
}

func (s *segmentFile) ReadAt(b []byte, at int64) (int, error) {
	if s.file == nil {
		f, err := os.Open(s.path)
		if err != nil {
			return 0, fmt.Errorf("cannot open segment: %w", err)
		}
		s.file = f
	}
	return s.file.ReadAt(b, at)
}

func (s *segmentFile) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}

// readSegment returns the next lines of s, as many as are in memory after one read, and
// at most maxNext. It holds no more than that, however long a batch is. What is in memory
// after these lines is for the next call, unless Release is called before.
func (c *Cursor) readSegment(s segment) ([]Envelope, error) {
	f := segmentFile{path: filepath.Join(c.log.dir, segmentName(s.first))}
	defer f.close()
	if c.piece == nil {
		c.piece = pieces.Get().(*piece)
	}
	r := segmentReader{f: &f, pos: c.pos, end: s.size, have: c.piece.have, chunk: pieceSize, buf: c.piece.buf}
	es := c.piece.lines[:0]
	var err error
	if r.pos == 0 {
		err = c.skipHeader(&r)
	}
	if err == nil {
		es, err = c.readPiece(&r, es)
	}
	c.piece.buf, c.piece.lines, c.piece.have = r.buf, es[:0], nil
	if err == nil && r.pos == c.pos {
		c.piece.have = r.have
	}
	if !c.reuse {
		es = keep(es)
		c.Release()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return es, err
}

// readPiece appends the next lines. It stops reading once it has some, because their
// texts are in the buffer.
func (c *Cursor) readPiece(r *segmentReader, es []Envelope) ([]Envelope, error) {
	for len(es) < maxNext && !c.done() {
		if c.batch.left == 0 {
			if len(es) > 0 && r.pos < r.end && !r.buffered() {
				break
			}
			b, err := r.batch()
			if err != nil {
				return es, err
			}
			c.batch = b
		}
		from, at := len(es), r.pos
		var err error
		es, err = c.decode(r, es)
		c.pos = r.pos
		es = append(es[:from], c.selectWanted(es[from:])...)
		if err != nil {
			return es, err
		}
		if r.pos == at && len(es) > 0 {
			break
		}
	}
	return es, nil
}

// decode appends the lines of r's current batch that are in memory, and at least one if
// es is empty.
func (c *Cursor) decode(r *segmentReader, es []Envelope) ([]Envelope, error) {
	for c.batch.left > 0 && len(es) < maxNext {
		have := r.have[:min(int64(len(r.have)), c.batch.end-r.pos)]
		line := fieldReader{b: have}
		es = append(es, Envelope{})
		if c.dec.line(&line, &c.batch, &es[len(es)-1]) {
			r.skip(len(have) - len(line.b))
			continue
		}
		es = es[:len(es)-1]
		if len(es) > 0 {
			return es, nil
		}
		if err := r.widen(c.batch.end); err != nil {
			return es, err
		}
	}
	if c.batch.left == 0 && r.pos != c.batch.end {
		return es, errTorn
	}
	return es, nil
}

// batch enters the next frame up to its first line, and checks its checksum. It returns
// io.EOF at the end, or errTorn.
func (s *segmentReader) batch() (batch, error) {
	if s.pos >= s.end {
		return batch{}, io.EOF
	}
	if err := s.fill(frameHead); err != nil {
		return batch{}, err
	}
	n, err := frameSize(s.have)
	if err != nil {
		return batch{}, err
	}
	if int64(n) <= s.chunk {
		if err = s.fill(n); err == nil {
			_, err = framePayload(s.have)
		}
	} else {
		err = s.sum(n)
	}
	if err != nil {
		return batch{}, err
	}
	if err := s.fill(int(min(int64(n), s.chunk))); err != nil {
		return batch{}, err
	}
	head := fieldReader{b: s.have[frameHead:min(n, len(s.have))]}
	size := len(head.b)
	b, err := readBatch(&head, n)
	if err != nil {
		return batch{}, err
	}
	b.end = s.pos + int64(n)
	s.skip(frameHead + size - len(head.b))
	return b, nil
}

// sum checks the checksum of a frame of n bytes that is longer than a piece.
func (s *segmentReader) sum(n int) error {
	if int64(n) > s.end-s.pos {
		return errTorn
	}
	want, sum := binary.LittleEndian.Uint32(s.have[4:]), uint32(0)
	from := s.pos
	for at, end := from+frameHead, from+int64(n); at < end; at += int64(len(s.have)) {
		s.pos, s.have = at, nil
		if err := s.fill(int(min(s.chunk, end-at))); err != nil {
			s.pos = from
			return err
		}
		s.have = s.have[:min(int64(len(s.have)), end-at)]
		sum = crc32.Update(sum, castagnoli, s.have)
	}
	s.pos, s.have = from, nil
	if sum != want {
		return errDamaged
	}
	return nil
}

// widen reads more bytes of the frame that stops at end, because a line did not fit.
func (s *segmentReader) widen(end int64) error {
	left := end - s.pos
	if int64(len(s.have)) >= left {
		return errTorn
	}
	return s.fill(int(min(left, max(s.chunk, 2*int64(len(s.have))))))
}
