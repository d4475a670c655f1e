package smoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dewrun/dew/api/v3"
)

const (
	answerTimeout = 10 * time.Second // timeout of one try
	maxAnswer     = 4 << 20
)

// http sends a request once and checks the response.
func (c *checker) http(ctx context.Context, h *HTTPCheck, a subject) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	host, dial, err := c.findRoute(ctx, h, a)
	if err != nil {
		return err
	}
	got, err := send(ctx, h, host, dial)
	if err != nil {
		return fmt.Errorf("%s %s of %s got no response: %w", h.Method, h.Path, a.name, err)
	}
	return h.verify(got)
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// findRoute finds the host name of a request, and how to connect to it.
func (c *checker) findRoute(ctx context.Context, h *HTTPCheck, a subject) (string, dialer, error) {
	if h.Host != "" {
		return h.Host, c.dialRouter, nil
	}
	routes, err := c.client.Routes().OfApp(ctx, a.guid)
	if err != nil {
		return "", nil, err
	}
	if host := hostFor(routes, a.guid, h.Port); host != "" {
		return host, c.dialRouter, nil
	}
	if h.Port == 0 {
		return "", nil, final{failed(StatusAssertion, "app %s has no HTTP route: set port in the check to connect directly to the instance", a.name)}
	}
	at := Instance{App: a.name, Process: "web"}
	inside := func(ctx context.Context, _, _ string) (net.Conn, error) { return c.commands.Dial(ctx, at, h.Port) }
	return fmt.Sprintf("localhost:%d", h.Port), inside, nil
}

// hostFor returns the host of a route to an app. With a port, it uses only routes to
// that port. Routes without a path are preferred.
func hostFor(routes []v3.Route, app string, port int) string {
	found := ""
	for _, r := range routes {
		if r.Protocol != "http" || !leadsTo(r, app, port) {
			continue
		}
		host, _, _ := strings.Cut(r.URL, "/")
		if r.Path == "" {
			return host
		}
		if found == "" {
			found = host
		}
	}
	return found
}

func leadsTo(r v3.Route, app string, port int) bool {
	for _, d := range r.Destinations {
		if d.App.GUID == app && (port == 0 || d.Port == port) {
			return true
		}
	}
	return false
}

// dialRouter connects to the router for any name, because names under .localhost do not
// resolve everywhere.
func (c *checker) dialRouter(ctx context.Context, network, address string) (net.Conn, error) {
	if c.router != "" {
		address = c.router
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func send(ctx context.Context, h *HTTPCheck, host string, dial dialer) (answer, error) {
	u, err := url.Parse("http://" + host + h.Path)
	if err != nil {
		return answer{}, final{failed(StatusUsage, "%q is not a valid request path: %v", h.Path, err)}
	}
	req, err := http.NewRequestWithContext(ctx, h.Method, u.String(), strings.NewReader(h.Body))
	if err != nil {
		return answer{}, final{asFailure(err, StatusUsage)}
	}
	for name, value := range h.Headers {
		if http.CanonicalHeaderKey(name) == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	by := &http.Client{
		Transport:     &http.Transport{DialContext: dial, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := by.Do(req)
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err // without the address, which the message already has
	}
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer{}, fmt.Errorf("the response is incomplete: %w", err)
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: string(body)}, nil
}
