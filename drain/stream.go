package drain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// errReceiverClosed means that the receiver closed the connection cleanly: it has read
// everything that its kernel received.
var errReceiverClosed = errors.New("the receiver closed the connection")

// errReceiverReset means that the connection was reset: data that the receiver had not read
// is lost.
var errReceiverReset = fmt.Errorf("the receiver reset the connection: %w", unix.ECONNRESET)

const (
	dialTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	closeTimeout = 2 * time.Second // for the receiver to receive pending data when dewd exits
	// settled is how long its kernel must have had bytes before they count as read
	// after a connection reset.
	settled = time.Second
)

// stream sends over TCP, with or without TLS.
type stream struct {
	names [2]string // host and app, for every message
	conn  net.Conn
	raw   *countingConn
	rest  time.Duration // settled

	frames, scratch []byte
	failed          bool // a write failed; used by the sending goroutine

	down chan struct{} // closed when the receiver has disconnected
	why  error         // valid after down is closed

	mu        sync.Mutex  // guards the fields below
	sent      []sentChunk // data that may not have arrived, oldest first
	received  uint64      // number of the line after the data that the other kernel has received
	confirmed uint64      // number of the line after the data that it has had for a while
}

// sentChunk is a group of lines that were sent together.
type sentChunk struct {
	end        int64     // position in the bytes of the connection
	next       uint64    // number of the line after its last one
	receivedAt time.Time // when the other kernel was first seen to have it (zero: not yet)
}

// countingConn is a connection that counts the written bytes.
type countingConn struct {
	*net.TCPConn
	written atomic.Int64
	reset   atomic.Bool // the receiver reset the connection
}

// Write records a reset. The kernel reports it only once, and reading would then find a
// clean end. A write after a clean end fails with EPIPE instead.
func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.written.Add(int64(n))
	if errors.Is(err, unix.ECONNRESET) {
		c.reset.Store(true)
	}
	return n, err
}

// waiting returns how many bytes the other side's kernel has not acknowledged, even
// after the connection has ended.
func (c *countingConn) waiting() (n int, err error) {
	cerr := c.control(func(fd int) { n, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ) })
	return n, errors.Join(cerr, err)
}

// over reports whether the connection is closed on both sides.
func (c *countingConn) over() bool {
	var info *unix.TCPInfo
	var err error
	cerr := c.control(func(fd int) { info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO) })
	return cerr != nil || err != nil || info.State == unix.BPF_TCP_CLOSE
}

func (c *countingConn) control(fn func(fd int)) error {
	sys, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return sys.Control(func(fd uintptr) { fn(int(fd)) })
}

// dial connects to the receiver, with TLS if there is a configuration for it.
func (f *follower) dial(names [2]string, config *tls.Config) (*stream, error) {
	ctx, cancel := context.WithTimeout(f.ctx, dialTimeout)
	defer cancel()
	connect := (&net.Dialer{}).DialContext
	if f.target.Restricted {
		connect = f.d.c.Egress.DialContext
	}
	conn, err := connect(ctx, "tcp", f.url.Host)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("cannot use a connection of type %T", conn), conn.Close())
	}
	s := &stream{names: names, raw: &countingConn{TCPConn: tcp}, rest: f.d.rest, down: make(chan struct{}), received: f.next, confirmed: f.next}
	s.conn = s.raw
	if config != nil {
		config.ServerName = f.url.Hostname()
		secure := tls.Client(s.raw, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("TLS handshake failed: %w", err), tcp.Close())
		}
		s.conn = secure
	}
	go s.listen()
	return s, nil
}

// listen waits until the receiver disconnects. A syslog server sends nothing.
func (s *stream) listen() {
	defer close(s.down)
	_, err := io.Copy(io.Discard, s.conn)
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errReceiverClosed // with or without TLS, the socket was read to its end
	}
	s.why = err
}

func (s *stream) ended() <-chan struct{} { return s.down }

// err returns how the connection ended; it is valid after the end. If a write saw a
// reset, a clean end that a read sees after it does not count. A receiver that refuses
// the client certificate says so in an alert, and often resets the connection as well.
func (s *stream) err() error {
	if s.raw.reset.Load() && !isAlert(s.why) {
		return errReceiverReset
	}
	return s.why
}

// isAlert reports whether an error is an alert of the receiver's TLS.
func isAlert(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "remote error"
}

func (s *stream) send(_ context.Context, b batch) error {
	s.frames = s.frames[:0]
	for _, e := range b.lines {
		s.frames, s.scratch = frame(s.frames, s.scratch, e, s.names)
	}
	b.release()
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	// Recorded as pending before the write: partly written lines must be sent again.
	s.mu.Lock()
	s.sent = append(s.sent, sentChunk{end: -1, next: b.next})
	s.mu.Unlock()
	if _, err := s.conn.Write(s.frames); err != nil {
		s.failed = true
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[len(s.sent)-1].end = s.raw.written.Load() // has ignores entries without an end
	return nil
}

// has returns the position that the receiver certainly has. After a clean end, that is
// everything its kernel received; otherwise the data it received a while ago.
func (s *stream) has(ended bool) uint64 {
	if ended {
		s.settle()
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if waiting, err := s.raw.waiting(); err == nil {
		s.arrived(s.raw.written.Load()-int64(waiting), now)
	}
	if ended && s.closedCleanly() {
		return s.received
	}
	return s.confirmed
}

// arrived updates the positions: the other kernel has received bytes bytes.
func (s *stream) arrived(bytes int64, now time.Time) {
	for i := range s.sent {
		v := &s.sent[i]
		if v.end < 0 || v.end > bytes {
			break
		}
		if v.receivedAt.IsZero() {
			v.receivedAt, s.received = now, v.next
		}
	}
	for len(s.sent) > 0 && !s.sent[0].receivedAt.IsZero() && now.Sub(s.sent[0].receivedAt) >= s.rest {
		s.confirmed = s.sent[0].next
		s.sent = s.sent[1:]
	}
}

// closedCleanly reports whether the receiver closed the connection cleanly, or dewd is about
// to.
func (s *stream) closedCleanly() bool {
	select {
	case <-s.down:
		return errors.Is(s.err(), errReceiverClosed)
	default:
		return !s.failed
	}
}

// settle gives a connected receiver time to receive pending data. For a lost one, it
// waits until the disconnect is noticed.
func (s *stream) settle() {
	limit := time.After(closeTimeout)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if n, err := s.raw.waiting(); err == nil && n == 0 && !s.failed && !s.raw.over() {
			return
		}
		select {
		case <-s.down:
			return
		case <-limit:
			return
		case <-tick.C:
		}
	}
}

// close closes the connection; the kernel still sends its buffered data.
func (s *stream) close() {
	_ = s.conn.Close() // no data can be lost any more
	<-s.down
}
