package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/route"
)

// defaultTCPPorts are the default ports of TCP routes. They are below the ports that
// the kernel uses for outgoing connections.
var defaultTCPPorts = app.PortRange{First: 20000, Last: 20099}

// listeners are the TCP ports for clients outside of instances.
type listeners struct {
	api    []net.Listener
	routes []net.Listener // of app routes
	tls    []net.Listener // of app routes over TLS; empty: --router-tls is not set
	ssh    []net.Listener // empty: --ssh is not set
}

// forInstances returns the ports that instances can reach at the address of the bridge.
func (l *listeners) forInstances() []uint16 {
	ports := []uint16{portOf(l.api), portOf(l.routes)}
	if len(l.tls) > 0 {
		ports = append(ports, portOf(l.tls))
	}
	return ports
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
	if cfg.RouterTLS != "" {
		l.tls, err = listenTCP(cfg.RouterTLS, "router-tls")
	}
	return err
}

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

// openListeners opens the ports before dewd creates anything that needs them. A
// teardown serves no client and has no addresses.
func (d *daemon) openListeners(context.Context) error {
	if d.cfg.Listen == "" {
		return nil
	}
	if err := d.ports.open(&d.cfg); err != nil {
		return err
	}
	if d.cfg.PublicURL == "" {
		d.cfg.PublicURL = "http://" + d.ports.api[0].Addr().String()
	}
	return nil
}

// serveTLS serves app routes over TLS until ctx is done.
func (d *daemon) serveTLS(ctx context.Context) error {
	if len(d.ports.tls) == 0 {
		return nil
	}
	cfg, err := d.certificates()
	if err != nil {
		return infrastructure(err)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range d.ports.tls {
		g.Go(func() error {
			s := route.Server(d.router)
			s.TLSConfig = cfg.Clone() // the server changes it
			return serve(ctx, route.Secure(l, cfg), s, d.log)
		})
	}
	return g.Wait()
}

// certificates returns the TLS configuration with the certificate of --router-cert, or
// with those of dewd's own CA.
func (d *daemon) certificates() (*tls.Config, error) {
	if d.cfg.RouterCert != "" {
		return route.GivenCertificate(d.cfg.RouterCert, d.cfg.RouterKey)
	}
	dir := filepath.Join(d.cfg.Root, "keys")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a, err := route.OpenAuthority(dir, d.router.Named)
	if err != nil {
		return nil, err
	}
	d.log.Info("serving routes over TLS", "address", d.ports.tls[0].Addr(), "authority", filepath.Join(dir, "router-ca.pem"))
	return a.Config(), nil
}
