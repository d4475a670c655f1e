package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/route"
)

// addresses are the addresses at which clients reach a daemon over TLS and through the
// router.
type addresses struct{ *daemon }

// openCertificates loads the certificates of the TLS listeners. Without those of the
// own CA, dewd works without TLS. Instances get the certificate of the own CA.
func (d addresses) openCertificates() error {
	err := d.loadCertificates()
	if err != nil {
		return err
	}
	var ca []byte
	if d.authority != nil {
		ca = d.authority.PEM()
	}
	trusted, err := certs.ForInstances(filepath.Join(d.cfg.Root, "certificates"), certs.BundlePath, ca)
	if err == nil && d.engine != nil {
		d.engine.UseCertificates(trusted)
	}
	return err
}

func (d addresses) loadCertificates() (err error) {
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
func (d addresses) serveTLS(ctx context.Context, api func(http.Handler) *http.Server) error {
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
			return serve(ctx, route.Secure(l, d.tls), s, d.log)
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
func (d addresses) serveRouted(w http.ResponseWriter, r *http.Request) {
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
func (d addresses) isLocal(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return err == nil && (a.Addr().Unmap().IsLoopback() || d.subnet.Contains(a.Addr().Unmap()))
}

// tlsStatus describes the TLS listeners.
func (d addresses) tlsStatus() *v3.TLS {
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
func (d addresses) warnings() ([]string, error) {
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

// report logs what is wrong with the listeners.
func (d addresses) report() {
	found, err := d.warnings()
	if err != nil {
		d.log.Error("cannot check the listeners", "err", err)
	}
	for _, text := range found {
		d.log.Warn(text)
	}
}
