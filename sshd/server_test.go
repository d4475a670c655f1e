package sshd

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/dewrun/dew/testkit"
)

func TestNewNeedsEverything(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "cannot create the SSH server without") {
		t.Errorf("New without anything = %v", err)
	}
}

// Sessions are closed when their client disconnects, cleanly or not.
func TestClientVanishes(t *testing.T) {
	w := newWorld(t, Limits{})
	for _, leave := range []func(*ssh.Client, *ssh.Session) error{
		func(c *ssh.Client, _ *ssh.Session) error { return c.Close() },
		func(_ *ssh.Client, s *ssh.Session) error { return s.Close() },
	} {
		c := w.client("cf:" + appGUID + "/0")
		ses := w.session(c)
		if err := ses.Start("sleep 1000"); err != nil {
			t.Fatal(err)
		}
		w.eventually("the session runs", func() bool { return w.sessions() == 1 })
		if err := leave(c, ses); err != nil {
			t.Fatal(err)
		}
		w.eventually("the session ended", func() bool { return w.sessions() == 0 })
	}
}

// A client that no longer responds is disconnected.
func TestSilentClient(t *testing.T) {
	t.Parallel() // runs in real time: until then the client must have responded
	w := newWorld(t, Limits{Alive: 20 * time.Millisecond, Answer: 2 * time.Second})
	raw, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	deaf := &deafConn{Conn: raw}
	sc, chans, reqs, err := ssh.NewClientConn(deaf, w.addr, &ssh.ClientConfig{
		User: "cf:" + appGUID + "/0", Auth: []ssh.AuthMethod{ssh.Password(w.code("x"))}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := ssh.NewClient(sc, chans, reqs)
	ses := w.session(c)
	if err := ses.Start("sleep 1000"); err != nil {
		t.Fatal(err)
	}
	w.eventually("the session runs", func() bool { return w.sessions() == 1 })
	deaf.stop()
	w.eventually("the session ended", func() bool { return w.sessions() == 0 })
	w.eventually("it is said", func() bool { return has(w.logText.String(), "ssh client does not respond") })
}

// deafConn is a connection that stops delivering data at some point.
type deafConn struct {
	net.Conn
	mu  sync.Mutex
	cut bool
}

func (d *deafConn) stop() { d.mu.Lock(); d.cut = true; d.mu.Unlock() }

func (d *deafConn) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cut {
		return len(b), nil
	}
	return d.Conn.Write(b)
}

// An idle connection is closed.
func TestIdle(t *testing.T) {
	w := newWorld(t, Limits{Idle: 50 * time.Millisecond, Alive: 10 * time.Millisecond})
	c := w.client("cf:" + appGUID + "/0")
	_ = c.Wait()
	if !has(w.logText.String(), "closing an idle ssh connection") {
		t.Errorf("the server said %s, want that the connection was idle", w.logText.String())
	}
}

// Keep-alives are answered, because clients without an answer disconnect.
func TestKeepAlive(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.client("cf:" + appGUID + "/0")
	if _, _, err := c.SendRequest("keepalive@cloudfoundry.org", true, nil); err != nil {
		t.Errorf("keep-alive: %v", err)
	}
}

// When the daemon exits, clients get the reason, and all sessions are closed.
func TestServerLeaves(t *testing.T) {
	w := newWorld(t, Limits{})
	ses := w.session(w.client("cf:" + appGUID + "/0"))
	var errs bytes.Buffer
	ses.Stderr = &errs
	if err := ses.Start("sleep 1000"); err != nil {
		t.Fatal(err)
	}
	w.eventually("the session runs", func() bool { return w.sessions() == 1 })
	w.stop()
	if code := status(t, ses.Wait()); code != failureStatus || !has(errs.String(), "the session has ended") {
		t.Errorf("status %d, stderr %q; want to be told", code, errs.String())
	}
	if w.sessions() != 0 {
		t.Errorf("%d sessions are left", w.sessions())
	}
}

// A user who loses the permission is disconnected and gets the reason.
func TestRightsEnd(t *testing.T) {
	w := newWorld(t, Limits{Alive: 5 * time.Millisecond})
	ses := w.session(w.client("cf:" + appGUID + "/0"))
	var errs bytes.Buffer
	ses.Stderr = &errs
	if err := ses.Start("sleep 1000"); err != nil {
		t.Fatal(err)
	}
	w.eventually("the session runs", func() bool { return w.sessions() == 1 })
	w.deny(errors.New("ssh is not enabled for app 'shop'"))
	if code := status(t, ses.Wait()); code != failureStatus || !has(errs.String(), "the session has ended: ssh is not enabled") {
		t.Errorf("status %d, stderr %q; want to be told why", code, errs.String())
	}
	w.eventually("the connection ends", func() bool { return len(w.s.connections) == 0 && w.sessions() == 0 })
}

func TestLimitOfSessions(t *testing.T) {
	w := newWorld(t, Limits{Sessions: 2, Channels: 4})
	c := w.client("cf:" + appGUID + "/0")
	first, second := w.session(c), w.session(c)
	_, err := c.NewSession()
	if open := (*ssh.OpenChannelError)(nil); !errors.As(err, &open) || open.Reason != ssh.ResourceShortage {
		t.Errorf("a third session = %v, want it refused", err)
	}
	w.session(w.client("cf:" + workerGUID + "/0")) // another instance has its own limit
	_ = first.Close()
	w.eventually("there is room again", func() bool {
		ses, err := c.NewSession()
		if err != nil {
			return false
		}
		_ = ses.Close()
		return true
	})
	_ = second.Close()
}

func TestLimitOfChannels(t *testing.T) {
	w := newWorld(t, Limits{Channels: 1})
	c := w.client("cf:" + appGUID + "/0")
	w.session(c)
	if _, err := c.NewSession(); err == nil {
		t.Error("a second channel was opened")
	}
}

func TestLimitOfConnections(t *testing.T) {
	w := newWorld(t, Limits{Connections: 1})
	w.client("cf:" + appGUID + "/0")
	w.eventually("the first is in", func() bool { return len(w.s.connections) == 1 })
	c, _, err := w.login("cf:"+appGUID+"/0", w.code("more"))
	if err == nil {
		_ = c.Wait() // it is closed at once
	}
	w.eventually("it is said", func() bool { return has(w.logText.String(), "too many connections") })
}

// A client that does not finish its handshake is disconnected, and does not block
// others forever.
func TestSlowHandshakes(t *testing.T) {
	t.Parallel() // runs in real time: faster clients must be done before
	w := newWorld(t, Limits{Handshake: 3 * time.Second, Handshakes: 2})
	var slow []net.Conn
	for _, said := range []string{"", "SSH-2.0-slow\r\n", "", "SSH-2.0-slow\r\n"} {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, said)
		slow = append(slow, c)
	}
	for _, c := range slow {
		_, _ = io.Copy(io.Discard, c) // until the server closes it
		_ = c.Close()
	}
	w.client("cf:" + appGUID + "/0")
}

// Random input does no harm.
func TestGarbage(t *testing.T) {
	w := newWorld(t, Limits{})
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 50 {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_, _ = io.WriteString(c, "SSH-2.0-garbage\r\n")
		}
		b := make([]byte, rnd.IntN(4096))
		for j := range b {
			b[j] = byte(rnd.Uint32())
		}
		_, _ = c.Write(b)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
	w.client("cf:" + appGUID + "/0")
	if has(w.logText.String(), "panic") {
		t.Errorf("the server said:\n%s", w.logText.String())
	}
}

// A hundred clients at once are all either served or refused with a reason.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, Limits{Handshakes: 100, Handshake: testkit.Patience, Sessions: 30})
	var served, refused sync.Map
	var all sync.WaitGroup
	for i := range 100 {
		code := w.code("code-" + itoa(i))
		all.Go(func() {
			c, _, err := w.login("cf:"+appGUID+"/0", code)
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
			defer c.Close()
			ses, err := c.NewSession()
			if err != nil {
				refused.Store(i, err)
				return
			}
			out, err := ses.Output("echo hello; exit 0")
			if err != nil || string(out) != "hello\n" {
				t.Errorf("client %d: %q, %v", i, out, err)
			}
			served.Store(i, true)
		})
	}
	all.Wait()
	n := 0
	for _, m := range []*sync.Map{&served, &refused} {
		m.Range(func(any, any) bool { n++; return true })
	}
	if n != 100 {
		t.Errorf("%d of 100 were answered", n)
	}
	w.eventually("nothing is left", func() bool {
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		return w.sessions() == 0 && len(w.s.connected) == 0 && len(w.s.connections) == 0
	})
}
