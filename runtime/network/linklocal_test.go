//go:build integration

package network

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

const (
	lanMetadata  = "169.254.169.254" // of the neighbour, as a cloud's own server
	lanHostLocal = "169.254.7.7"     // of the host
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

// Instances reach no link-local address, be it elsewhere or the host's own, but for
// name servers and what an administrator opened.
func TestLinkLocalIsClosed(t *testing.T) {
	t.Parallel()
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		l := newLAN(t)
		l.linkLocals()
		// The way is there: it is the own table that closes it.
		l.must(errors.Join(l.fw.applyTable(l.conn()), l.fw.Remove()))
		l.reaches(l.instance, lanHostLocal, lanPort, lanInstance)
		l.fw.Open = true // every port of the host is no word about link-local addresses
		l.must(l.fw.Apply())
		l.cannotReach(l.instance, lanMetadata, metadataPort)
		l.cannotReach(l.instance, lanHostLocal, lanPort)
		l.reaches(l.instance, lanMetadata, dnsPort, lanHostLocal)
		l.reaches(l.instance, lanNeighbour, lanPort, lanHost)
		l.reaches("", lanMetadata, metadataPort, lanHostLocal) // the machine itself may
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
