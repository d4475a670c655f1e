package kubernetes

import (
	"crypto/hmac"
	"net"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/kubernetes/link"
)

// helloPatience is how long an agent can take for its first message.
const helloPatience = 10 * time.Second

// agentLink is the connection with the agent of a Pod.
type agentLink struct{ client *link.Client }

// acceptAgents receives the connections of the agents.
func (e *Engine) acceptAgents(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if e.ctx.Err() != nil {
				return
			}
			e.log.Error("cannot accept the connection of a Pod", "err", err)
			select {
			case <-time.After(100 * time.Millisecond): // too many open files, for example
			case <-e.ctx.Done():
			}
			continue
		}
		e.work.Go(func() { e.welcome(conn) })
	}
}

// welcome checks an agent and gives it to its container.
func (e *Engine) welcome(conn net.Conn) {
	client, hello, err := link.NewClient(e.ctx, conn, helloPatience)
	if err != nil {
		e.log.Warn("cannot accept the connection of a Pod", "from", conn.RemoteAddr(), "err", err)
		return
	}
	id := runtime.InstanceID(hello.Instance)
	if !id.Valid() || !hmac.Equal([]byte(hello.Token), []byte(e.keys.token(id))) {
		e.log.Warn("refused the connection of a Pod: its token is wrong", "from", conn.RemoteAddr(), "instance", hello.Instance)
		_ = client.Close()
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx.Err() != nil {
		_ = client.Close()
		return
	}
	if c := e.known[id]; c != nil {
		c.setLink(agentLink{client})
		return
	}
	if old, ok := e.waiting[id]; ok {
		_ = old.client.Close()
	}
	e.waiting[id] = agentLink{client}
}
