package containerd

import (
	"context"
	"net"
	"net/netip"

	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/runtime/containerd/dns"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
)

// Gateway returns the bridge's own address, where instances reach the machine.
func (e *Engine) Gateway() netip.Addr { return e.net.Gateway() }

// UseNames makes instances that start from now on use the name server at the bridge's
// address.
func (e *Engine) UseNames() { e.named.Store(true) }

// UseCertificates makes containers that start from now on trust the router.
func (e *Engine) UseCertificates(c *certs.Instances) { e.trusted.Store(c) }

// certificates returns the files for the next container.
func (e *Engine) certificates() (ocispec.Certificates, error) {
	c := e.trusted.Load()
	if c == nil {
		return ocispec.Certificates{}, nil
	}
	bundle, err := c.Bundle()
	return ocispec.Certificates{Dir: c.Dir(), Bundle: bundle}, err
}

// resolvConf returns the resolv.conf of an instance. It has the name server at the
// bridge, if there is one, and then the machine's own, for the time when no daemon
// runs.
func resolvConf(e *Engine, paths ...string) string {
	text := dns.ResolvConf(paths...)
	if !e.named.Load() {
		return text
	}
	return dns.WithServer(text, e.Gateway())
}

// Dial connects from inside the instance's network namespace. It resolves a name as a
// program in the instance would.
func (c *container) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return c.e.net.Dial(ctx, c.spec.Instance, network, address)
	}
	return dns.Dial(ctx, c.dir, dial, network, address)
}
