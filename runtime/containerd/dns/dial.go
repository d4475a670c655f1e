package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// DialFunc connects from inside a network namespace to an address that is no name.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Dial connects from inside an instance's network namespace. dir is the folder of its
// hosts and resolv.conf. It resolves a name as a
// program in the instance would: in its hosts file, then with its name servers.
func Dial(ctx context.Context, dir string, dial DialFunc, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err == nil {
		return dial(ctx, network, address)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("cannot dial %s: %w", address, err)
	}
	addrs, err := lookup(ctx, dir, dial, host)
	if err != nil {
		return nil, fmt.Errorf("cannot dial %s: %w", address, err)
	}
	var errs error
	for _, a := range addrs {
		conn, err := dial(ctx, network, net.JoinHostPort(a.String(), port))
		if err == nil {
			return conn, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
}

func lookup(ctx context.Context, dir string, dial DialFunc, host string) ([]netip.Addr, error) {
	b, err := os.ReadFile(filepath.Join(dir, "hosts"))
	if err != nil {
		return nil, fmt.Errorf("cannot read hosts: %w", err)
	}
	if found := inHosts(string(b), host); len(found) > 0 {
		return found, nil
	}
	b, err = os.ReadFile(filepath.Join(dir, "resolv.conf"))
	if err != nil {
		return nil, fmt.Errorf("cannot read resolv.conf: %w", err)
	}
	servers := nameservers(string(b))
	if len(servers) == 0 {
		return nil, fmt.Errorf("cannot resolve %s: the instance has no DNS server", host)
	}
	var tried atomic.Uint32 // both address families are queried at once
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		server := servers[int(tried.Add(1)-1)%len(servers)] // use the servers in turn
		return dial(ctx, network, netip.AddrPortFrom(server, 53).String())
	}}
	// The trailing dot bypasses the machine's own hosts file and search list.
	return r.LookupNetIP(ctx, "ip", strings.TrimSuffix(host, ".")+".")
}
