package link

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// idle is how long a connection can be silent before it is checked, and pingTimeout
	// is how long the other side can take to answer the check.
	idle        = 10 * time.Second
	pingTimeout = 15 * time.Second
	// maxHello is the maximum size of the first message of a connection.
	maxHello = 4 << 10
	// maxAnswer is the maximum size of the answer to a call.
	maxAnswer = 1 << 20
)

// Hello is the first message on a connection, from the side that opened it.
type Hello struct {
	Instance string `json:"instance,omitempty"` // of an agent
	Token    string `json:"token,omitempty"`    // of an agent: it proves which Pod the agent belongs to
	Exec     string `json:"exec,omitempty"`     // of a wrapper
	PID      int    `json:"pid,omitempty"`      // of a wrapper
}

// Serve answers the requests of the other side until the connection is closed or ctx is
// done. It sends hello first.
func Serve(ctx context.Context, conn net.Conn, hello Hello, h http.Handler) error {
	b, err := json.Marshal(hello)
	if err != nil {
		return err
	}
	if _, err := conn.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("cannot send the first message: %w", err)
	}
	l := &oneConn{conn: conn, addr: conn.LocalAddr(), done: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: pingTimeout, Protocols: onlyHTTP2(), BaseContext: func(net.Listener) context.Context { return ctx },
		// dewd keeps buffers of the size of a frame for each Pod.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000, MaxReadFrameSize: 16 << 10, SendPingTimeout: idle, PingTimeout: pingTimeout},
	}
	err = s.Serve(l)
	_ = conn.Close() // it is closed, or must be
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// onlyHTTP2 returns HTTP/2 without TLS: the connection can have TLS already.
func onlyHTTP2() *http.Protocols {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return p
}

// oneConn is a listener that accepts one connection, and is closed with it.
type oneConn struct {
	conn net.Conn
	addr net.Addr
	once sync.Once
	done chan struct{}
	used bool
}

// Accept returns the connection, and waits for its end at the second call.
func (l *oneConn) Accept() (net.Conn, error) {
	if !l.used {
		l.used = true
		return acceptedConn{l.conn, l}, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

// Close closes the connection.
func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.conn.Close()
}

// Addr returns the address of this side.
func (l *oneConn) Addr() net.Addr { return l.addr }

// acceptedConn closes its listener. It also hides the type of the connection: a server
// would start TLS again.
type acceptedConn struct {
	net.Conn
	l *oneConn
}

// Close closes the connection and its listener.
func (c acceptedConn) Close() error { return c.l.Close() }

// Client sends requests over a connection that the other side opened.
type Client struct {
	conn *watched
	cc   *http.ClientConn
}

// watched is a connection whose end can be awaited.
type watched struct {
	net.Conn
	r    *bufio.Reader
	once sync.Once
	done chan struct{}
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.r.Read(b)
	if err != nil {
		w.ended()
	}
	return n, err
}

func (w *watched) Close() error {
	w.ended()
	return w.Conn.Close()
}

func (w *watched) ended() { w.once.Do(func() { close(w.done) }) }

// NewClient reads the first message of a connection and returns a client for it. It
// closes the connection on failure.
func NewClient(ctx context.Context, conn net.Conn, patience time.Duration) (*Client, Hello, error) {
	var hello Hello
	c, err := newClient(ctx, conn, patience, &hello)
	if err != nil {
		return nil, hello, errors.Join(err, conn.Close())
	}
	return c, hello, nil
}

func newClient(ctx context.Context, conn net.Conn, patience time.Duration, hello *Hello) (*Client, error) {
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	w := &watched{Conn: conn, r: bufio.NewReaderSize(conn, maxHello), done: make(chan struct{})}
	line, err := w.r.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("cannot read the first message: %w", err)
	}
	if err := json.Unmarshal(line, hello); err != nil {
		return nil, fmt.Errorf("cannot read the first message: %w", err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	t := &http.Transport{
		Protocols: onlyHTTP2(), DisableCompression: true, HTTP2: &http.HTTP2Config{SendPingTimeout: idle, PingTimeout: pingTimeout},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return w, nil },
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cc, err := t.NewClientConn(ctx, "http", "pod:80")
	if err != nil {
		return nil, fmt.Errorf("cannot start HTTP/2: %w", err)
	}
	return &Client{conn: w, cc: cc}, nil
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.conn.done }

// Close closes the connection. Calls in progress fail.
func (c *Client) Close() error { return c.cc.Close() }

// Error is an error that the other side returned.
type Error struct {
	Status int
	Errno  syscall.Errno // the error of the kernel, if there is one
	Exec   string        // the process that it is about, if there is one
	Text   string
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the error of the kernel, so that callers can find out whether a port
// refused a connection.
func (e *Error) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

const errnoHeader = "Dew-Errno"

// ExecHeader names the process that an error is about.
const ExecHeader = "Dew-Exec"

// Fail answers a request with an error.
func Fail(w http.ResponseWriter, status int, err error) {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		w.Header().Set(errnoHeader, strconv.Itoa(int(errno)))
	}
	http.Error(w, err.Error(), status)
}

func (c *Client) do(ctx context.Context, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://pod"+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.cc.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // as much of the reason as there is
	errno, _ := strconv.Atoi(resp.Header.Get(errnoHeader))      // none counts as 0
	return nil, &Error{Status: resp.StatusCode, Errno: syscall.Errno(errno), Exec: resp.Header.Get(ExecHeader), Text: string(bytes.TrimSpace(text))}
}

// Call sends in as JSON and reads the answer into out. Both can be nil.
func (c *Client) Call(ctx context.Context, path string, in, out any) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	resp, err := c.do(ctx, path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
		return err
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out)
}

// Send sends a body and waits for the answer.
func (c *Client) Send(ctx context.Context, path string, body io.Reader) error {
	resp, err := c.do(ctx, path, body)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Fetch returns the body of an answer.
func (c *Client) Fetch(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := c.do(ctx, path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Stream is a request whose body and answer are both streams.
type Stream struct {
	io.Reader
	w      *io.PipeWriter
	body   io.Closer
	cancel context.CancelFunc
}

// Relay sends a body, which need not have ended when the answer starts, and returns the
// answer. Both end with ctx.
func (c *Client) Relay(ctx context.Context, path string, body io.Reader) (io.ReadCloser, error) {
	resp, err := c.do(ctx, path, body)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Stream opens a stream. ctx limits only the opening. first is the start of the body,
// for a handler that needs it before it answers.
func (c *Client) Stream(ctx context.Context, path string, first []byte) (*Stream, error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	r, w := io.Pipe()
	// The transport closes the body when the stream ends. Then a write must not wait.
	body := struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(first), r), r}
	resp, err := c.do(own, path, body)
	if !stop() || err != nil {
		cancel()
		if err == nil {
			_ = resp.Body.Close()
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return &Stream{Reader: resp.Body, w: w, body: resp.Body, cancel: cancel}, nil
}

func (s *Stream) Write(b []byte) (int, error) { return s.w.Write(b) }

// CloseWrite ends the body of the request.
func (s *Stream) CloseWrite() error { return s.w.Close() }

// Close ends the stream in both directions.
func (s *Stream) Close() error {
	_ = s.w.Close()
	s.cancel()
	return s.body.Close()
}

// Answer starts the answer of a stream and returns its two directions.
func Answer(w http.ResponseWriter, r *http.Request) (io.Reader, io.Writer) {
	w.WriteHeader(http.StatusOK)
	f := flusher{w: w, c: http.NewResponseController(w)}
	_ = f.c.Flush() // the first write finds out if the other side is gone
	return r.Body, f
}

// flusher sends every write at once.
type flusher struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func (f flusher) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, f.c.Flush()
}

// Conn returns a connection with deadlines whose other end is the stream. The
// connection owns the stream.
func (s *Stream) Conn() (net.Conn, error) {
	ours, theirs, err := SocketPair()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	go func() {
		_, _ = io.Copy(theirs, s) // the end of either side is the end of the copy
		_ = theirs.CloseWrite()
	}()
	go func() {
		_, _ = io.Copy(s, theirs)
		_ = s.CloseWrite()
	}()
	return &streamConn{UnixConn: ours, s: s, theirs: theirs}, nil
}

// streamConn closes its stream as well.
type streamConn struct {
	*net.UnixConn
	s      *Stream
	theirs *net.UnixConn
}

func (c *streamConn) Close() error {
	return errors.Join(c.UnixConn.Close(), c.theirs.Close(), c.s.Close())
}

// SocketPair returns two connected sockets.
func SocketPair() (a, b *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot create a connection: %w", err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "stream")
		c, err := net.FileConn(f)
		_ = f.Close() // c has a copy
		if err != nil {
			return nil, nil, fmt.Errorf("cannot create a connection: %w", err)
		}
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1], nil
}

// Join copies between two streams until both directions have ended.
func Join(r io.Reader, w io.Writer, other interface {
	io.ReadWriter
	CloseWrite() error
},
) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(other, r)
		_ = other.CloseWrite()
	}()
	_, _ = io.Copy(w, other)
	<-done
}
