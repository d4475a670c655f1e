package containerd

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/runtime"
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
func (e *Engine) resolvConf(paths ...string) string {
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

// restoreNetwork restores the parts of the network that another program has removed:
// the bridge, its ports, and the mounts of network namespaces.
func (e *Engine) restoreNetwork() error {
	var ids []runtime.InstanceID
	var errs error
	for _, c := range e.known.all() {
		ids = append(ids, c.spec.Instance)
		errs = errors.Join(errs, c.restoreNamespace())
	}
	restored, err := e.net.Restore(ids)
	if restored {
		e.log.Warn("another program changed the bridge of the instances; dewd restored it", "bridge", e.cfg.Names.Bridge)
	}
	return errors.Join(errs, err)
}

// restoreNamespace mounts the network namespace again while a process is in it.
func (c *container) restoreNamespace() error {
	for _, p := range c.procs {
		if p.pid == 0 || p.ended.Load() || c.init.stopping.Load() {
			continue
		}
		restored, err := c.e.net.RestoreNamespace(c.spec.Instance, p.pid)
		if restored {
			c.e.log.Warn("another program unmounted the network namespace of an instance; dewd mounted it again", "instance", c.spec.Instance)
		}
		if c.init.stopping.Load() { // the removal could have been before the mount
			return errors.Join(err, c.e.net.Remove(c.spec.Instance))
		}
		return err
	}
	return nil
}
