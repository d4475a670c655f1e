package route

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// If a server and its client or app disagree about the end of a request, the server
// mistakes a body for a request (request smuggling). net/http accepts some requests
// that are ambiguous. So a screen checks the incoming bytes first and accepts only
// requests with one meaning:
//
//	head ──▶ Content-Length n ─▶ n bytes ────────────────────────▶ head …
//	     ├─▶ chunked ─▶ size ─▶ bytes ─▶ … ─▶ 0 ─▶ trailer ──────▶ head …
//	     ├─▶ neither ───────────────────────────────────────────▶ head …
//	     └─▶ HTTP/2, or Upgrade: all that follows as it is
//
// It stores only an incomplete line. A refused request is replaced by data that
// net/http refuses with 400, which also closes the connection.

// writePatience is how long a client can block without reading its response.
const writePatience = 2 * time.Minute

// maxLine limits a line of a head. The server's own limit for the whole head is
// smaller.
const maxLine = 2 * maxHeader

// errUnclear means that a body has no clear end.
var errUnclear = errors.New("the length of the request is not clear")

// replacement returns the replacement of a refused line, which the server also refuses.
func (s *screen) replacement() []byte {
	switch {
	case s.part == partSize, s.part == partEnd:
		return []byte("z\r\n") // neither a number nor a line end
	case len(s.line) > 0: // the start of the line was already read
		return []byte("\r\n:\r\n\r\n")
	}
	return []byte(":\r\n\r\n")
}

// Screen puts a screen in front of every connection of a listener.
func Screen(l net.Listener) net.Listener { return screened{l} }

type screened struct{ net.Listener }

// Accept waits for the next connection.
func (s screened) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &screen{Conn: c}, nil
}

// part is the position of a screen in a request.
type part int

const (
	partLine    part = iota // the request line
	partHeader              // lines of the header
	partBody                // a known number of bytes
	partSize                // the line before a chunk
	partEnd                 // the line end after a chunk
	partTrailer             // lines after the last chunk
	partAny                 // anything
	partOver                // refused
)

// screen is a connection that accepts only unambiguous requests.
type screen struct {
	net.Conn

	// Only the reader uses these.
	part   part
	line   []byte // the received part of a line
	left   int64  // remaining bytes of the body or chunk
	first  bool   // a request was received before
	head   head
	unread []byte // to be read before anything else

	until atomic.Int64 // write deadline
}

// head has the data of a head that determines the end of the request.
type head struct {
	old     bool // HTTP/1.0
	length  int64
	has     bool // a Content-Length
	chunked bool
	upgrade bool
}

// Read returns received data that passed the check.
func (s *screen) Read(p []byte) (int, error) {
	if len(s.unread) > 0 {
		n := copy(p, s.unread)
		s.unread = s.unread[n:]
		return n, nil
	}
	if s.part == partOver {
		return 0, errUnclear
	}
	n, err := s.Conn.Read(p)
	if s.part == partAny || n == 0 {
		return n, err
	}
	good, ok := s.scan(p[:n])
	if ok {
		return n, err
	}
	s.unread, s.part = s.replacement(), partOver
	if good > 0 {
		return good, nil
	}
	return s.Read(p)
}

// scan checks received data. If it returns false, only good bytes of it can be read.
func (s *screen) scan(p []byte) (good int, ok bool) {
	for at := 0; at < len(p); {
		switch s.part {
		case partAny:
			return len(p), true
		case partBody:
			n := min(int64(len(p)-at), s.left)
			s.left -= n
			at += int(n)
			if s.left == 0 {
				s.afterBody()
			}
			continue
		}
		end := bytes.IndexByte(p[at:], '\n')
		if end < 0 {
			if len(s.line)+len(p)-at > maxLine {
				return at, false
			}
			s.line = append(s.line, p[at:]...)
			return len(p), true
		}
		line := p[at : at+end+1]
		if len(s.line) > 0 {
			line = slices.Concat(s.line, line)
		}
		if !s.checkLine(line) {
			return at, false
		}
		s.line = s.line[:0]
		at += end + 1
	}
	return len(p), true
}

// afterBody is called at the end of a body or a chunk.
func (s *screen) afterBody() {
	if s.head.chunked {
		s.part = partEnd
		return
	}
	s.nextHead()
}

func (s *screen) nextHead() { s.part, s.first, s.head = partLine, true, head{} }

// checkLine checks a complete line. It returns false if the line is refused.
func (s *screen) checkLine(line []byte) bool {
	line, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || bytes.ContainsAny(line, "\r\x00") {
		return false
	}
	switch s.part {
	case partLine:
		return s.checkRequest(line)
	case partHeader:
		if len(line) == 0 {
			return s.headEnds()
		}
		return s.checkField(line)
	case partSize:
		return s.checkSize(line)
	case partEnd:
		s.part = partSize
		return len(line) == 0
	case partTrailer:
		if len(line) == 0 {
			s.nextHead()
			return true
		}
		_, _, ok := field(line)
		return ok
	}
	return false
}

// checkRequest checks the request line. The server reports other errors in it.
func (s *screen) checkRequest(line []byte) bool {
	if !s.first && string(line) == "PRI * HTTP/2.0" {
		s.part = partAny
		return true
	}
	s.part = partHeader
	s.head.old = bytes.HasSuffix(line, []byte(" HTTP/1.0"))
	return bytes.Count(line, []byte(" ")) == 2 && !bytes.ContainsRune(line, '\t')
}

// field splits a line of a header. It refuses a continuation line, because not all
// servers parse it in the same way.
func field(line []byte) (name, value []byte, ok bool) {
	name, value, ok = bytes.Cut(line, []byte(":"))
	return name, bytes.Trim(value, " \t"), ok && len(name) > 0 && !bytes.ContainsAny(name, " \t")
}

func (s *screen) checkField(line []byte) bool {
	name, value, ok := field(line)
	if !ok {
		return false
	}
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		n, err := strconv.ParseUint(string(value), 10, 63)
		if err != nil || s.head.has && int64(n) != s.head.length {
			return false
		}
		s.head.length, s.head.has = int64(n), true
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		s.head.chunked = true // the server refuses other encodings and closes the connection
	case bytes.EqualFold(name, []byte("Upgrade")):
		s.head.upgrade = true
	}
	return true
}

// headEnds determines what follows the head.
func (s *screen) headEnds() bool {
	h := s.head
	switch {
	case h.chunked && (h.has || h.old):
		return false
	case h.upgrade:
		s.part = partAny // no further request follows: see ServeHTTP
	case h.chunked:
		s.part = partSize
	case h.length > 0:
		s.part, s.left = partBody, h.length
	default:
		s.nextHead()
	}
	return true
}

// checkSize checks the line before a chunk: a number, and optional extensions.
func (s *screen) checkSize(line []byte) bool {
	number, _, _ := bytes.Cut(line, []byte(";"))
	number = bytes.TrimRight(number, " \t")
	n, err := strconv.ParseUint(string(number), 16, 63)
	if err != nil {
		return false
	}
	s.part, s.left = partBody, int64(n)
	if n == 0 {
		s.part = partTrailer
	}
	return true
}

// Write limits the time in which the client reads nothing. The deadline is far away, so
// it is updated only at intervals.
func (s *screen) Write(p []byte) (int, error) {
	if now := time.Now(); s.until.Load() < now.Add(writePatience/2).UnixNano() {
		until := now.Add(writePatience)
		if err := s.Conn.SetWriteDeadline(until); err != nil {
			return 0, err
		}
		s.until.Store(until.UnixNano())
	}
	return s.Conn.Write(p)
}

// SetWriteDeadline replaces the deadline that Write sets.
func (s *screen) SetWriteDeadline(t time.Time) error {
	s.until.Store(0)
	return s.Conn.SetWriteDeadline(t)
}

// SetDeadline does the same for both directions.
func (s *screen) SetDeadline(t time.Time) error {
	s.until.Store(0)
	return s.Conn.SetDeadline(t)
}

// CloseWrite closes one direction, if the connection supports it.
func (s *screen) CloseWrite() error { return closeWrite(s.Conn) }
