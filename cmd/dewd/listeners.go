package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
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
