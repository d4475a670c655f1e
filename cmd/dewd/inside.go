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

// apiName is how instances call the machine they are on.
const apiName = "api.dew.internal"

// bridgeListeners are the ports for instances, at the address of the bridge.
type bridgeListeners struct {
	host  netip.Addr // of the bridge
	log   *slog.Logger
	api   net.Listener // nil: the API listens on all addresses, or could not listen there
	front net.Listener // of app routes; nil: the same
	udp   net.PacketConn
	tcp   net.Listener
	names *route.Names
}

// openInside opens the ports for instances. Another program may have them: then
// instances do without, and everything else works.
func (d *daemon) openInside(context.Context) error {
	if d.cfg.Listen == "" {
		return nil
	}
	d.inside = bridgeListeners{host: d.engine.Gateway(), log: d.log}
	routes := d.inside.open(&d.inside.front, d.ports.routes, "instances do not reach routes")
	d.inside.open(&d.inside.api, d.ports.api, "instances do not reach the API")
	if err := d.inside.openNames(d.router, routes); err != nil {
		d.log.Warn("instances do not find each other by name: cannot listen on the bridge (end what has the port)", "err", err)
	} else {
		d.engine.UseNames()
	}
	return nil
}

// open opens for instances the port of an outer listener. It tells whether they reach it.
func (b *bridgeListeners) open(inner *net.Listener, outer []net.Listener, otherwise string) bool {
	l, err := net.Listen("tcp", netip.AddrPortFrom(b.host, portOf(outer)).String())
	switch {
	case err == nil:
		*inner = l
	case errors.Is(err, syscall.EADDRINUSE) && listensEverywhere(outer):
	default:
		b.log.Warn(otherwise+": cannot listen on the bridge (end what has the port)", "err", err)
		return false
	}
	return true
}

// openNames opens the DNS server. It knows the names of routes if instances reach them.
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

// serve answers instances until ctx ends.
func (b *bridgeListeners) serve(ctx context.Context, api http.Handler, router *route.Router) error {
	g, ctx := errgroup.WithContext(ctx)
	if b.names != nil {
		g.Go(func() error { return b.names.Serve(ctx, b.udp, b.tcp) })
	}
	if b.api != nil {
		g.Go(func() error {
			s := apiServer(api)
			s.BaseContext = func(net.Listener) context.Context { return ctx }
			return serve(ctx, b.api, s, b.log)
		})
	}
	if b.front != nil {
		g.Go(func() error { return serve(ctx, route.Screen(b.front), route.Server(router), b.log) })
	}
	return g.Wait()
}

// portOf is the port on which some listen, wherever that is.
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
