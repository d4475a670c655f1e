package sshd

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/dewrun/dew/runtime"
)

// dialTimeout limits the time of a connect inside an instance.
const dialTimeout = 10 * time.Second

// openPort connects a channel to a port that is dialled inside the instance, including
// its loopback.
func (c *connection) openPort(ctx context.Context, nc ssh.NewChannel) {
	address, err := parsePort(nc.ExtraData())
	if err != nil {
		c.refuse(nc, ssh.ConnectionFailed, err.Error())
		return
	}
	id, err := c.s.instance(c.g.instanceKey())
	if err != nil {
		c.refuse(nc, ssh.ConnectionFailed, err.Error())
		return
	}
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	conn, err := c.s.dial(dial, id, address)
	cancel()
	if err != nil {
		c.refuse(nc, ssh.ConnectionFailed, err.Error())
		return
	}
	defer conn.Close()
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	go ssh.DiscardRequests(reqs)
	joined, done := context.WithCancel(ctx)
	defer done()
	go func() {
		c.awaitEnd(joined, id)
		_ = conn.Close() // it may already be closed
	}()
	c.join(ch, forwardEnd{Reader: conn, Writer: conn, close: func() error { return closeWrite(conn) }, abort: conn.Close})
}

// dial connects inside an instance. Health checks of all apps use the same few threads,
// so the number of waiting forwards is limited.
func (s *Server) dial(ctx context.Context, id runtime.InstanceID, address string) (net.Conn, error) {
	select {
	case s.dials <- struct{}{}:
		defer func() { <-s.dials }()
	case <-ctx.Done():
		return nil, errors.New("too many forwarded connections are still being opened")
	}
	return s.c.Instances.Dial(ctx, id, "tcp", address)
}

// awaitEnd returns when the instance has stopped or ctx is cancelled. A connection to
// another host would not notice the stop, and would keep the instance's network in use.
func (c *connection) awaitEnd(ctx context.Context, id runtime.InstanceID) {
	look := time.NewTicker(c.s.limits.Alive)
	defer look.Stop()
	for c.s.runs(c.g.process.GUID, id) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// openSocket connects a channel to a UNIX socket of the instance. A process inside
// connects to it, because from outside a link could lead to a socket of the machine.
func (c *connection) openSocket(ctx context.Context, nc ssh.NewChannel) {
	path, err := parseSocket(nc.ExtraData())
	if err != nil {
		c.refuse(nc, ssh.ConnectionFailed, err.Error())
		return
	}
	at := c.g.instanceKey()
	if !c.s.countSession(at) {
		c.refuse(nc, ssh.ResourceShortage, "the instance already has the maximum number of sessions")
		return
	}
	defer c.s.uncountSession(at)
	ses, err := c.s.exec(ctx, c.g, runtime.ExecSpec{Kind: runtime.ExecSocket, Command: path})
	if err != nil {
		c.refuse(nc, ssh.ConnectionFailed, err.Error())
		return
	}
	defer func() { _ = ses.Close() }() // Close logs its own errors
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	go ssh.DiscardRequests(reqs)
	stop := context.AfterFunc(ctx, func() { _ = ses.Close() })
	defer stop()
	st := ses.Streams()
	c.join(ch, forwardEnd{Reader: st.Out, Writer: st.In, close: st.In.Close, abort: ses.Close})
}

// forwardEnd is the inner end of a forward.
type forwardEnd struct {
	io.Reader
	io.Writer
	close func() error // closes the write side; reading continues
	abort func() error
}

// join copies both ways until both have ended. When one side ends, it closes that
// direction, and the other continues, as in a TCP connection.
func (c *connection) join(ch ssh.Channel, inner forwardEnd) {
	var ways sync.WaitGroup
	ways.Go(func() {
		if err := c.copyData(inner, ch); err != nil {
			_ = inner.abort() // nothing can be written any more
			return
		}
		_ = inner.close()
	})
	ways.Go(func() {
		if err := c.copyData(ch, inner); err != nil {
			_ = ch.Close()
			return
		}
		_ = ch.CloseWrite()
	})
	ways.Wait()
	_ = ch.Close()
}

// closeWrite closes the write side of a connection, or the connection if it has only
// one side.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// parsePort parses the host and port in a client's request.
func parsePort(payload []byte) (string, error) {
	var m struct {
		Host       string
		Port       uint32
		Originator string
		From       uint32
	}
	if err := ssh.Unmarshal(payload, &m); err != nil {
		return "", err
	}
	const maxHost, maxPort = 253, 1<<16 - 1
	host := strings.TrimSuffix(strings.TrimPrefix(m.Host, "["), "]")
	if host == "" || len(host) > maxHost || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '/' }) {
		return "", errors.New("port forwarding needs a host name or address")
	}
	if m.Port == 0 || m.Port > maxPort {
		return "", errors.New("port forwarding needs a port from 1 to 65535")
	}
	return net.JoinHostPort(host, strconv.FormatUint(uint64(m.Port), 10)), nil
}

// parseSocket parses the path of a UNIX socket in a client's request.
func parseSocket(payload []byte) (string, error) {
	var m struct {
		Path     string
		Reserved string
		Unused   uint32
	}
	if err := ssh.Unmarshal(payload, &m); err != nil {
		return "", err
	}
	const maxPath = 107
	if m.Path == "" || m.Path[0] == '-' || len(m.Path) > maxPath || strings.ContainsRune(m.Path, 0) {
		return "", errors.New("socket forwarding needs the path of a socket, at most 107 bytes long")
	}
	return m.Path, nil
}
