package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/dewrun/dew/health"
	"github.com/dewrun/dew/runtime"
)

// complainEvery is how often the log of an app says about one instance and port
// that nobody listens there.
const complainEvery = time.Minute

// complaints remember what was said lately.
type complaints struct {
	mu   sync.Mutex // guards said
	said map[complaint]time.Time
}

// complaint is what is said once in a while.
type complaint struct {
	instance runtime.InstanceID
	port     int
}

// due tells whether to say it now, and forgets what is long ago.
func (c *complaints) due(what complaint, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.said[what]; ok && now.Sub(at) < complainEvery {
		return false
	}
	for k, at := range c.said {
		if now.Sub(at) >= complainEvery {
			delete(c.said, k)
		}
	}
	if c.said == nil {
		c.said = map[complaint]time.Time{}
	}
	c.said[what] = now
	return true
}

// complain says in the app's log why an instance could not be reached, when it
// refuses: mostly because it listens where only its own container can reach it.
// The client learns nothing of it, and does not wait for it.
func (r *Router) complain(ctx context.Context, t target, err error) {
	if !errors.Is(err, syscall.ECONNREFUSED) || !r.complaints.due(complaint{t.endpoint.instance, t.port}, time.Now()) {
		return
	}
	ep := t.endpoint
	ctx = context.WithoutCancel(ctx)
	go func() {
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			return r.c.Dial(ctx, ep.instance, network, address)
		}
		probe := health.Port(dial, netip.AddrPortFrom(ep.address, uint16(t.port)))
		failed, ok := errors.AsType[*health.Failure](probe(ctx, dialTimeout))
		if !ok {
			return // it listens by now
		}
		r.lines.put(&access{app: ep.process.app, note: fmt.Sprintf("cannot reach instance %d of process %s on port %d: %s", ep.slot.Index, ep.process.kind, t.port, failed.Reason)})
	}()
}
