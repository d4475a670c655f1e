package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/dewrun/dew/app"
)

// defaultTCPPorts are those of TCP routes. They lie below the ports that the kernel
// gives to outgoing connections.
var defaultTCPPorts = app.PortRange{First: 20000, Last: 20099}

// serveTCP keeps the ports of TCP routes open until ctx ends, at the addresses where
// the router listens.
func (d *daemon) serveTCP(ctx context.Context) error { return d.router.ServeTCP(ctx, d.listenPort) }

// listenPort opens a port at every address of the router. A machine without IPv6 has
// one of two, but a port that another program has at one address is not ours at the
// other either: clients would meet both.
func (d *daemon) listenPort(port int) (out []net.Listener, err error) {
	for _, front := range d.front {
		host, _, err := net.SplitHostPort(front.Addr().String())
		if err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			for _, l := range out {
				l.Close()
			}
			return nil, fmt.Errorf("%w (end what has the port, or take another for the route)", err)
		}
		out = append(out, l)
	}
	return out, nil
}
