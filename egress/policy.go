// Package egress decides which addresses dewd connects to on behalf of users who are
// not administrators. Users choose the URLs of service brokers, log drains and route
// services, and dewd can reach addresses that its users cannot.
//
//	URL ─▶ host of a route that dew serves ─▶ the router
//	    └▶ DNS ─▶ address ─▶ rules ─▶ connection
//
// The rules check the address of each connection just before it is opened. So they also
// check a redirect, or a name whose address changes.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// Policy has the rules. Its zero value has no exceptions and no routes.
type Policy struct {
	// Allow lists the hosts and networks that the rules do not apply to.
	Allow Allowed
	// Web returns the address of the router if it serves HTTP requests for host. Nil:
	// it serves none.
	Web func(host string) (address string, ok bool)
	// TCP returns the address of the TCP route with that domain and port. Nil: there
	// are no TCP routes.
	TCP func(host, port string) (address string, ok bool)
	// Resolver looks up names; nil: the machine's.
	Resolver *net.Resolver
}

// Refused is the error of a connection that the rules do not allow. It names the rule,
// but does not reveal what is at the address.
type Refused struct{ What string }

func (e *Refused) Error() string {
	return "dew does not connect to " + e.What + " for users who are not administrators; an administrator can allow the host with dewd --allow-broker-hosts"
}

// DialContext connects to a host and port, or to the TCP route that has both.
func (p *Policy) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("cannot connect: %w", err)
	}
	if p.TCP != nil {
		if at, ok := p.TCP(host, port); ok {
			return (&net.Dialer{}).DialContext(ctx, network, at)
		}
	}
	return p.dial(ctx, network, address, 0)
}

// dial connects to a host and port if the rules allow it.
func (p *Policy) dial(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout, Resolver: p.Resolver}
	if host, _, err := net.SplitHostPort(address); err != nil || !p.Allow.hasHost(host) {
		d.ControlContext = p.control
	}
	conn, err := d.DialContext(ctx, network, address)
	if refused, ok := errors.AsType[*Refused](err); ok {
		return nil, refused // without the address that the name resolves to
	}
	return conn, err
}

// control is called with the address of each connection before it is opened.
func (p *Policy) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return &Refused{What: "an address that is not valid"}
	}
	return p.checkAddress(a.Addr())
}

// Check checks whether the rules allow a host. It returns a *Refused if one of its
// addresses is not allowed, and another error if it has no address.
func (p *Policy) Check(ctx context.Context, host string) error {
	if p.Allow.hasHost(host) {
		return nil
	}
	resolver := p.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	addrs, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("cannot resolve the host: %w", err)
	}
	for _, a := range addrs {
		if err := p.checkAddress(a); err != nil {
			return err
		}
	}
	return nil
}

// CheckURL checks whether dewd would connect to a URL, without connecting.
func (p *Policy) CheckURL(ctx context.Context, u *url.URL) error {
	serves := p.TCP
	if u.Scheme == "http" || u.Scheme == "https" || u.Scheme == "https-batch" {
		serves = func(host, _ string) (string, bool) { return p.web(host) }
	}
	if serves != nil {
		if _, ok := serves(u.Hostname(), u.Port()); ok {
			return nil
		}
	}
	return p.Check(ctx, u.Hostname())
}

func (p *Policy) web(host string) (string, bool) {
	if p.Web == nil {
		return "", false
	}
	return p.Web(host)
}

// checkAddress applies the rules to an address and to the IPv4 addresses embedded in
// it.
func (p *Policy) checkAddress(a netip.Addr) error {
	a = a.WithZone("").Unmap()
	if p.Allow.hasAddress(a) {
		return nil
	}
	own, err := ownAddresses()
	if err != nil {
		return err
	}
	for _, a := range append([]netip.Addr{a}, embedded(a)...) {
		switch what := special(a); {
		case what != "":
			return &Refused{What: what}
		case own[a]:
			return &Refused{What: "an address of this machine"}
		}
	}
	return nil
}

// ownAddresses returns the addresses of the machine's interfaces. A program that
// listens on all addresses is reachable at each of them, as on the loopback address.
func ownAddresses() (map[netip.Addr]bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("cannot list the addresses of this machine: %w", err)
	}
	own := make(map[netip.Addr]bool, len(all))
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap()] = true
		}
	}
	return own, nil
}

// metadata are the addresses outside of the link-local networks at which clouds provide
// the credentials of a machine.
var metadata = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"): true, // Amazon
	netip.MustParseAddr("fd20:ce::254"):  true, // Google
}

var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// special names a kind of address that only administrators can use. It is empty for an
// ordinary address.
func special(a netip.Addr) string {
	switch {
	case a.IsLoopback():
		return "a loopback address"
	case a.IsUnspecified(), thisNetwork.Contains(a):
		return "an unspecified address" // the kernel treats it as the loopback address
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case metadata[a]:
		return "a cloud metadata address"
	}
	return ""
}

// translations are the networks of IPv6 addresses that embed an IPv4 address, with the
// possible positions of its four bytes.
var translations = []struct {
	network netip.Prefix
	places  [][4]int
	flip    bool // the bytes are inverted
}{
	{network: netip.MustParsePrefix("::/96"), places: [][4]int{last}},           // IPv4-compatible
	{network: netip.MustParsePrefix("::ffff:0:0:0/96"), places: [][4]int{last}}, // IPv4-translated
	{network: netip.MustParsePrefix("64:ff9b::/96"), places: [][4]int{last}},    // NAT64
	{network: netip.MustParsePrefix("64:ff9b:1::/48"), places: [][4]int{ // NAT64 of a site, RFC 6052
		{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, last,
	}},
	{network: netip.MustParsePrefix("2002::/16"), places: [][4]int{{2, 3, 4, 5}}},     // 6to4
	{network: netip.MustParsePrefix("2001::/32"), places: [][4]int{last}, flip: true}, // Teredo
}

var last = [4]int{12, 13, 14, 15}

// embedded returns the IPv4 addresses that an IPv6 address may embed. It skips those of
// "this network": no translator routes to them, and most positions contain zeros.
func embedded(a netip.Addr) (out []netip.Addr) {
	if !a.Is6() {
		return nil
	}
	from := a.As16()
	for _, t := range translations {
		if !t.network.Contains(a) {
			continue
		}
		for _, at := range t.places {
			var to [4]byte
			for i, n := range at {
				to[i] = from[n]
				if t.flip {
					to[i] ^= 0xff
				}
			}
			if a := netip.AddrFrom4(to); !thisNetwork.Contains(a) {
				out = append(out, a)
			}
		}
	}
	return out
}
