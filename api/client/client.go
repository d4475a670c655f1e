package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// Socket is the name of the daemon's socket below its folder of run-time files.
const Socket = "dew.sock"

const (
	dialTimeout = 6 * time.Second
	callTimeout = time.Minute // of everything but uploads and streams
	maxAnswer   = 64 << 20
	allPages    = "5000" // the largest page there is
)

// Options say where the daemon is, and who asks.
type Options struct {
	Run       string       // folder of the daemon's run-time files: its socket is asked
	URL       string       // instead of Run: the listener
	Tokens    Tokens       // sign the requests; nil: nothing does
	TLS       *tls.Config  // for an https listener; nil: the system's authorities
	Space     Space        // where apps are looked for; nil: everywhere
	UserAgent string       // who asks
	Warn      func(string) // hears what the daemon warns of; may be nil
}

// Space gives the guid of the space that apps, processes and routes are listed
// of. It is asked when it is needed, and each time.
type Space func(ctx context.Context) (string, error)

// Client asks one daemon. Its methods may be called at the same time.
type Client struct {
	http   *http.Client
	base   *url.URL
	door   string // as people know it
	tokens Tokens // may be nil
	space  Space  // may be nil
	agent  string
	warn   func(string)

	selectors map[string]string // of labels, by the path of a list
}

// New gives a client; nothing is asked yet.
func New(o Options) (*Client, error) {
	c := &Client{tokens: o.Tokens, space: o.Space, agent: o.UserAgent, warn: o.Warn}
	if c.warn == nil {
		c.warn = func(string) {}
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 8, DisableCompression: true}
	dialer := &net.Dialer{Timeout: dialTimeout}
	if o.URL == "" {
		c.door = filepath.Join(o.Run, Socket)
		c.base = &url.URL{Scheme: "http", Host: "localhost"}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", c.door)
		}
	} else {
		u, err := url.Parse(o.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("cannot use %q as the daemon's address: it is not http(s)://host[:port]", o.URL)
		}
		c.base = &url.URL{Scheme: u.Scheme, Host: u.Host}
		c.door = c.base.String()
		transport.DialContext = dialer.DialContext
		transport.TLSClientConfig, transport.TLSHandshakeTimeout = o.TLS, dialTimeout
		transport.Proxy = http.ProxyFromEnvironment
	}
	c.http = &http.Client{Transport: transport}
	return c, nil
}

// Select gives a client that lists of what is at a path only what has such labels; an
// empty selector lets everything through.
func (c *Client) Select(path, selector string) *Client {
	if selector == "" {
		return c
	}
	out := *c
	out.selectors = map[string]string{path: selector}
	return &out
}

// Door is the socket or address that is asked.
func (c *Client) Door() string { return c.door }

// Error is an answer that is not a success.
type Error struct {
	Status int
	Code   int
	Title  string
	Detail string // of all errors in the answer, one per line
}

// Error gives the daemon's own sentence.
func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("the daemon answered %d %s", e.Status, http.StatusText(e.Status))
	}
	return e.Detail
}

// NotFound tells whether err is the daemon's word that something is not there. A
// call that it does not know is another matter.
func NotFound(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.Status == http.StatusNotFound && e.Detail != v3.DetailUnknownRequest
}

// Unreachable is a daemon that cannot be asked.
type Unreachable struct {
	Door string
	Err  error
}

// Error says which door did not open.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("cannot reach dewd at %s: %v", u.Door, u.Err)
}

// Unwrap gives the cause.
func (u *Unreachable) Unwrap() error { return u.Err }

// Request is a request in full; Path may have a query. It is signed with a token
// unless its header has an Authorization or it is to be Anonymous.
type Request struct {
	Method    string
	Path      string
	Header    http.Header
	Body      io.Reader
	Anonymous bool
}

// Send sends a request and gives the answer whatever its status. The caller
// closes its body. A token that the daemon refuses is renewed, and the request
// sent again, once; not so an upload, which cannot be read twice.
func (c *Client) Send(ctx context.Context, r Request) (*http.Response, error) {
	req, err := c.request(ctx, r)
	if err != nil {
		return nil, err
	}
	if c.tokens == nil || r.Anonymous || req.Header.Get("Authorization") != "" {
		return c.do(ctx, req)
	}
	token, err := c.tokens.Token(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := c.do(ctx, signed(req, token))
	if err != nil || resp.StatusCode != http.StatusUnauthorized || req.Body != nil && req.GetBody == nil {
		return resp, err
	}
	fresh, err := c.tokens.Renew(ctx, token)
	if err == nil && fresh == token {
		return resp, nil
	}
	_ = resp.Body.Close() // it is not wanted any more
	if err != nil {
		return nil, err
	}
	again := signed(req, fresh)
	if req.GetBody != nil {
		if again.Body, err = req.GetBody(); err != nil {
			return nil, fmt.Errorf("cannot send the request again: %w", err)
		}
	}
	return c.do(ctx, again)
}

// signed is the request with a token; with none it is as it was.
func signed(req *http.Request, token string) *http.Request {
	out := req.Clone(req.Context())
	if token != "" {
		out.Header.Set("Authorization", "bearer "+token)
	}
	return out
}

func (c *Client) request(ctx context.Context, r Request) (*http.Request, error) {
	u, err := c.base.Parse("/" + strings.TrimLeft(r.Path, "/"))
	if err != nil {
		return nil, fmt.Errorf("cannot use the path %q: %w", r.Path, err)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), r.Body)
	if err != nil {
		return nil, fmt.Errorf("cannot make the request: %w", err)
	}
	for name, values := range r.Header {
		req.Header[name] = values
	}
	if c.agent != "" && req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", c.agent)
	}
	return req, nil
}

// do sends a request and hands on what the daemon warns of.
func (c *Client) do(ctx context.Context, req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	for _, w := range warnings(resp.Header.Get("X-Cf-Warnings")) {
		c.warn(w)
	}
	return resp, nil
}

// failed tells the end of ctx from a door that does not open.
func (c *Client) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err // without the address, which is no real one
	}
	if o := (*net.OpError)(nil); errors.As(err, &o) && o.Op == "dial" {
		err = o.Err // the door is named once
	}
	return &Unreachable{Door: c.door, Err: err}
}

// call sends body as JSON and reads the answer into out; both may be nil. It
// returns the answer's header.
func (c *Client) call(ctx context.Context, method, path string, body, out any) (http.Header, error) {
	r := Request{Method: method, Path: path, Header: http.Header{"Accept": {"application/json"}}}
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("cannot encode the body of %s %s: %w", method, path, err)
		}
		r.Body = bytes.NewReader(b)
		r.Header.Set("Content-Type", "application/json")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("dewd did not answer %s %s within %s", method, path, callTimeout))
	defer cancel()
	h, err := c.exchange(ctx, r, out)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", context.Cause(ctx), ctx.Err())
	}
	return h, err
}

// exchange sends a request and reads a successful answer into out.
func (c *Client) exchange(ctx context.Context, r Request, out any) (http.Header, error) {
	resp, err := c.Send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, errorOf(resp.StatusCode, b)
	}
	if out == nil {
		return resp.Header, nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber() // a time in nanoseconds does not fit a float
	if err := dec.Decode(out); err != nil {
		return nil, fmt.Errorf("cannot read the answer to %s %s: %w", r.Method, r.Path, err)
	}
	return resp.Header, nil
}

// errorOf reads the body of an answer that is not a success.
func errorOf(status int, body []byte) *Error {
	e := &Error{Status: status}
	var es struct {
		v3.Errors
		oauthError
	}
	if err := json.Unmarshal(body, &es); err == nil && es.Name != "" {
		e.Title, e.Detail = es.Name, es.Description
		return e
	} else if err != nil || len(es.Errors.Errors) == 0 {
		e.Detail = strings.TrimSpace(string(body[:min(len(body), 500)]))
		return e
	}
	e.Code, e.Title = es.Errors.Errors[0].Code, es.Errors.Errors[0].Title
	details := make([]string, len(es.Errors.Errors))
	for i, one := range es.Errors.Errors {
		details[i] = one.Detail
	}
	e.Detail = strings.Join(details, "\n")
	return e
}

// warnings reads the header in which the platform warns: items between commas,
// each query-escaped.
func warnings(header string) []string {
	var out []string
	for item := range strings.SplitSeq(header, ",") {
		w, err := url.QueryUnescape(item)
		if err != nil {
			w = item
		}
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

// list reads all pages.
func list[T any](ctx context.Context, c *Client, path string, q url.Values) ([]T, error) {
	if q == nil {
		q = url.Values{}
	}
	if !q.Has("per_page") {
		q.Set("per_page", allPages)
	}
	if selector := c.selectors[path]; selector != "" {
		q.Set("label_selector", selector)
	}
	var all []T
	for next := path + "?" + q.Encode(); next != ""; {
		var page v3.List[T]
		if _, err := c.call(ctx, http.MethodGet, next, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Resources...)
		next = ""
		if page.Pagination.Next != nil && !q.Has("page") {
			next = local(page.Pagination.Next.Href)
		}
	}
	return all, nil
}

// local is the part of an address behind the host: addresses in answers are the
// listener's, and the door that was asked answers them too.
func local(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.RequestURI()
}

// escape makes a name safe inside a path.
func escape(s string) string { return url.PathEscape(s) }

// filter escapes a value of a list filter: values are separated by commas first
// and decoded then.
func filter(values ...string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strings.NewReplacer("%", "%25", ",", "%2C", "+", "%2B").Replace(v)
	}
	return strings.Join(out, ",")
}
