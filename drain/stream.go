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

// errHungUp says that the receiver ended the connection in an orderly way: it has
// read whatever its kernel took.
var errHungUp = errors.New("the receiver hung up")

// errBrokeOff says that it did not: what it had not read is lost.
var errBrokeOff = fmt.Errorf("the receiver broke off: %w", unix.ECONNRESET)

const (
	dialLimit  = 10 * time.Second
	writeLimit = 30 * time.Second
	leaveLimit = 2 * time.Second // for the receiver to take what is under way when dewd leaves
	// settled is how long its kernel must have had bytes before a receiver that ends
	// in disorder counts as having read them.
	settled = time.Second
)

// stream sends over TCP, with or without TLS.
type stream struct {
	names [2]string // host and app, in every message
	conn  net.Conn
	raw   *counted
	rest  time.Duration // settled

	frames, scratch []byte
	failed          bool // something could not be written; of who sends

	down chan struct{} // closed when the receiver hung up
	why  error         // valid then

	mu   sync.Mutex // guards the fields below
	sent []stretch  // what may not have arrived, oldest first
	took uint64     // number behind what the other kernel has taken
	safe uint64     // and behind what it has had for a while
}

// stretch are lines that were handed over together.
type stretch struct {
	end   int64     // of the connection's bytes
	next  uint64    // number behind its last line
	taken time.Time // when the other kernel was first seen to have it; zero: not yet
}

// counted counts what goes out.
type counted struct {
	*net.TCPConn
	written atomic.Int64
	reset   atomic.Bool // the receiver broke off
}

// Write notes a reset: the kernel tells it once, and reading would then find an
// orderly end. One that comes behind such an end is another error, EPIPE.
func (c *counted) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.written.Add(int64(n))
	if errors.Is(err, unix.ECONNRESET) {
		c.reset.Store(true)
	}
	return n, err
}

// waiting is how many bytes the other side's kernel has not acknowledged, also when
// the connection has ended.
func (c *counted) waiting() (n int, err error) {
	cerr := c.control(func(fd int) { n, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ) })
	return n, errors.Join(cerr, err)
}

// over tells whether the connection has ended for both sides.
func (c *counted) over() bool {
	var info *unix.TCPInfo
	var err error
	cerr := c.control(func(fd int) { info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO) })
	return cerr != nil || err != nil || info.State == unix.BPF_TCP_CLOSE
}

func (c *counted) control(fn func(fd int)) error {
	sys, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return sys.Control(func(fd uintptr) { fn(int(fd)) })
}

// dial connects to the receiver.
func (f *follower) dial(names [2]string) (*stream, error) {
	ctx, cancel := context.WithTimeout(f.ctx, dialLimit)
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
		return nil, errors.Join(fmt.Errorf("cannot use a %T", conn), conn.Close())
	}
	s := &stream{names: names, raw: &counted{TCPConn: tcp}, rest: f.d.rest, down: make(chan struct{}), took: f.next, safe: f.next}
	s.conn = s.raw
	if f.url.Scheme == schemeTLS {
		secure := tls.Client(s.raw, &tls.Config{ServerName: f.url.Hostname(), RootCAs: f.d.c.Roots, MinVersion: tls.VersionTLS12})
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("cannot agree on TLS: %w", err), tcp.Close())
		}
		s.conn = secure
	}
	go s.listen()
	return s, nil
}

// listen waits for the receiver to hang up. A syslog server has nothing to say.
func (s *stream) listen() {
	defer close(s.down)
	_, err := io.Copy(io.Discard, s.conn)
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errHungUp // with TLS or without: the socket was read to its end
	}
	s.why = err
}

func (s *stream) ended() <-chan struct{} { return s.down }

// err tells how the connection ended, valid when it has. The end that reading finds
// behind a reset which writing was told of is no orderly one.
func (s *stream) err() error {
	if s.raw.reset.Load() {
		return errBrokeOff
	}
	return s.why
}

func (s *stream) send(_ context.Context, b batch) error {
	s.frames = s.frames[:0]
	for _, e := range b.lines {
		s.frames, s.scratch = frame(s.frames, s.scratch, e, s.names)
	}
	b.release()
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	// Counted as under way before: what is only partly written must be sent again.
	s.mu.Lock()
	s.sent = append(s.sent, stretch{end: -1, next: b.next})
	s.mu.Unlock()
	if _, err := s.conn.Write(s.frames); err != nil {
		s.failed = true
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[len(s.sent)-1].end = s.raw.written.Load() // has leaves what has no end where it is
	return nil
}

// has tells what the receiver surely has: after an orderly end all that its kernel
// took, else what it took a while ago.
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
	if ended && s.orderly() {
		return s.took
	}
	return s.safe
}

// arrived moves the marks: the other kernel has bytes bytes.
func (s *stream) arrived(bytes int64, now time.Time) {
	for i := range s.sent {
		v := &s.sent[i]
		if v.end < 0 || v.end > bytes {
			break
		}
		if v.taken.IsZero() {
			v.taken, s.took = now, v.next
		}
	}
	for len(s.sent) > 0 && !s.sent[0].taken.IsZero() && now.Sub(s.sent[0].taken) >= s.rest {
		s.safe = s.sent[0].next
		s.sent = s.sent[1:]
	}
}

// orderly tells whether the receiver hung up as it should, or we are about to.
func (s *stream) orderly() bool {
	select {
	case <-s.down:
		return errors.Is(s.err(), errHungUp)
	default:
		return !s.failed
	}
}

// settle gives a receiver that is still there the time to take what is under way,
// and one that is not the time to have that heard.
func (s *stream) settle() {
	limit := time.After(leaveLimit)
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

// close ends the connection; what the kernel still has of it goes out.
func (s *stream) close() {
	_ = s.conn.Close() // there is nothing left to lose
	<-s.down
}
