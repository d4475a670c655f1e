package route

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// Timeouts and limits for connections to instances.
const (
	dialTimeout = 5 * time.Second
	// Servers close idle connections, and a request on such a connection is lost unless
	// it can be repeated. So the router closes first: gunicorn waits two seconds,
	// others longer. A new connection costs almost nothing.
	idleTimeout = 1500 * time.Millisecond
	// The timeout of Cloud Foundry: no long poll takes longer, and a hang ends.
	answerTimeout   = 15 * time.Minute
	continueTimeout = time.Second
	maxIdle         = 128 // connections per instance and port
	maxAnswerHeader = 1 << 20
)

// dialFunc connects from inside an instance's network namespace.
type dialFunc func(ctx context.Context, id runtime.InstanceID, network, address string) (net.Conn, error)

// endpoint is one ready instance with its own connections, so that they can be closed
// with it: an open connection pins the instance's network namespace.
type endpoint struct {
	slot      runtime.SlotID
	process   processKey
	place     uint64 // the hash of its process and index, for hashing
	instance  runtime.InstanceID
	address   netip.Addr
	ports     []int
	transport *http.Transport
	connPool  *connPool       // for requests without a body
	http2     *http.Transport // for HTTP/2 destinations; its connections are shared by many requests
	withdrawn atomic.Bool
	exchanges atomic.Int32 // requests and connections in progress
	traffic   *traffic     // requests so far
	dial      dialFunc

	mu    sync.Mutex // guards the fields below
	conns map[*instanceConn]struct{}
	peers map[io.Closer]struct{} // client connections that are joined to one of those
	ended bool
}

// routable reports whether routes can send requests to the instance.
func routable(st runtime.Status) bool {
	return st.State == runtime.Running && st.Ready && st.Instance != "" && st.Address.IsValid() && len(st.Ports) > 0
}

func newEndpoint(st runtime.Status, dial dialFunc, idle time.Duration) *endpoint {
	e := &endpoint{
		slot:     st.Slot,
		process:  processKey{app: st.App, kind: st.Type},
		place:    placeOf(st.Slot),
		instance: st.Instance,
		address:  st.Address,
		ports:    slices.Clone(st.Ports),
		dial:     dial,
		conns:    map[*instanceConn]struct{}{},
		peers:    map[io.Closer]struct{}{},
		traffic:  &traffic{instance: st.Instance},
	}
	dialHeld := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := e.connect(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	e.connPool = &connPool{dial: dialHeld, life: idle}
	e.transport = newTransport(dialHeld)
	e.transport.IdleConnTimeout = idle
	e.http2 = e.transport.Clone()
	e.http2.Protocols = new(http.Protocols)
	e.http2.Protocols.SetUnencryptedHTTP2(true)
	return e
}

func newTransport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext:            dial,
		DisableCompression:     true, // do not request compression that the client did not request
		MaxIdleConnsPerHost:    maxIdle,
		ResponseHeaderTimeout:  answerTimeout,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
	}
}

// send sends a request to the instance. An HTTP/2 connection cannot switch to another
// protocol, so requests with an upgrade use HTTP/1.1.
func (e *endpoint) send(req *http.Request, protocol string) (*http.Response, error) {
	if protocol == app.ProtocolHTTP2 && req.Header.Get("Upgrade") == "" {
		return e.http2.RoundTrip(req)
	}
	if canPool(req) {
		return e.connPool.RoundTrip(req)
	}
	return e.transport.RoundTrip(req)
}

// serves reports whether the endpoint still matches the status of its slot.
func (e *endpoint) serves(st runtime.Status) bool {
	return routable(st) && st.Instance == e.instance && st.Address == e.address &&
		slices.Equal(st.Ports, e.ports) && e.process == processKey{app: st.App, kind: st.Type}
}

// withdraw closes the idle connections, and those that the instance has already closed.
// Requests in progress finish.
func (e *endpoint) withdraw() {
	e.withdrawn.Store(true)
	e.closeIdle()
	for _, c := range e.openConns() {
		if c.over.Load() {
			c.drop()
		}
	}
}

// release is called when a request no longer needs the endpoint. A request that started
// before the withdrawal returns its connection only now.
func (e *endpoint) release() {
	if e.withdrawn.Load() {
		e.closeIdle()
	}
}

func (e *endpoint) closeIdle() {
	e.transport.CloseIdleConnections()
	e.connPool.CloseIdleConnections()
	e.http2.CloseIdleConnections()
}

// unreachable means that no connection was established, so nothing was sent.
type unreachable struct{ err error }

func (u *unreachable) Error() string { return "cannot connect to the instance: " + u.err.Error() }
func (u *unreachable) Unwrap() error { return u.err }
