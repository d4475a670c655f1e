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

// maxAttempts is how many instances one request may meet.
const maxAttempts = 3

// smallAnswer is what fits into the server's own buffer. An answer of a known
// length below it is complete as soon as its last byte is here, and flushing it in
// pieces would only cost.
const smallAnswer = 2 << 10

// clientCertHeader is how a router passes on the certificate of a client that proved
// to have it. This router asks for none, so it is never true.
const clientCertHeader = "X-Forwarded-Client-Cert"

// statusGone stands in access lines for a client that did not wait.
const statusGone = 499

// errNoInstance says that nothing ready is behind a route.
var errNoInstance = errors.New("no instance is ready")

// failure is an answer of the router itself. It is the same each time, so that it
// can be recognised, and tells nothing about who asked.
type failure struct {
	status int
	name   string // in X-Cf-RouterError
	text   string
	cache  string
}

var (
	emptyHost       = failure{http.StatusBadRequest, "empty_host", "400 Bad Request: Request had empty Host header.\n", "no-store"}
	badRequest      = failure{http.StatusBadRequest, "bad_request", "400 Bad Request: The request cannot be passed on.\n", "no-store"}
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
	_, _ = io.WriteString(w, f.text) // fails only when the client has gone
}

// ServeHTTP leads a request to an instance.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.requests.Add(1)
	req.Header.Del(clientCertHeader)
	if req.ProtoMajor == 1 && len(req.Header["Upgrade"]) > 0 {
		// What comes behind such a request is not looked at: it may be another protocol.
		// So unless it is, nothing may be read there.
		w.Header().Set("Connection", "close")
	}
	if fail, ok := refused(req); ok {
		r.failed.Add(1)
		fail.write(w)
		return
	}
	t := r.table.Load()
	e := t.match(req.Host, req.URL.Path)
	if e == nil {
		r.failed.Add(1)
		unknownRoute.write(w)
		return
	}
	f := &flight{router: r, entry: e, began: time.Now(), id: uuid.New()}
	fail, ok := f.detour(t, req)
	dropServiceHeaders(req)
	if ok && f.via == nil {
		fail, ok = f.pin(req)
	}
	if !ok {
		r.failed.Add(1)
		fail.write(w)
		return
	}
	f.answer.ResponseWriter, f.answer.flight = w, f
	defer f.leave()
	f.serve(req)
}

// leave ends the stay of a request at the instance that it was last sent to.
func (f *flight) leave() {
	if f.target.endpoint != nil {
		f.target.endpoint.flights.Add(-1)
	}
}

// refused are requests that no app can be meant by.
func refused(req *http.Request) (failure, bool) {
	switch {
	case req.Method == http.MethodConnect:
		return noConnect, true
	case req.URL.Host != "": // whom it means, that or the Host header, is anybody's guess
		return noProxy, true
	case req.Host == "":
		return emptyHost, true
	}
	return failure{}, false
}

// commonProxy is what the proxies of all requests have in common.
func commonProxy(log *slog.Logger) httputil.ReverseProxy {
	return httputil.ReverseProxy{
		FlushInterval: -1, // what an app sends is passed on at once
		BufferPool:    &buffers{},
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// flight is one request on its way.
type flight struct {
	router *Router
	entry  *entry
	began  time.Time
	id     uuid.UUID
	proxy  httputil.ReverseProxy
	answer answer
	proto  int // major version that the client speaks

	via    *url.URL // the route service that it goes to; nil: to the app
	toward *entry   // the service's own route; nil: it is elsewhere

	only    *target // the one instance that the client ordered
	session string  // id of the instance that the client's cookie names

	body     *body // nil: the request has none
	tried    []*endpoint
	target   target // the last one tried
	switched io.Closer
	failure  string
	forward  forwarded
}

// forwarded is what the app was told about the way of the request.
type forwarded struct {
	addresses, proto string
	trace, span      string
}

// serve answers the request. It must tidy up also when the proxy panics, which is
// its way to break off an answer that the app did not finish.
func (f *flight) serve(req *http.Request) {
	f.proxy = f.router.proxy
	f.proxy.Transport = f
	f.proxy.Rewrite = f.rewrite
	f.proxy.ModifyResponse = f.received
	f.proxy.ErrorHandler = f.fail
	f.proto = req.ProtoMajor
	defer f.land(req)
	f.proxy.ServeHTTP(&f.answer, req)
}

// rewrite says what the app is told beyond the request itself. Here the headers
// between two hops are gone already, so none of ours can be taken away by them.
func (f *flight) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In.Header, pr.Out.Header
	pr.Out.URL.Scheme = "http"
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // as it came: to judge it is the app's part
	pr.Out.Trailer = pr.In.Trailer           // the same map: it is filled when the body has been read
	for _, name := range []string{"Forwarded", "X-Forwarded-Host"} {
		if v, ok := in[name]; ok {
			out[name] = slices.Clone(v)
		}
	}
	f.forward.addresses = strings.Join(append(slices.Clone(in["X-Forwarded-For"]), clientAddress(pr.In)), ", ")
	f.forward.proto = in.Get("X-Forwarded-Proto")
	if f.forward.proto == "" {
		f.forward.proto = "http"
		if pr.In.TLS != nil || overTLS(pr.In.Context()) {
			f.forward.proto = "https"
		}
	}
	// Where HTTP/2 is spoken without TLS is wished, not asked for: an app that took
	// the client at its word would be spoken to past the router.
	if strings.EqualFold(out.Get("Upgrade"), "h2c") {
		out.Del("Upgrade")
		out.Del("Connection")
	}
	out.Del("Http2-Settings")
	out.Set("X-Forwarded-For", f.forward.addresses)
	out.Set("X-Forwarded-Proto", f.forward.proto)
	out.Set("X-Vcap-Request-Id", f.id.String())
	if _, ok := out["X-Request-Start"]; !ok {
		out.Set("X-Request-Start", strconv.FormatInt(f.began.UnixMilli(), 10))
	}
	f.trace(out)
	if f.via != nil {
		f.toService(pr.In, pr.Out)
	}
}

// trace keeps the client's trace or begins one.
func (f *flight) trace(out http.Header) {
	f.forward.trace, f.forward.span = out.Get("X-B3-TraceId"), out.Get("X-B3-SpanId")
	if f.forward.trace != "" && f.forward.span != "" || out.Get("B3") != "" {
		return
	}
	id := hex.EncodeToString(f.id[:])
	f.forward.trace, f.forward.span = id, id[16:]
	out.Set("X-B3-TraceId", f.forward.trace)
	out.Set("X-B3-SpanId", f.forward.span)
}

func clientAddress(req *http.Request) string {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return req.RemoteAddr
	}
	return host
}

// RoundTrip asks one instance after the other, until one answers or it is no longer
// safe to ask again.
func (f *flight) RoundTrip(out *http.Request) (*http.Response, error) {
	if out.Body != nil {
		f.body = newBody(out.Body, http.NewResponseController(f.answer.ResponseWriter), f.router.rate)
		if strings.HasPrefix(out.Header.Get("Content-Type"), "application/grpc") {
			f.body.answered() // its streams may rest before the first answer
		}
	}
	if f.via != nil && f.toward == nil {
		return f.askService(out)
	}
	err := errNoInstance
	for len(f.tried) < maxAttempts {
		t, ok := f.next()
		if !ok {
			break
		}
		var res *http.Response
		if res, err = f.ask(out, t); err == nil {
			return res, nil
		}
		f.router.log.Debug("instance did not answer", "app", t.endpoint.process.app, "instance", t.endpoint.instance, "err", err)
		f.router.complain(out.Context(), t, err)
		if !f.mayRepeat(out, err) {
			break
		}
	}
	return nil, err
}

// ask sends the request to one instance.
func (f *flight) ask(out *http.Request, t target) (*http.Response, error) {
	req := new(http.Request)
	*req = *out
	if len(f.tried) > 0 {
		// An attempt that failed may still be writing its own headers.
		req.Header = out.Header.Clone()
		f.router.retries.Add(1)
	}
	f.leave()
	f.tried, f.target = append(f.tried, t.endpoint), t
	t.endpoint.flights.Add(1)
	to := *out.URL
	to.Host = t.address()
	req.URL = &to
	req.Header.Set("X-CF-ApplicationID", t.endpoint.process.app)
	req.Header.Set("X-CF-InstanceId", string(t.endpoint.instance))
	req.Header.Set("X-CF-InstanceIndex", strconv.Itoa(t.endpoint.slot.Index))
	if f.body != nil {
		lent, err := f.body.lend()
		if err != nil {
			return nil, err
		}
		// With GetBody the transport itself repeats what met a connection that the
		// instance had just closed.
		req.Body, req.GetBody = lent, f.body.lend
	}
	res, err := t.endpoint.send(req, t.protocol)
	if err == nil && res.StatusCode == http.StatusSwitchingProtocols {
		f.switched = res.Body
		if f.body != nil {
			f.body.end() // what comes from now on is no longer the request's
		}
	}
	return res, err
}

// mayRepeat tells whether another instance may be asked after err: when nothing was
// sent, or when asking twice does no harm and nothing of the body is gone.
func (f *flight) mayRepeat(out *http.Request, err error) bool {
	if out.Context().Err() != nil || f.body != nil && f.body.started() {
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

// received is called when an instance has answered.
func (f *flight) received(res *http.Response) error {
	res.Header.Set("X-Vcap-Request-Id", f.id.String())
	if f.via == nil {
		f.stick(res)
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		f.answer.Header().Del("Connection") // the app's counts
	}
	f.body.answered()
	if f.body != nil && !f.body.finished() && res.StatusCode != http.StatusSwitchingProtocols && f.proto == 1 {
		f.speakBoth(res.Header)
	}
	if res.ContentLength >= 0 && res.ContentLength <= smallAnswer {
		f.proxy.FlushInterval = 0
	}
	return nil
}

// speakBoth is for an answer that begins before all of the request is here. Left
// alone the server would first take the rest of the body away from the app. And it
// can take no further request from that connection: what is left of the body would
// be in the way, so the client is told that it is the last.
func (f *flight) speakBoth(h http.Header) {
	_ = http.NewResponseController(&f.answer).EnableFullDuplex() // fails where it is not needed
	h.Set("Connection", "close")
}

// fail answers when no instance did.
func (f *flight) fail(w http.ResponseWriter, req *http.Request, err error) {
	if f.answer.hijacked {
		return // the connection is the app's and the client's, and has ended
	}
	fail := endpointFailure
	switch {
	case f.body != nil && f.body.late(): // the server takes it for a client that has gone
		fail = slowRequest
	case req.Context().Err() != nil: // nobody reads it, and the instance is not to blame
		endpointFailure.write(w)
		f.answer.status = statusGone
		return
	case errors.Is(err, errNoInstance):
		fail = noEndpoints
	case errors.As(err, new(*egress.Refused)):
		fail = notAllowed
	case f.via != nil && f.toward == nil && (f.body == nil || !f.body.broken()): // the service did not answer
	case len(f.tried) == 0, f.body != nil && f.body.broken():
		fail = badRequest
	}
	f.router.failed.Add(1)
	f.failure = fail.name
	w.Header().Set("X-Vcap-Request-Id", f.id.String())
	fail.write(w)
}

// land tidies up after the request.
func (f *flight) land(req *http.Request) {
	if f.body != nil {
		f.body.end()
	}
	if f.switched != nil {
		f.switched.Close()
	}
	if f.answer.leave != nil {
		f.answer.leave()
	}
	for _, e := range f.tried {
		e.release()
	}
	f.router.lines.put(f.access(req))
}

// answer notes what the client gets.
type answer struct {
	http.ResponseWriter
	status   int
	bytes    int64
	hijacked bool
	flight   *flight
	leave    func() // when the hijacked connection is done with; nil: there is none
}

// WriteHeader notes the status, unless another follows. That the body may come is
// said by the server when it is read: said here, too, the client would hear it twice.
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

// Hijack gives the connection away: the protocol was switched.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err != nil {
		return c, rw, err
	}
	a.hijacked, a.status = true, http.StatusSwitchingProtocols
	a.leave = a.flight.target.endpoint.join(c)
	if rw.Reader.Buffered() > 0 {
		c = &early{Conn: c, buffered: rw.Reader}
	}
	return c, rw, nil
}

// early is a connection whose client spoke before the switch was granted. The proxy
// reads from the connection alone.
type early struct {
	net.Conn
	buffered *bufio.Reader
}

func (e *early) Read(p []byte) (int, error) {
	if n := e.buffered.Buffered(); n > 0 {
		return e.buffered.Read(p[:min(n, len(p))])
	}
	return e.Conn.Read(p)
}

// CloseWrite ends one direction, where the connection can.
func (e *early) CloseWrite() error { return closeWrite(e.Conn) }

// Unwrap leads http.ResponseController to what this type does not have.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

const bufferSize = 32 << 10

// buffers lends the proxy its copy buffers.
type buffers struct{ pool sync.Pool }

// Get lends a buffer.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

// Put takes it back.
func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
