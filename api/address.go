package api

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/dewrun/dew/api/apps"
	"github.com/dewrun/dew/api/daemon"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
)

// maxViews limits the addresses whose handlers are stored. Clients choose the port in
// their Host header.
const maxViews = 16

// views has the handlers for each address at which clients reach the API. The links in
// their responses start with that address. So a client that connected over TLS or
// through the router stays there.
type views struct {
	mu    sync.Mutex // guards order
	order []*view    // the last used first
}

// view is the API with the links of one address.
type view struct {
	base string
	mux  *http.ServeMux
}

// muxFor returns the endpoints with links that start with base.
func (s *Server) muxFor(base *url.URL) (*http.ServeMux, error) {
	if *base == *s.links.Public {
		return s.mux, nil
	}
	v := s.views
	v.mu.Lock()
	defer v.mu.Unlock()
	key := base.String()
	i := slices.IndexFunc(v.order, func(have *view) bool { return have.base == key })
	if i < 0 {
		other := s.withLinks(rest.Links{Public: base})
		if err := other.register(); err != nil {
			return nil, err
		}
		v.order = append(v.order[:min(len(v.order), maxViews-1)], &view{base: key, mux: other.mux})
		i = len(v.order) - 1
	}
	found := v.order[i]
	copy(v.order[1:i+1], v.order[:i])
	v.order[0] = found
	return found.mux, nil
}

// withLinks returns a copy of the server whose handlers build other links. Logs have no
// links, and count their streams for all addresses together.
func (s *Server) withLinks(l rest.Links) *Server {
	out := *s
	show := &present.Presenter{Access: s.access, Links: l, Platform: s.platform, PortTrouble: s.c.PortTrouble, Memo: s.people}
	out.links, out.mux = l, http.NewServeMux()
	out.apps = &apps.Handlers{
		Access: s.access, Links: l, Platform: s.platform, Present: show, SSH: s.apps.SSH, Version: s.apps.Version,
		Live: s.apps.Live, Terminals: s.apps.Terminals, Fail: s.apps.Fail,
	}
	b, r, o, m := *s.bits, *s.routes, *s.orgs, *s.market
	b.Links, b.Present = l, show
	r.Links, r.Present = l, show
	o.Links, o.Present = l, show
	m.Links, m.Present = l, show
	out.bits, out.routes, out.orgs, out.market = &b, &r, &o, &m
	out.daemon = &daemon.Handlers{Access: s.access, Links: l, Platform: s.platform, Present: show, Self: s.daemon.Self, Mailing: s.daemon.Mailing}
	return &out
}

// base returns the URL at which the client reached the API. A proxy in front of the
// plain listener can change the Host header. So there, a configured public URL is used
// for its own name, and for all names but those that only the router leads to the API.
// The name is one of the listener's own.
func (s *Server) base(r *http.Request) *url.URL {
	name, port := hostname(r.Host), ""
	if _, p, err := net.SplitHostPort(r.Host); err == nil {
		port = p
	}
	if _, err := strconv.ParseUint(port, 10, 16); port != "" && err != nil {
		return s.links.Public
	}
	u := &url.URL{Scheme: "http", Host: name}
	if strings.Contains(name, ":") {
		u.Host = "[" + name + "]"
	}
	if port != "" {
		u.Host = net.JoinHostPort(name, port)
	}
	if r.TLS != nil {
		u.Scheme = "https"
	}
	if s.c.FixedURL && r.TLS == nil && (!s.routed[name] || name == s.links.Public.Hostname()) {
		return s.links.Public
	}
	return u
}

// withAuthPath returns a request for a name of the authorization server with the path
// that it has at the other names: /oauth/token is /uaa/oauth/token.
func withAuthPath(r *http.Request) *http.Request {
	if isAuthRequest(r) {
		return r
	}
	out, u := new(http.Request), *r.URL
	*out = *r
	u.Path = "/uaa" + u.Path
	if u.RawPath != "" {
		u.RawPath = "/uaa" + u.RawPath
	}
	out.URL = &u
	return out
}
