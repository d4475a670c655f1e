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

// unreachableLogInterval is the minimum time between two messages in an app's log that
// the port of an instance refuses connections.
const unreachableLogInterval = time.Minute

// unreachableLog records which lines were written recently.
type unreachableLog struct {
	mu      sync.Mutex // guards written
	written map[unreachableKey]time.Time
}

// unreachableKey is the instance and port of such a line.
type unreachableKey struct {
	instance runtime.InstanceID
	port     int
}

// due reports whether to write the line now, and drops old records.
func (c *unreachableLog) due(what unreachableKey, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.written[what]; ok && now.Sub(at) < unreachableLogInterval {
		return false
	}
	for k, at := range c.written {
		if now.Sub(at) >= unreachableLogInterval {
			delete(c.written, k)
		}
	}
	if c.written == nil {
		c.written = map[unreachableKey]time.Time{}
	}
	c.written[what] = now
	return true
}

// logUnreachable writes into the app's log why an instance refuses connections: usually
// it listens on an address that only its own container can reach. The client does not
// see the reason, and does not wait for it.
func (r *Router) logUnreachable(ctx context.Context, t target, err error) {
	if !errors.Is(err, syscall.ECONNREFUSED) || !r.unreachableLog.due(unreachableKey{t.endpoint.instance, t.port}, time.Now()) {
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
			return // it is listening now
		}
		r.lines.put(&access{app: ep.process.app, note: fmt.Sprintf("cannot connect to instance %d of process %s on port %d: %s", ep.slot.Index, ep.process.kind, t.port, failed.Reason)})
	}()
}
