//go:build integration

package network

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

const (
	lanMetadata  = "169.254.169.254" // address of the neighbour, like a cloud's metadata server
	lanHostLocal = "169.254.7.7"     // address of the host
	metadataPort = 8081
)

// linkLocals gives the neighbour and the host link-local addresses, with servers.
func (l *lan) linkLocals() {
	l.t.Helper()
	address := func(link, addr string) error {
		dev, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		return netlink.AddrAdd(dev, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(netip.MustParseAddr(addr), 16))})
	}
	l.in("", func() error { return address("lan0", lanHostLocal) })
	l.in(l.neighbour, func() error { return address("eth0", lanMetadata) })
	l.serve(l.neighbour, metadataPort)
	l.serve(l.neighbour, dnsPort)
}

// Instances reach no link-local address, neither remote nor the host's own, except name
// servers and addresses that an administrator opened.
func TestLinkLocalIsClosed(t *testing.T) {
	t.Parallel()
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		l := newLAN(t)
		l.linkLocals()
		// Without the daemon's own table the address is reachable.
		l.must(errors.Join(l.fw.applyTable(l.conn()), l.fw.Remove()))
		l.reaches(l.instance, lanHostLocal, lanPort, lanInstance)
		l.fw.Open = true // opening every port of the host does not open link-local addresses
		l.must(l.fw.Apply())
		l.cannotReach(l.instance, lanMetadata, metadataPort)
		l.cannotReach(l.instance, lanHostLocal, lanPort)
		l.reaches(l.instance, lanMetadata, dnsPort, lanHostLocal)
		l.reaches(l.instance, lanNeighbour, lanPort, lanHost)
		l.reaches("", lanMetadata, metadataPort, lanHostLocal) // the machine itself can reach it
	})
	t.Run("opened", func(t *testing.T) {
		t.Parallel()
		l := newLAN(t)
		l.linkLocals()
		l.fw.LinkLocal = []netip.Prefix{netip.MustParsePrefix(lanMetadata + "/32")}
		l.must(l.fw.Apply())
		l.reaches(l.instance, lanMetadata, metadataPort, lanHostLocal)
		l.cannotReach(l.instance, lanHostLocal, lanPort)
	})
}
