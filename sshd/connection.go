package sshd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// connection is the connection of a client that has logged in.
type connection struct {
	s            *Server
	sc           *ssh.ServerConn
	g            grant
	log          *slog.Logger
	began        time.Time
	last         atomic.Int64 // time of the last activity, in nanoseconds since began
	work         sync.WaitGroup
	channelSlots chan struct{} // capacity: the maximum number of channels
}

func newConnection(s *Server, sc *ssh.ServerConn) *connection {
	g, _ := sc.Permissions.ExtraData[grantKey{}].(grant) // set by authenticate
	return &connection{
		s: s, sc: sc, g: g, began: time.Now(), channelSlots: make(chan struct{}, s.limits.Channels),
		log: s.log.With("peer", sc.RemoteAddr(), "user", g.who.Name, "app", g.app.GUID, "process", g.process.GUID, "index", g.index),
	}
}

// closeTimeout is how long clients have to read the reason of a disconnect.
const closeTimeout = 2 * time.Second

// serve handles the client until it disconnects, is lost, or must be disconnected.
func (c *connection) serve(ctx context.Context, chans <-chan ssh.NewChannel, reqs <-chan *ssh.Request) {
	c.log.Info("ssh connection opened")
	defer c.log.Info("ssh connection closed")
	inner, cancel := context.WithCancelCause(ctx)
	var guards sync.WaitGroup
	guards.Go(func() { c.answer(reqs) })
	guards.Go(func() { c.watch(inner, cancel) })
	for nc := range chans {
		c.touch()
		select {
		case c.channelSlots <- struct{}{}:
			c.work.Go(func() {
				defer func() { <-c.channelSlots }()
				defer c.recoverPanic()
				c.open(inner, nc)
			})
		default:
			c.refuse(nc, ssh.ResourceShortage, fmt.Sprintf("this connection already has %d channels, which is the limit", c.s.limits.Channels))
		}
	}
	cancel(nil)
	c.work.Wait()
	guards.Wait()
}

// recoverPanic makes a panic in one channel close only its connection.
func (c *connection) recoverPanic() {
	if p := recover(); p != nil {
		c.log.Error("panic in an ssh channel", "panic", fmt.Sprint(p))
		_ = c.sc.Close() // it is no longer usable
	}
}

func (c *connection) open(ctx context.Context, nc ssh.NewChannel) {
	switch nc.ChannelType() {
	case "session":
		c.openSession(ctx, nc)
	case "direct-tcpip":
		c.openPort(ctx, nc)
	case "direct-streamlocal@openssh.com":
		c.openSocket(ctx, nc)
	default:
		c.refuse(nc, ssh.UnknownChannelType, "this channel type is not supported: only sessions and port forwarding are")
	}
}

func (c *connection) refuse(nc ssh.NewChannel, reason ssh.RejectionReason, why string) {
	c.log.Info("ssh channel refused", "type", nc.ChannelType(), "why", why)
	_ = nc.Reject(reason, why) // the client may have disconnected
}

// answer answers the client's keep-alives. It refuses all other global requests, such
// as remote port forwarding.
func (c *connection) answer(reqs <-chan *ssh.Request) {
	for r := range reqs {
		c.touch()
		if r.WantReply {
			_ = r.Reply(false, nil) // the client may have disconnected
		}
	}
}

// watch closes the connection if its client is lost, idle or no longer allowed, or if
// ctx is cancelled.
func (c *connection) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	defer func() { _ = c.sc.Close() }() // it may already be closed
	ticker := time.NewTicker(c.s.limits.Alive)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			c.disconnect()
			return
		case <-ticker.C:
		}
		if idle := c.idle(); idle >= c.s.limits.Idle {
			c.log.Info("closing an idle ssh connection", "for", idle.Round(time.Second))
			return
		}
		if err := c.s.stillAllowed(c.g); err != nil {
			c.log.Warn("ssh client is no longer allowed", "why", err)
			cancel(err)
			continue
		}
		if !c.alive() {
			if ctx.Err() == nil {
				c.log.Info("ssh client does not respond")
			}
			return
		}
	}
}

// disconnect gives sessions a moment to report the reason to their clients.
func (c *connection) disconnect() {
	done := make(chan struct{})
	go func() { c.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(closeTimeout):
	}
}

// alive checks whether the client responds. Any response is enough.
func (c *connection) alive() bool {
	answered := make(chan error, 1)
	go func() {
		_, _, err := c.sc.SendRequest("keepalive@openssh.com", true, nil)
		answered <- err
	}()
	select {
	case err := <-answered:
		return err == nil
	case <-time.After(c.s.limits.Answer):
		return false // no response: closing the connection also ends the request
	}
}

func (c *connection) touch()              { c.last.Store(int64(time.Since(c.began))) }
func (c *connection) idle() time.Duration { return time.Since(c.began) - time.Duration(c.last.Load()) }

// copyData copies until the end of src and records the activity.
func (c *connection) copyData(dst io.Writer, src io.Reader) error {
	_, err := io.Copy(dst, activityReader{c, src})
	return err
}

// activityReader is a reader that hides all methods except Read. Otherwise io.Copy would
// bypass it.
type activityReader struct {
	c *connection
	r io.Reader
}

func (t activityReader) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.c.touch()
	return n, err
}
