package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/route"
)

// defaultTCPPorts are the default ports of TCP routes. They are below the ports that
// the kernel uses for outgoing connections.
var defaultTCPPorts = app.PortRange{First: 20000, Last: 20099}

// listeners are the TCP ports for clients outside of instances.
type listeners struct {
	api    []net.Listener
	apiTLS []net.Listener // empty: --listen-tls is off, or its port is taken
	routes []net.Listener // of app routes
	tls    []net.Listener // of app routes over TLS; empty: as for apiTLS
	ssh    []net.Listener // empty: --ssh is not set

	problems []string // why dewd does not listen at an address
}

// open opens the ports.
func (l *listeners) open(cfg *config) (err error) {
	if l.api, err = listenTCP(cfg.Listen, "listen"); err != nil {
		return err
	}
	if l.routes, err = listenTCP(cfg.Router, "router"); err != nil {
		return err
	}
	if cfg.SSH != "" {
		if l.ssh, err = listenTCP(cfg.SSH, "ssh"); err != nil {
			return err
		}
	}
	l.tls = l.openTLS(cfg.RouterTLS, "router-tls", "App routes are not available over TLS")
	l.apiTLS = l.openTLS(cfg.ListenTLS, "listen-tls", "The API is not available over TLS at an address of its own")
	return nil
}

// openTLS opens a port for TLS. If another program has it, dewd works without it.
func (l *listeners) openTLS(address, flag, otherwise string) []net.Listener {
	if isOff(address) {
		return nil
	}
	opened, err := listenTCP(address, flag)
	if err != nil {
		l.problems = append(l.problems, otherwise+": "+err.Error()+". Then restart dewd; apps keep running")
	}
	return opened
}

// isOff reports whether an optional address is disabled.
func isOff(address string) bool { return address == "" || address == "off" }

// tcpRoute opens a port at every address of the router. A machine without IPv6 has only
// one of two addresses. If another program has the port at one address, dewd opens it
// at neither. Otherwise clients would reach both programs.
func (l *listeners) tcpRoute(port int) (out []net.Listener, err error) {
	for _, front := range l.routes {
		host, _, err := net.SplitHostPort(front.Addr().String())
		if err != nil {
			return nil, err
		}
		one, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			for _, opened := range out {
				opened.Close()
			}
			return nil, fmt.Errorf("%w (stop the program that uses the port, or choose another port for the route)", err)
		}
		out = append(out, one)
	}
	return out, nil
}

// openPorts returns the ports that instances can reach.
func (l *listeners) openPorts() (out []uint16) {
	for _, ls := range [][]net.Listener{l.api, l.routes, l.apiTLS, l.tls} {
		if port := portOf(ls); port != 0 {
			out = append(out, port)
		}
	}
	return out
}

// openListeners opens the ports before dewd creates anything that needs them. A
// teardown serves no client and has no addresses.
func (d *daemon) openListeners(context.Context) error {
	if d.cfg.Listen == "" {
		return nil
	}
	if err := d.ports.open(&d.cfg); err != nil {
		return err
	}
	d.fixedURL = d.cfg.PublicURL != ""
	if !d.fixedURL {
		d.cfg.PublicURL = "http://" + d.ports.api[0].Addr().String()
	}
	return nil
}

// refuseInsecure refuses a new daemon that would serve the API on a network without
// TLS. An existing one only warns; see listenProblems.
func (c *config) refuseInsecure() error {
	if !c.insecure() {
		return nil
	}
	if _, err := os.Stat(filepath.Join(c.Root, "dew.db")); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return &failure{status: statusUsage, err: fmt.Errorf("--listen: %s is an address on a network, where others can read passwords sent without TLS "+
		"(listen on 127.0.0.1 and use --listen-tls %s for the network, or set --listen-insecure)", c.Listen, withPort(c.Listen, "8485"))}
}

// insecure reports whether the API listens on a network without TLS, and the operator
// has not allowed that.
func (c *config) insecure() bool { return !c.ListenInsecure && !isLoopback(c.Listen) }

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func withPort(address, port string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return net.JoinHostPort(host, port)
}

// apiHosts returns the names that the router leads to the API, and those of them that
// are names of the authorization server.
func (c *config) apiHosts() (all, logins []string) {
	return platform.APIHosts(c.Domain), []string{"login." + c.Domain, "uaa." + c.Domain}
}

// openCertificates loads the certificates of the TLS listeners. Without those of the
// own CA, dewd works without TLS.
func (d *daemon) openCertificates() (err error) {
	if isOff(d.cfg.RouterTLS) && isOff(d.cfg.ListenTLS) {
		return nil
	}
	if d.cfg.RouterCert != "" {
		d.tls, err = certs.Given(d.cfg.RouterCert, d.cfg.RouterKey)
		return err
	}
	dir := filepath.Join(d.cfg.Root, "keys")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	d.authority, err = certs.Open(certs.Config{Dir: dir, Domain: d.cfg.Domain, Names: []string{"localhost", apiName}, Named: d.router.Named})
	if err != nil {
		d.ports.problems = append(d.ports.problems, "Nothing is available over TLS: "+err.Error())
		return nil
	}
	if why := d.authority.Replaced(); why != "" {
		d.log.Warn("created a new certificate authority in place of the stored one (run dew trust again)", "reason", why, "file", d.authority.File())
	}
	d.tls = d.authority.TLS()
	return nil
}

// serveTLS serves the API and app routes over TLS until ctx is done.
func (d *daemon) serveTLS(ctx context.Context, api func(http.Handler) *http.Server) error {
	if d.tls == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range append(d.ports.tls, asList(d.inside.frontTLS)...) {
		g.Go(func() error {
			s := route.Server(d.router)
			s.TLSConfig = d.tls.Clone() // the server changes it
			return serve(ctx, route.Secure(l, d.tls), s, d.log)
		})
	}
	for _, l := range append(d.ports.apiTLS, asList(d.inside.apiTLS)...) {
		g.Go(func() error {
			s := api(d.api.Handler())
			s.TLSConfig = d.tls.Clone()
			return serve(ctx, tls.NewListener(l, d.tls), s, d.log)
		})
	}
	return g.Wait()
}

// asList returns a listener as a list, which is empty for nil.
func asList(l net.Listener) []net.Listener {
	if l == nil {
		return nil
	}
	return []net.Listener{l}
}

// serveRouted serves the requests for names of the API that come through the router.
// Clients on a network need TLS for them.
func (d *daemon) serveRouted(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil && !d.cfg.ListenInsecure && !d.isLocal(r.RemoteAddr) {
		http.Error(w, "403 Forbidden: The API needs TLS on a network. Use https:// and the port of --router-tls, or start dewd with --listen-insecure.", http.StatusForbidden)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(d.serving, cancel) // streams stop with the daemon
	defer stop()
	inbound.MinimumRate.Bodies(d.api.Handler()).ServeHTTP(w, r.WithContext(ctx))
}

// isLocal reports whether a client runs on this machine or in an instance.
func (d *daemon) isLocal(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return err == nil && (a.Addr().Unmap().IsLoopback() || d.subnet.Contains(a.Addr().Unmap()))
}

// tlsStatus describes the TLS listeners.
func (d *daemon) tlsStatus() *v3.TLS {
	if d.tls == nil {
		return nil
	}
	t := &v3.TLS{}
	if len(d.ports.apiTLS) > 0 {
		t.API = "https://" + d.ports.apiTLS[0].Addr().String()
	}
	if len(d.ports.tls) > 0 {
		t.Router = "https://" + d.ports.tls[0].Addr().String()
	}
	if d.authority != nil {
		t.CA, t.CAFile, t.CAFingerprint = string(d.authority.PEM()), d.authority.File(), d.authority.Fingerprint()
	}
	return t
}

// warnings returns what is wrong with the listeners, each with what to do.
func (d *daemon) warnings() ([]string, error) {
	out := append([]string{}, d.ports.problems...)
	if d.cfg.insecure() {
		out = append(out, fmt.Sprintf("The API listens at %s, where others on the network can read passwords: use --listen-tls for the network, or set --listen-insecure. A later version refuses to start", d.cfg.Listen))
	}
	domains, err := d.registry.Domains()
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, domain := range domains {
		names[domain.GUID] = domain.Name
	}
	routes, err := d.registry.Routes()
	if err != nil {
		return nil, err
	}
	for _, rt := range routes {
		if platform.IsAPIRoute(rt, names[rt.Domain], d.cfg.Domain) {
			out = append(out, fmt.Sprintf("The route %s of an app hides the API at that name: map another route to the app, then delete this one", rt.URL(names[rt.Domain])))
		}
	}
	return out, nil
}
