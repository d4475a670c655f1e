//go:build integration

package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/userns"
)

// lan is a host with one instance and one neighbour on its network, each in a network
// namespace. The host's namespace is that of the test's own thread, so the rules and
// links of the machine are not changed.
type lan struct {
	t         *testing.T
	net       *Bridge
	fw        *Firewall
	instance  string // path of its namespace
	neighbour string // path of its namespace
}

const (
	lanHost      = "192.0.2.1"
	lanNeighbour = "192.0.2.2"
	lanInstance  = "10.201.16.2"
	lanGateway   = "10.201.16.1"
	lanDoor      = 8484 // port of the host that is open to instances
	lanPort      = 8080 // port of all servers

	arrives = 30 * time.Second // long enough for a busy machine
	dropped = 2 * time.Second  // more than a connection needs, with one retransmitted packet
)

// newLAN moves the test's thread, which exits with the test, into a new namespace.
func newLAN(t *testing.T) *lan {
	t.Helper()
	goruntime.LockOSThread()
	machine, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	host, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	if machine.Equal(host) {
		t.Fatal("the test stands in the machine's own network namespace")
	}
	subnet := netip.MustParsePrefix("10.201.16.0/20")
	l := &lan{t: t, net: New(t.TempDir(), "dewtest0", subnet)}
	l.fw = &Firewall{
		Table: "dewtest", Bridge: "dewtest0", Subnet: subnet, Host: l.net.Gateway(), Ports: []uint16{lanDoor},
	}
	if err := l.net.SetUp(); err != nil {
		t.Fatal(err)
	}
	id := runtime.NewInstanceID()
	t.Cleanup(func() {
		if err := l.net.Remove(id); err != nil {
			t.Error(err)
		}
	})
	l.connect(id, lanInstance)
	l.instance = l.net.Path(id)
	l.addNeighbour()
	l.serve(l.instance, lanPort)
	l.serve(l.neighbour, lanPort)
	l.serve("", lanPort)
	l.serve("", lanDoor)
	return l
}

// connect creates the connected namespace of an instance.
func (l *lan) connect(id runtime.InstanceID, addr string) {
	l.t.Helper()
	l.must(l.net.Create(id, userns.Range{}))
	l.must(l.net.Connect(id, netip.PrefixFrom(netip.MustParseAddr(addr), l.net.Subnet.Bits())))
}

// addNeighbour creates a machine that routes the instances' subnet through the host.
func (l *lan) addNeighbour() {
	l.t.Helper()
	l.neighbour = filepath.Join(l.t.TempDir(), "neighbour")
	if err := newNamespace(l.neighbour, userns.Range{}); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if err := errors.Join(unix.Unmount(l.neighbour, unix.MNT_DETACH), os.Remove(l.neighbour)); err != nil {
			l.t.Error(err)
		}
	})
	ns, err := netns.GetFromPath(l.neighbour)
	if err != nil {
		l.t.Fatal(err)
	}
	defer ns.Close()
	la := netlink.NewLinkAttrs()
	la.Name = "lan0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: la, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}); err != nil {
		l.t.Fatal(err)
	}
	addressed := func(link, addr string) error {
		dev, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		a := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(netip.MustParseAddr(addr), 24))}
		return errors.Join(netlink.AddrAdd(dev, a), netlink.LinkSetUp(dev))
	}
	if err := addressed("lan0", lanHost); err != nil {
		l.t.Fatal(err)
	}
	l.in(l.neighbour, func() error {
		if err := addressed("eth0", lanNeighbour); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: ipNet(l.net.Subnet), Gw: net.ParseIP(lanHost)})
	})
}

// in runs fn in a namespace, "" for the host's.
func (l *lan) in(path string, fn func() error) {
	l.t.Helper()
	if path == "" {
		if err := fn(); err != nil {
			l.t.Fatal(err)
		}
		return
	}
	if err := inNamespace(path, fn); err != nil {
		l.t.Fatal(err)
	}
}

// serve sends every client the address that the server sees of it.
func (l *lan) serve(path string, port int) {
	l.t.Helper()
	var ln net.Listener
	l.in(path, func() (err error) {
		ln, err = net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
		return err
	})
	l.t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
}

// answer waits for the client's byte, so that packets go both ways after the handshake.
// The client reports errors.
func answer(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(arrives))
	if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
		_, _ = io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).IP.String())
	}
}

// dialFrom connects from a namespace and returns the address that the server sees.
func (l *lan) dialFrom(from, to string, port int, patience time.Duration) (seen string, err error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	l.in(from, func() error {
		seen, err = greet(ctx, fmt.Sprintf("%s:%d", to, port))
		return nil
	})
	return seen, err
}

func greet(ctx context.Context, address string) (string, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(arrives)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "?"); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

func (l *lan) reaches(from, to string, port int, seen string) {
	l.t.Helper()
	if got, err := l.dialFrom(from, to, port, arrives); err != nil || got != seen {
		l.t.Errorf("%s to %s:%d: seen as %q, %v; want %s", l.whose(from), to, port, got, err, seen)
	}
}

// cannotReach expects a timeout: a refusal would come from behind the firewall.
func (l *lan) cannotReach(from, to string, port int) {
	l.t.Helper()
	got, err := l.dialFrom(from, to, port, dropped)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		l.t.Errorf("%s to %s:%d: seen as %q, %v; want no answer at all", l.whose(from), to, port, got, err)
	}
}

func (l *lan) whose(path string) string {
	switch path {
	case l.instance:
		return "instance"
	case l.neighbour:
		return "neighbour"
	}
	return "host"
}

// guarded checks the intended state. Instances reach the outside under the host's
// address, and the host's open ports. Only the host reaches instances.
func (l *lan) guarded() {
	l.t.Helper()
	l.reaches(l.instance, lanNeighbour, lanPort, lanHost)
	l.reaches(l.instance, lanGateway, lanDoor, lanInstance)
	l.reaches("", lanInstance, lanPort, lanGateway)
	l.cannotReach(l.neighbour, lanInstance, lanPort)
	l.cannotReach(l.instance, lanGateway, lanPort)
	l.cannotReach(l.instance, lanHost, lanPort)
}

// change changes the host's rules in one transaction.
func (l *lan) change(fn func(c *nftables.Conn)) {
	l.t.Helper()
	c := l.conn()
	fn(c)
	if err := c.Flush(); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lan) conn() *nftables.Conn {
	l.t.Helper()
	c, err := nftables.New()
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

func (l *lan) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// iptables creates the tables that iptables, or Docker with iptables, would create.
func (l *lan) iptables(policy nftables.ChainPolicy, docker bool) {
	l.t.Helper()
	l.change(func(c *nftables.Conn) {
		t := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "filter"})
		forward := c.AddChain(&nftables.Chain{
			Name: "FORWARD", Table: t, Type: nftables.ChainTypeFilter, Policy: &policy,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
		})
		if !docker {
			return
		}
		user := c.AddChain(&nftables.Chain{Name: "DOCKER-USER", Table: t})
		c.AddRule(&nftables.Rule{Table: t, Chain: user, Exprs: []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictReturn}}})
		c.AddRule(&nftables.Rule{Table: t, Chain: forward, Exprs: []expr.Any{
			&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictJump, Chain: user.Name},
		}})
	})
}

// rules counts the rules of a chain, and how many of them belong to the firewall.
func (l *lan) rules(chain string) (all, own int) {
	l.t.Helper()
	ch := foreign(nftables.TableFamilyIPv4, "filter", chain)
	rules, err := l.conn().GetRules(ch.Table, ch)
	l.must(err)
	mine, err := l.fw.ownRules(l.conn(), ch)
	l.must(err)
	return len(rules), len(mine)
}

// ownRules counts the rules of the daemon's own table.
func (l *lan) ownRules() (n int) {
	l.t.Helper()
	for _, own := range l.fw.chains() {
		rules, err := l.conn().GetRules(own.chain.Table, own.chain)
		l.must(err)
		n += len(rules)
	}
	return n
}

// hasChain reports whether the daemon's own table has a chain of this name.
func (l *lan) hasChain(name string) bool {
	l.t.Helper()
	chains, err := l.conn().ListChainsOfTableFamily(nftables.TableFamilyINet)
	l.must(err)
	return slices.ContainsFunc(chains, func(ch *nftables.Chain) bool { return ch.Table.Name == l.fw.Table && ch.Name == name })
}

// For every set of the machine's own rules, instances reach the outside, and no
// neighbour reaches them.
func TestNeighboursCannotReachInstances(t *testing.T) {
	t.Parallel() // most of the time is spent waiting for packets that do not come
	tests := []struct {
		name    string
		prepare func(l *lan)
		chain   string // chain with the firewall's accepts
	}{
		{"no rules", func(*lan) {}, ""},
		{"forward accepts", func(l *lan) { l.iptables(nftables.ChainPolicyAccept, false) }, ""},
		{"forward drops", func(l *lan) { l.iptables(nftables.ChainPolicyDrop, false) }, "FORWARD"},
		{"forward drops, Docker", func(l *lan) { l.iptables(nftables.ChainPolicyDrop, true) }, "DOCKER-USER"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t)
			tt.prepare(l)
			if tt.chain != "" {
				// The machine's rules alone would block instances.
				l.cannotReach(l.instance, lanNeighbour, lanPort)
				l.must(l.fw.restoreForward(l.conn()))
			}
			// Instances are reachable without the daemon's own table.
			l.reaches(l.neighbour, lanInstance, lanPort, lanNeighbour)
			l.must(l.fw.Apply())
			l.guarded()
			for _, chain := range []string{"FORWARD", "DOCKER-USER"} {
				want := 0
				if chain == tt.chain {
					want = 2
				}
				if _, own := l.rules(chain); own != want {
					t.Errorf("%d rules of ours in %s, want %d", own, chain, want)
				}
			}
		})
	}
}

// Other programs flush foreign rules. The firewall is restored, and is not changed
// while it is complete.
func TestFirewallComesBack(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	drops := func() { l.iptables(nftables.ChainPolicyDrop, false) }
	drops()
	l.must(l.fw.Apply())
	l.change(func(c *nftables.Conn) { c.AddChain(&nftables.Chain{Name: "mark", Table: l.fw.ownTable()}) })
	l.must(l.fw.Restore())
	if !l.hasChain("mark") {
		t.Error("a whole table was made anew")
	}
	l.change(func(c *nftables.Conn) { c.FlushRuleset() })
	l.reaches(l.neighbour, lanInstance, lanPort, lanNeighbour)
	l.reaches(l.instance, lanGateway, lanPort, lanInstance)
	drops()
	l.must(l.fw.Restore())
	l.guarded()

	whole := l.ownRules()
	damages := map[string]func(c *nftables.Conn){
		"table deleted": func(c *nftables.Conn) { c.DelTable(l.fw.ownTable()) },
		"table flushed": func(c *nftables.Conn) { c.FlushTable(l.fw.ownTable()) },
		"forward rules flushed": func(c *nftables.Conn) {
			c.FlushChain(foreign(nftables.TableFamilyIPv4, "filter", "FORWARD"))
		},
	}
	for _, own := range l.fw.chains() {
		damages["chain deleted: "+own.chain.Name] = func(c *nftables.Conn) {
			c.FlushChain(own.chain)
			c.DelChain(own.chain)
		}
	}
	for name, damage := range damages {
		l.change(damage)
		l.must(l.fw.Restore())
		if got := l.ownRules(); got != whole {
			t.Errorf("%s: %d rules in the own table, want %d", name, got, whole)
		}
		if _, own := l.rules("FORWARD"); own != 2 {
			t.Errorf("%s: %d rules in FORWARD, want 2", name, own)
		}
	}
	l.guarded()
}

// Remove deletes the rules in foreign chains, with or without the daemon's own table,
// and no rules of other programs.
func TestFirewallRemove(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.iptables(nftables.ChainPolicyDrop, true)
	other := &Firewall{Table: "dewother", Bridge: "dewother0", Subnet: l.fw.Subnet, Host: l.fw.Host}
	l.must(other.Apply())
	damages := map[string]func(c *nftables.Conn){
		"whole":         func(*nftables.Conn) {},
		"table deleted": func(c *nftables.Conn) { c.DelTable(l.fw.ownTable()) },
	}
	for name, damage := range damages {
		l.must(l.fw.Apply())
		if all, own := l.rules("DOCKER-USER"); all != 5 || own != 2 {
			t.Fatalf("%s: %d rules in DOCKER-USER, %d of them ours; want 5 and 2", name, all, own)
		}
		l.change(damage)
		for range 2 { // the second time there is nothing to remove, which is not an error
			l.must(l.fw.Remove())
			if all, own := l.rules("DOCKER-USER"); all != 3 || own != 0 {
				t.Errorf("%s: %d rules in DOCKER-USER, %d of them ours; want 3 and 0", name, all, own)
			}
			tables, err := l.conn().ListTables()
			l.must(err)
			var names []string
			for _, table := range tables {
				names = append(names, table.Name)
			}
			slices.Sort(names)
			if diff := cmp.Diff(names, []string{"dewother", "filter"}); diff != "" {
				t.Errorf("%s: tables (-got +want):\n%s", name, diff)
			}
		}
	}
}
