package route

import (
	"bufio"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/egress"
)

// maxAttempts is the maximum number of instances that one request tries.
const maxAttempts = 3

// smallAnswer is the size that fits into the server's own buffer. A shorter response of
// known length is complete when its last byte arrives, and flushing parts of it would
// only cost time.
const smallAnswer = 2 << 10

// clientCertHeader is the header in which a router forwards the verified certificate of
// a client. This router requests no client certificates, so the header is never valid.
const clientCertHeader = "X-Forwarded-Client-Cert"

// statusGone is the status in access lines for a client that disconnected.
const statusGone = 499

// errNoInstance means that a route has no ready instance.
var errNoInstance = errors.New("no instance is ready")

// failure is an error response of the router itself. It is constant, so that it can be
// recognized, and does not depend on the client.
type failure struct {
	status int
	name   string // in X-Cf-RouterError
	text   string
	cache  string
}

var (
	emptyHost       = failure{http.StatusBadRequest, "empty_host", "400 Bad Request: Request had empty Host header.\n", "no-store"}
	badRequest      = failure{http.StatusBadRequest, "bad_request", "400 Bad Request: The router cannot forward the request.\n", "no-store"}
	slowRequest     = failure{http.StatusRequestTimeout, "bad_request", "408 Request Timeout: The request body arrived too slowly.\n", "no-store"}
	noConnect       = failure{http.StatusMethodNotAllowed, "bad_request", "405 Method Not Allowed: Routes cannot be used as a proxy.\n", "no-store"}
	noProxy         = failure{http.StatusBadRequest, "bad_request", "400 Bad Request: Routes cannot be used as a proxy.\n", "no-store"}
	unknownRoute    = failure{http.StatusNotFound, "unknown_route", "404 Not Found: Requested route does not exist.\n", "no-cache, no-store"}
	noEndpoints     = failure{http.StatusServiceUnavailable, "no_endpoints", "503 Service Unavailable: Requested route has no available endpoints.\n", "no-cache, no-store"}
	endpointFailure = failure{http.StatusBadGateway, "endpoint_failure", "502 Bad Gateway: Registered endpoint failed to handle the request.\n", "no-cache, no-store"}
)

func (f failure) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("X-Cf-RouterError", f.name)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", f.cache)
	h.Set("Content-Length", strconv.Itoa(len(f.text)))
	w.WriteHeader(f.status)
	_, _ = io.WriteString(w, f.text) // fails only if the client has disconnected
}

// ServeHTTP sends a request to an instance.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.requests.Add(1)
	req.Header.Del(clientCertHeader)
	if req.ProtoMajor == 1 && len(req.Header["Upgrade"]) > 0 {
		// Data after such a request is not checked, because it can be another protocol.
		// Unless the upgrade succeeds, it must not be read as a request.
		w.Header().Set("Connection", "close")
	}
	if fail, ok := refused(req); ok {
		r.failed.Add(1)
		fail.write(w)
		return
	}
	t := r.table.Load()
	if r.serveAPI(t, w, req) {
		return
	}
	dropOwnCookies(req.Header)
	e := t.match(req.Host, req.URL.Path)
	if e == nil {
		r.failed.Add(1)
		unknownRoute.write(w)
		return
	}
	x := &exchange{router: r, entry: e, began: time.Now(), id: uuid.New()}
	fail, ok := x.viaRouteService(t, req)
	dropServiceHeaders(req)
	if ok && x.via == nil {
		fail, ok = x.pin(req)
	}
	if !ok {
		r.failed.Add(1)
		fail.write(w)
		return
	}
	x.answer.ResponseWriter, x.answer.exchange = w, x
	defer x.releaseTarget()
	x.serve(req)
}

// releaseTarget ends the count of a request at the instance that it was last sent to.
func (x *exchange) releaseTarget() {
	if x.target.endpoint != nil {
		x.target.endpoint.exchanges.Add(-1)
	}
}

// refused reports requests that cannot be meant for an app.
func refused(req *http.Request) (failure, bool) {
	switch {
	case req.Method == http.MethodConnect:
		return noConnect, true
	case req.URL.Host != "": // ambiguous: this host or the Host header
		return noProxy, true
	case req.Host == "":
		return emptyHost, true
	}
	return failure{}, false
}

// commonProxy returns the proxy settings that all requests share.
func commonProxy(log *slog.Logger) httputil.ReverseProxy {
	return httputil.ReverseProxy{
		FlushInterval: -1, // forward the app's data at once
		BufferPool:    &buffers{},
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// exchange is one request and its response.
type exchange struct {
	router *Router
	entry  *entry
	began  time.Time
	id     uuid.UUID
	proxy  httputil.ReverseProxy
	answer answer
	proto  int // HTTP major version of the client

	via          *url.URL // the route service that it is sent to (nil: to the app)
	serviceEntry *entry   // the service's own route (nil: it is an external service)

	only    *target                 // the one instance that the client selected
	wanted  func(ep *endpoint) bool // selects the instances that the client wants; nil: any
	session string                  // id of the instance that the client's cookie names

	body     *body // nil: the request has none
	tried    []*endpoint
	target   target // the last instance tried
	switched io.Closer
	failure  string
	forward  forwarded
}

// forwarded has the forwarding and tracing headers that the app receives.
type forwarded struct {
	addresses, proto string
	trace, span      string
}

// serve handles the request. It must also clean up if the proxy panics, which is how
// the proxy aborts an incomplete response.
func (x *exchange) serve(req *http.Request) {
	x.proxy = x.router.proxy
	x.proxy.Transport = x
	x.proxy.Rewrite = x.rewrite
	x.proxy.ModifyResponse = x.received
	x.proxy.ErrorHandler = x.fail
	x.proto = req.ProtoMajor
	defer x.finish(req)
	x.proxy.ServeHTTP(&x.answer, req)
}

// rewrite sets the additional headers for the app. The hop-by-hop headers are already
// removed here, so a client cannot use them to remove the router's headers.
func (x *exchange) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In.Header, pr.Out.Header
	pr.Out.URL.Scheme = "http"
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // unchanged: the app must validate it
	pr.Out.Trailer = pr.In.Trailer           // the same map: it is filled when the body has been read
	for _, name := range []string{"Forwarded", "X-Forwarded-Host"} {
		if v, ok := in[name]; ok {
			out[name] = slices.Clone(v)
		}
	}
	x.forward.addresses = strings.Join(append(slices.Clone(in["X-Forwarded-For"]), clientAddress(pr.In)), ", ")
	x.forward.proto = in.Get("X-Forwarded-Proto")
	if x.forward.proto == "" {
		x.forward.proto = "http"
		if pr.In.TLS != nil || overTLS(pr.In.Context()) {
			x.forward.proto = "https"
		}
	}
	// The protocol of a destination decides about HTTP/2 without TLS, not the client:
	// an app that accepted the client's upgrade would bypass the router.
	if strings.EqualFold(out.Get("Upgrade"), "h2c") {
		out.Del("Upgrade")
		out.Del("Connection")
	}
	out.Del("Http2-Settings")
	out.Set("X-Forwarded-For", x.forward.addresses)
	out.Set("X-Forwarded-Proto", x.forward.proto)
	out.Set("X-Vcap-Request-Id", x.id.String())
	if _, ok := out["X-Request-Start"]; !ok {
		out.Set("X-Request-Start", strconv.FormatInt(x.began.UnixMilli(), 10))
	}
	x.trace(out)
	if x.via != nil {
		x.toService(pr.In, pr.Out)
	}
}

// trace keeps the client's trace ids or creates new ones.
func (x *exchange) trace(out http.Header) {
	x.forward.trace, x.forward.span = out.Get("X-B3-TraceId"), out.Get("X-B3-SpanId")
	if x.forward.trace != "" && x.forward.span != "" || out.Get("B3") != "" {
		return
	}
	id := hex.EncodeToString(x.id[:])
	x.forward.trace, x.forward.span = id, id[16:]
	out.Set("X-B3-TraceId", x.forward.trace)
	out.Set("X-B3-SpanId", x.forward.span)
}

func clientAddress(req *http.Request) string {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return req.RemoteAddr
	}
	return host
}

// RoundTrip tries one instance after the other, until one responds or it is no longer
// safe to repeat the request.
func (x *exchange) RoundTrip(out *http.Request) (*http.Response, error) {
	if out.Body != nil {
		x.body = newBody(out.Body, http.NewResponseController(x.answer.ResponseWriter), x.router.rate)
		if strings.HasPrefix(out.Header.Get("Content-Type"), "application/grpc") {
			x.body.answered() // an HTTP/2 stream can pause before the first response
		}
	}
	if x.via != nil && x.serviceEntry == nil {
		return x.askService(out)
	}
	err := errNoInstance
	for len(x.tried) < maxAttempts {
		t, ok := x.next(out.Header)
		if !ok {
			break
		}
		var res *http.Response
		if res, err = x.askInstance(out, t); err == nil {
			return res, nil
		}
		x.router.log.Debug("instance did not answer", "app", t.endpoint.process.app, "instance", t.endpoint.instance, "err", err)
		x.router.logUnreachable(out.Context(), t, err)
		if !x.mayRepeat(out, err) {
			break
		}
	}
	return nil, err
}

// askInstance sends the request to one instance.
func (x *exchange) askInstance(out *http.Request, t target) (*http.Response, error) {
	req := new(http.Request)
	*req = *out
	if len(x.tried) > 0 {
		// A failed attempt may still be writing its own headers.
		req.Header = out.Header.Clone()
		x.router.retries.Add(1)
	}
	x.releaseTarget()
	x.tried, x.target = append(x.tried, t.endpoint), t
	t.endpoint.exchanges.Add(1)
	to := *out.URL
	to.Host = t.address()
	req.URL = &to
	req.Header.Set("X-CF-ApplicationID", t.endpoint.process.app)
	req.Header.Set("X-CF-InstanceId", string(t.endpoint.instance))
	req.Header.Set("X-CF-InstanceIndex", strconv.Itoa(t.endpoint.slot.Index))
	if x.body != nil {
		lent, err := x.body.lend()
		if err != nil {
			return nil, err
		}
		// With GetBody, the transport itself repeats a request on a connection that the
		// instance had just closed.
		req.Body, req.GetBody = lent, x.body.lend
	}
	sent := time.Now()
	res, err := t.endpoint.send(req, t.protocol)
	if err == nil {
		t.endpoint.traffic.add(time.Since(sent))
	}
	if err == nil && res.StatusCode == http.StatusSwitchingProtocols {
		x.switched = res.Body
		if x.body != nil {
			x.body.end() // data that arrives from now on is no longer part of the request
		}
	}
	return res, err
}

// mayRepeat reports whether another instance can be tried after err. That is the case
// if nothing was sent, or if the request can be repeated safely and its body is unread.
func (x *exchange) mayRepeat(out *http.Request, err error) bool {
	if out.Context().Err() != nil || x.body != nil && x.body.started() {
		return false
	}
	if _, ok := errors.AsType[*unreachable](err); ok {
		return true
	}
	switch out.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// received is called when an instance has responded.
func (x *exchange) received(res *http.Response) error {
	res.Header.Set("X-Vcap-Request-Id", x.id.String())
	if x.via == nil {
		x.setStickyCookie(res)
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		x.answer.Header().Del("Connection") // the app's header has priority
	}
	x.body.answered()
	if x.body != nil && !x.body.finished() && res.StatusCode != http.StatusSwitchingProtocols && x.proto == 1 {
		x.enableFullDuplex(res.Header)
	}
	if res.ContentLength >= 0 && res.ContentLength <= smallAnswer {
		x.proxy.FlushInterval = 0
	}
	return nil
}

// enableFullDuplex is used for a response that starts before the whole request has
// arrived. Otherwise the server would first consume the rest of the body. The
// connection cannot be used for another request, because the rest of the body would be
// in the way. So the response closes it.
func (x *exchange) enableFullDuplex(h http.Header) {
	_ = http.NewResponseController(&x.answer).EnableFullDuplex() // fails if it is not needed
	h.Set("Connection", "close")
}

// fail sends the error response if no instance responded.
func (x *exchange) fail(w http.ResponseWriter, req *http.Request, err error) {
	if x.answer.hijacked {
		return // the hijacked connection has already ended
	}
	fail := endpointFailure
	switch {
	case x.body != nil && x.body.late(): // the context is cancelled as if the client had disconnected
		fail = slowRequest
	case req.Context().Err() != nil: // the client has disconnected, which is not the instance's fault
		endpointFailure.write(w)
		x.answer.status = statusGone
		return
	case errors.Is(err, errNoInstance):
		fail = noEndpoints
		if x.router.c.EmptyIsUnknown {
			fail = unknownRoute
		}
	case errors.As(err, new(*egress.Refused)):
		fail = notAllowed
	case x.via != nil && x.serviceEntry == nil && (x.body == nil || !x.body.broken()): // the service did not respond
	case len(x.tried) == 0, x.body != nil && x.body.broken():
		fail = badRequest
	}
	x.router.failed.Add(1)
	x.failure = fail.name
	w.Header().Set("X-Vcap-Request-Id", x.id.String())
	fail.write(w)
}

// finish cleans up after the request and writes its access line.
func (x *exchange) finish(req *http.Request) {
	if x.body != nil {
		x.body.end()
	}
	if x.switched != nil {
		x.switched.Close()
	}
	if x.answer.leave != nil {
		x.answer.leave()
	}
	for _, e := range x.tried {
		e.release()
	}
	x.router.lines.put(x.access(req))
}

// answer records the response to the client.
type answer struct {
	http.ResponseWriter
	status   int
	bytes    int64
	hijacked bool
	exchange *exchange
	leave    func() // called when the hijacked connection has ended (nil: none)
}

// WriteHeader records the final status. It drops 100 Continue: the server sends that
// when the body is read, and the client would get it twice.
func (a *answer) WriteHeader(status int) {
	if status == http.StatusContinue {
		return
	}
	if status >= http.StatusOK && a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// Hijack takes over the connection after a protocol switch.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err != nil {
		return c, rw, err
	}
	a.hijacked, a.status = true, http.StatusSwitchingProtocols
	a.leave = a.exchange.target.endpoint.closeWith(c)
	if rw.Reader.Buffered() > 0 {
		c = &bufferedConn{Conn: c, buffered: rw.Reader}
	}
	return c, rw, nil
}

// bufferedConn is a connection whose client sent data before the switch was granted.
// The proxy reads only from the connection.
type bufferedConn struct {
	net.Conn
	buffered *bufio.Reader
}

func (e *bufferedConn) Read(p []byte) (int, error) {
	if n := e.buffered.Buffered(); n > 0 {
		return e.buffered.Read(p[:min(n, len(p))])
	}
	return e.Conn.Read(p)
}

// CloseWrite closes one direction, if the connection supports it.
func (e *bufferedConn) CloseWrite() error { return closeWrite(e.Conn) }

// Unwrap gives http.ResponseController access to the methods that this type does not
// have.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

const bufferSize = 32 << 10

// buffers provides the proxy's copy buffers.
type buffers struct{ pool sync.Pool }

// Get returns a buffer.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

// Put returns a buffer to the pool.
func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
