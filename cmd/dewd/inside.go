package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/route"
)

// apiName is how instances call the machine they are on.
const apiName = "api.dew.internal"

// inside are the doors for instances, at the bridge's own address.
type inside struct {
	api   net.Listener // nil: the API listens everywhere, or could not listen there
	front net.Listener // of app routes; nil: the same
	udp   net.PacketConn
	tcp   net.Listener
	names *route.Names
}

// openInside opens the doors for instances. Another program may have the ports:
// then instances do without, and everything else works.
func (d *daemon) openInside(context.Context) error {
	if d.cfg.Listen == "" {
		return nil
	}
	host := d.engine.Gateway()
	routes := d.openBridge(&d.inside.front, d.front, "instances do not reach routes")
	d.openBridge(&d.inside.api, d.listen, "instances do not reach the API")
	if err := d.openNames(host, routes); err != nil {
		d.log.Warn("instances do not find each other by name: cannot listen on the bridge (end what has the port)", "err", err)
	} else {
		d.engine.UseNames()
	}
	return nil
}

// openBridge opens the door for instances at the port of one for everybody. It
// tells whether they reach it.
func (d *daemon) openBridge(door *net.Listener, outer []net.Listener, otherwise string) bool {
	l, err := net.Listen("tcp", netip.AddrPortFrom(d.engine.Gateway(), portOf(outer)).String())
	switch {
	case err == nil:
		*door = l
	case errors.Is(err, syscall.EADDRINUSE) && listensEverywhere(outer):
	default:
		d.log.Warn(otherwise+": cannot listen on the bridge (end what has the port)", "err", err)
		return false
	}
	return true
}

func (d *daemon) openNames(host netip.Addr, routes bool) (err error) {
	const port = 53
	at := netip.AddrPortFrom(host, port).String()
	if d.inside.udp, err = net.ListenPacket("udp", at); err != nil {
		return err
	}
	if d.inside.tcp, err = net.Listen("tcp", at); err != nil {
		return errors.Join(err, d.inside.udp.Close())
	}
	c := route.NamesConfig{API: host, Resolv: "/etc/resolv.conf", Logger: d.log}
	if routes {
		c.Router = host
	}
	d.inside.names = d.router.Names(c)
	return nil
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

// serveInside answers instances until ctx ends.
func (d *daemon) serveInside(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if d.inside.names != nil {
		g.Go(func() error { return d.inside.names.Serve(ctx, d.inside.udp, d.inside.tcp) })
	}
	if d.inside.api != nil {
		g.Go(func() error {
			s := apiServer(d.api.Handler())
			s.BaseContext = func(net.Listener) context.Context { return ctx }
			return serve(ctx, d.inside.api, s, d.log)
		})
	}
	if d.inside.front != nil {
		g.Go(func() error { return serve(ctx, route.Screen(d.inside.front), route.Server(d.router), d.log) })
	}
	return g.Wait()
}
