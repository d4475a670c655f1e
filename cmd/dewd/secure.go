package main

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/route"
)

// serveSecure answers app routes over TLS until ctx ends.
func (d *daemon) serveSecure(ctx context.Context) error {
	if len(d.secure) == 0 {
		return nil
	}
	cfg, err := d.certificates()
	if err != nil {
		return infrastructure(err)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range d.secure {
		g.Go(func() error {
			s := route.Server(d.router)
			s.TLSConfig = cfg.Clone() // the server changes it
			return serve(ctx, route.Secure(l, cfg), s, d.log)
		})
	}
	return g.Wait()
}

// certificates are those that the user gave, or those of the daemon's own authority.
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
	d.log.Info("routes over TLS", "address", d.secure[0].Addr(), "authority", filepath.Join(dir, "router-ca.pem"))
	return a.Config(), nil
}
