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

// dialTimeout bounds a connection inside an instance.
const dialTimeout = 10 * time.Second

// openPort joins a channel to a port that is dialled inside the instance, its
// loopback included.
func (c *connection) openPort(ctx context.Context, nc ssh.NewChannel) {
	address, err := parsePort(nc.ExtraData())
	if err != nil {
		c.refuse(nc, ssh.ConnectionFailed, err.Error())
		return
	}
	id, err := c.s.instance(c.g.place())
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
		_ = conn.Close() // it may be closed already
	}()
	c.join(ch, end{Reader: conn, Writer: conn, close: func() error { return closeWrite(conn) }, abort: conn.Close})
}

// dial connects inside an instance. The health checks of all apps need the same
// few threads for that: forwards to addresses that never answer leave them some.
func (s *Server) dial(ctx context.Context, id runtime.InstanceID, address string) (net.Conn, error) {
	select {
	case s.dials <- struct{}{}:
		defer func() { <-s.dials }()
	case <-ctx.Done():
		return nil, errors.New("too many forwards wait for an answer")
	}
	return s.c.Instances.Dial(ctx, id, "tcp", address)
}

// awaitEnd returns when the instance has ended, or ctx: a connection to somewhere
// else would not notice, and keep the network of the instance from going.
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

// openSocket joins a channel to a UNIX socket of the instance. A process inside
// connects to it: from outside a link could lead to a socket of the machine.
func (c *connection) openSocket(ctx context.Context, nc ssh.NewChannel) {
	path, err := parseSocket(nc.ExtraData())
	if err != nil {
		c.refuse(nc, ssh.ConnectionFailed, err.Error())
		return
	}
	at := c.g.place()
	if !c.s.enter(at) {
		c.refuse(nc, ssh.ResourceShortage, "the instance has as many sessions as there may be")
		return
	}
	defer c.s.leave(at)
	ses, err := c.exec(ctx, runtime.ExecSpec{Kind: runtime.ExecSocket, Command: path})
	if err != nil {
		c.refuse(nc, ssh.ConnectionFailed, err.Error())
		return
	}
	defer func() { _ = ses.Close() }() // it tells the log itself what it could not do
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	go ssh.DiscardRequests(reqs)
	stop := context.AfterFunc(ctx, func() { _ = ses.Close() })
	defer stop()
	st := ses.Streams()
	c.join(ch, end{Reader: st.Out, Writer: st.In, close: st.In.Close, abort: ses.Close})
}

// end is the inner end of a forward.
type end struct {
	io.Reader
	io.Writer
	close func() error // ends what is written; what is read goes on
	abort func() error
}

// join carries both ways until both are at their end. The end of one is handed
// on, and the other goes on, as a connection would.
func (c *connection) join(ch ssh.Channel, inner end) {
	var ways sync.WaitGroup
	ways.Go(func() {
		if err := c.carry(inner, ch); err != nil {
			_ = inner.abort() // nobody is left to write to
			return
		}
		_ = inner.close()
	})
	ways.Go(func() {
		if err := c.carry(ch, inner); err != nil {
			_ = ch.Close()
			return
		}
		_ = ch.CloseWrite()
	})
	ways.Wait()
	_ = ch.Close()
}

// closeWrite ends one way of a connection, or both where it has but one.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// parsePort reads the host and port that a client names.
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
		return "", errors.New("a forward needs the name or address of a host")
	}
	if m.Port == 0 || m.Port > maxPort {
		return "", errors.New("a forward needs a port from 1 to 65535")
	}
	return net.JoinHostPort(host, strconv.FormatUint(uint64(m.Port), 10)), nil
}

// parseSocket reads the path of a UNIX socket that a client names.
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
		return "", errors.New("a forward needs the path of a socket, of 107 bytes at most")
	}
	return m.Path, nil
}
