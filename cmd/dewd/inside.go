package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/route"
)

// apiName is the host name of the machine for instances.
const apiName = "api.dew.internal"

// bridgeListeners are the listeners for instances, at the address of the bridge.
type bridgeListeners struct {
	host  netip.Addr // address of the bridge
	log   *slog.Logger
	api   net.Listener // nil: the API listens on all addresses, or could not listen on the bridge
	front net.Listener // listener of app routes; nil: as for api

	apiTLS, frontTLS net.Listener // the same over TLS; nil: also without TLS

	udp   net.PacketConn
	tcp   net.Listener
	names *route.Names
}

// openInside opens the ports for instances. If another program uses them, instances
// cannot connect, but everything else works.
func (d *daemon) openInside(context.Context) error {
	if d.cfg.Listen == "" || !d.engine.Gateway().IsValid() {
		return nil
	}
	d.inside = bridgeListeners{host: d.engine.Gateway(), log: d.log}
	routes := d.inside.open(&d.inside.front, d.ports.routes, "instances cannot reach routes")
	d.inside.open(&d.inside.api, d.ports.api, "instances cannot reach the API")
	if len(d.ports.apiTLS) > 0 {
		d.inside.open(&d.inside.apiTLS, d.ports.apiTLS, "instances cannot reach the API over TLS")
	}
	if len(d.ports.tls) > 0 {
		d.inside.open(&d.inside.frontTLS, d.ports.tls, "instances cannot reach routes over TLS")
	}
	if err := d.inside.openNames(d.router, routes); err != nil {
		d.log.Warn("instances cannot resolve internal routes: cannot listen on the bridge (stop the program that uses the port)", "err", err)
	} else {
		d.engine.UseNames()
	}
	return nil
}

// open opens the port of an outer listener for instances. It reports whether instances
// can reach the port.
func (b *bridgeListeners) open(inner *net.Listener, outer []net.Listener, otherwise string) bool {
	l, err := net.Listen("tcp", netip.AddrPortFrom(b.host, portOf(outer)).String())
	switch {
	case err == nil:
		*inner = l
	case errors.Is(err, syscall.EADDRINUSE) && listensEverywhere(outer):
	default:
		b.log.Warn(otherwise+": cannot listen on the bridge (stop the program that uses the port)", "err", err)
		return false
	}
	return true
}

// openNames opens the DNS server. It resolves the names of routes if routes is true.
func (b *bridgeListeners) openNames(router *route.Router, routes bool) (err error) {
	const port = 53
	at := netip.AddrPortFrom(b.host, port).String()
	if b.udp, err = net.ListenPacket("udp", at); err != nil {
		return err
	}
	if b.tcp, err = net.Listen("tcp", at); err != nil {
		return errors.Join(err, b.udp.Close())
	}
	c := route.NamesConfig{API: b.host, Resolv: "/etc/resolv.conf", Logger: b.log}
	if routes {
		c.Router = b.host
	}
	b.names = router.Names(c)
	return nil
}

// serve serves instances until ctx is done.
func (b *bridgeListeners) serve(ctx context.Context, api http.Handler, router *route.Router) error {
	g, ctx := errgroup.WithContext(ctx)
	if b.names != nil {
		g.Go(func() error { return b.names.Serve(ctx, b.udp, b.tcp) })
	}
	if b.api != nil {
		g.Go(func() error {
			s := route.Screened(apiServer(api))
			s.BaseContext = func(net.Listener) context.Context { return ctx }
			return serve(ctx, route.Screen(b.api), s, b.log)
		})
	}
	if b.front != nil {
		g.Go(func() error { return serve(ctx, route.Screen(b.front), route.Server(router), b.log) })
	}
	return g.Wait()
}

// portOf returns the port of the listeners, at any address.
func portOf(ls []net.Listener) uint16 {
	if len(ls) == 0 {
		return 0
	}
	_, port, err := net.SplitHostPort(ls[0].Addr().String())
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

func listensEverywhere(ls []net.Listener) bool {
	for _, l := range ls {
		if a, ok := l.Addr().(*net.TCPAddr); ok && a.IP.IsUnspecified() {
			return true
		}
	}
	return false
}
