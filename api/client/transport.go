package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/v3"
)

// transport exchanges requests with one daemon. It is safe for concurrent use.
type transport struct {
	http    *http.Client
	base    *url.URL
	address string // shown to people
	tokens  Tokens // can be nil
	space   Space  // can be nil
	agent   string
	warn    func(string)

	selectors map[string]string // label selectors, by the path of a list
}

// newTransport returns a transport. It sends no request yet.
func newTransport(o Options) (*transport, error) {
	t := &transport{tokens: o.Tokens, space: o.Space, agent: o.UserAgent, warn: o.Warn}
	if t.warn == nil {
		t.warn = func(string) {}
	}
	tr := &http.Transport{MaxIdleConnsPerHost: 8, DisableCompression: true}
	dialer := &net.Dialer{Timeout: dialTimeout}
	if o.URL == "" {
		t.address = filepath.Join(o.Run, Socket)
		t.base = &url.URL{Scheme: "http", Host: "localhost"}
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", t.address)
		}
	} else {
		u, err := url.Parse(o.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("cannot use %q as the address of dewd: it must be http(s)://host[:port]", o.URL)
		}
		t.base = &url.URL{Scheme: u.Scheme, Host: u.Host}
		t.address = t.base.String()
		tr.DialContext = dialer.DialContext
		tr.TLSClientConfig, tr.TLSHandshakeTimeout = o.TLS, dialTimeout
		tr.Proxy = http.ProxyFromEnvironment
	}
	t.http = &http.Client{Transport: tr}
	return t, nil
}

// send is Client.Send.
func (t *transport) send(ctx context.Context, r Request) (*http.Response, error) {
	req, err := t.request(ctx, r)
	if err != nil {
		return nil, err
	}
	if t.tokens == nil || r.Anonymous || req.Header.Get("Authorization") != "" {
		return t.do(ctx, req)
	}
	token, err := t.tokens.Token(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := t.do(ctx, signed(req, token))
	if err != nil || resp.StatusCode != http.StatusUnauthorized || req.Body != nil && req.GetBody == nil {
		return resp, err
	}
	fresh, err := t.tokens.Renew(ctx, token)
	if err == nil && fresh == token {
		return resp, nil
	}
	_ = resp.Body.Close() // the response is no longer needed
	if err != nil {
		return nil, err
	}
	again := signed(req, fresh)
	if req.GetBody != nil {
		if again.Body, err = req.GetBody(); err != nil {
			return nil, fmt.Errorf("cannot send the request again: %w", err)
		}
	}
	return t.do(ctx, again)
}

// signed returns the request with a token, or unchanged if the token is empty.
func signed(req *http.Request, token string) *http.Request {
	out := req.Clone(req.Context())
	if token != "" {
		out.Header.Set("Authorization", "bearer "+token)
	}
	return out
}

func (t *transport) request(ctx context.Context, r Request) (*http.Request, error) {
	u, err := t.base.Parse("/" + strings.TrimLeft(r.Path, "/"))
	if err != nil {
		return nil, fmt.Errorf("cannot use the path %q: %w", r.Path, err)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), r.Body)
	if err != nil {
		return nil, fmt.Errorf("cannot create the request: %w", err)
	}
	for name, values := range r.Header {
		req.Header[name] = values
	}
	if t.agent != "" && req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", t.agent)
	}
	return req, nil
}

// do sends a request and passes on the daemon's warnings.
func (t *transport) do(ctx context.Context, req *http.Request) (*http.Response, error) {
	resp, err := t.http.Do(req)
	if err != nil {
		return nil, t.failed(ctx, err)
	}
	for _, w := range warnings(resp.Header.Get("X-Cf-Warnings")) {
		t.warn(w)
	}
	return resp, nil
}

// failed distinguishes a cancelled ctx from a daemon that cannot be reached.
func (t *transport) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err // without the URL, which is not a real one
	}
	if o := (*net.OpError)(nil); errors.As(err, &o) && o.Op == "dial" {
		err = o.Err // the message names the address only once
	}
	return &Unreachable{Address: t.address, Err: err}
}

// call sends body as JSON and reads the response into out. Both can be nil. It returns
// the response's header.
func (t *transport) call(ctx context.Context, method, path string, body, out any) (http.Header, error) {
	r := Request{Method: method, Path: path, Header: http.Header{"Accept": {"application/json"}}}
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("cannot encode the body of %s %s: %w", method, path, err)
		}
		r.Body = bytes.NewReader(b)
		r.Header.Set("Content-Type", "application/json")
	}
	return t.limited(ctx, r, out)
}

// limited is exchange with a time limit.
func (t *transport) limited(ctx context.Context, r Request, out any) (http.Header, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("dewd did not respond to %s %s within %s", r.Method, r.Path, callTimeout))
	defer cancel()
	h, err := t.exchange(ctx, r, out)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", context.Cause(ctx), ctx.Err())
	}
	return h, err
}

// exchange sends a request and reads a successful response into out.
func (t *transport) exchange(ctx context.Context, r Request, out any) (http.Header, error) {
	resp, err := t.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, t.failed(ctx, err)
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
		return nil, fmt.Errorf("cannot read the response to %s %s: %w", r.Method, r.Path, err)
	}
	return resp.Header, nil
}

// errorOf reads the body of a response that is not a success.
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

// warnings parses the X-Cf-Warnings header: items separated by commas, each
// query-escaped.
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
func list[T any](ctx context.Context, t *transport, path string, q url.Values) ([]T, error) {
	if q == nil {
		q = url.Values{}
	}
	if !q.Has("per_page") {
		q.Set("per_page", allPages)
	}
	if selector := t.selectors[path]; selector != "" {
		q.Set("label_selector", selector)
	}
	var all []T
	for next := path + "?" + q.Encode(); next != ""; {
		var page v3.List[T]
		if _, err := t.call(ctx, http.MethodGet, next, nil, &page); err != nil {
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

// local returns the part of a URL after the host. URLs in responses name the listener,
// but the client's own address serves them as well.
func local(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.RequestURI()
}

// escape makes a name safe in a path.
func escape(s string) string { return url.PathEscape(s) }

// filter escapes the values of a list filter. The server splits at commas first and
// decodes afterwards.
func filter(values ...string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strings.NewReplacer("%", "%25", ",", "%2C", "+", "%2B").Replace(v)
	}
	return strings.Join(out, ",")
}

// spaceGUID is the guid of the client's space, or an empty string if it has none.
func (t *transport) spaceGUID(ctx context.Context) (string, error) {
	if t.space == nil {
		return "", nil
	}
	return t.space(ctx)
}

// spaceQuery is the list query for the resources in the client's space.
func (t *transport) spaceQuery(ctx context.Context) (url.Values, error) {
	if t.space == nil {
		return url.Values{}, nil
	}
	guid, err := t.space(ctx)
	return url.Values{"space_guids": {filter(guid)}}, err
}

// remove deletes the resource at path and waits until it is gone.
func (t *transport) remove(ctx context.Context, path string) error {
	h, err := t.call(ctx, http.MethodDelete, path, nil, nil)
	if err != nil {
		return err
	}
	return t.follow(ctx, h)
}

// Missing is the error for a resource that was looked up by name. It does not exist, or
// the caller cannot see it.
type Missing struct{ Kind, Name string }

func (m *Missing) Error() string { return fmt.Sprintf("%s %q does not exist", m.Kind, m.Name) }

// first returns the first item of a list. If the list is empty, it returns the error
// missing.
func first[T any](all []T, err error, missing error) (T, error) {
	if err == nil && len(all) == 0 {
		err = missing
	}
	if err != nil {
		return *new(T), err
	}
	return all[0], nil
}

// listByGUID lists the resources at a path that have one of the guids.
func listByGUID[T any](ctx context.Context, t *transport, path string, guids []string) ([]T, error) {
	var all []T
	for some := range slices.Chunk(guids, batch) {
		found, err := list[T](ctx, t, path, url.Values{"guids": {filter(some...)}})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// batch is how many guids one request names, because the length of a URL is limited.
const batch = 200

// relate adds resources to a relationship of the resource at a path.
func (t *transport) relate(ctx context.Context, path string, to Relation) error {
	_, err := t.call(ctx, http.MethodPost, path+"/relationships/"+to.Name, to.body(), nil)
	return err
}

// unrelate removes resources from a relationship of the resource at a path.
func (t *transport) unrelate(ctx context.Context, path string, to Relation) error {
	for _, guid := range to.GUIDs {
		if err := t.remove(ctx, path+"/relationships/"+to.Name+"/"+escape(guid)); err != nil {
			return err
		}
	}
	return nil
}
