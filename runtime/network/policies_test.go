//go:build integration

package network

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/netpolicy"
	"github.com/dewrun/dew/runtime"
)

const (
	lanSecond = "10.201.16.3" // address of a second instance
	otherPort = 8090          // a second port of the second instance
)

// policyLAN is a lan with a second instance and the table of network policies.
type policyLAN struct {
	*lan
	second   string // path of its namespace
	policies *Policies
	refused  chan netpolicy.Refusal
}

func newPolicyLAN(t *testing.T) *policyLAN {
	t.Helper()
	l := &policyLAN{lan: newLAN(t), refused: make(chan netpolicy.Refusal, 1000)}
	id := runtime.NewInstanceID()
	t.Cleanup(func() {
		if err := l.net.Remove(id); err != nil {
			t.Error(err)
		}
	})
	l.connect(id, lanSecond)
	l.second = l.net.Path(id)
	l.serve(l.second, lanPort)
	l.serve(l.second, otherPort)
	l.must(l.fw.Apply())
	refusals, err := ListenRefusals(l.fw.Table)
	l.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- refusals.Run(ctx, func(r netpolicy.Refusal) { l.refused <- r }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	l.policies = NewPolicies(l.fw, refusals.Group())
	return l
}

// refuses expects that a connection fails at once, and that the kernel reports it.
func (l *policyLAN) refuses(from, to string, port int, reason netpolicy.Reason) {
	l.t.Helper()
	if got, err := l.dialFrom(from, to, port, arrives); !errors.Is(err, unix.ECONNREFUSED) {
		l.t.Errorf("%s to %s:%d: seen as %q, %v; want connection refused", l.whose(from), to, port, got, err)
		return
	}
	l.reported(to, port, reason)
}

func (l *policyLAN) reported(to string, port int, reason netpolicy.Reason) {
	l.t.Helper()
	want := netpolicy.Refusal{Reason: reason, From: netip.MustParseAddr(lanInstance), To: netip.MustParseAddr(to), Protocol: netpolicy.TCP, Port: uint16(port)}
	deadline := time.After(arrives)
	for {
		select {
		case got := <-l.refused:
			if got == want {
				return
			}
			l.t.Logf("another report: %+v", got)
		case <-deadline:
			l.t.Errorf("no report of %+v", want)
			return
		}
	}
}

// allowed is a ruleset in which the first instance reaches one port of the second.
func allowed(port int) netpolicy.Ruleset {
	first, second := netip.MustParseAddr(lanInstance), netip.MustParseAddr(lanSecond)
	return netpolicy.Ruleset{Peers: []netpolicy.Peers{{From: []netip.Addr{first}, Allow: []netpolicy.PeerAllow{
		{To: []netip.Addr{second}, Protocol: netpolicy.TCP, Ports: netpolicy.Ports{First: port, Last: port}},
	}}}}
}

// Instances reach each other only on the ports of a policy, in its direction. It takes
// effect without a new start of the instances.
func TestPoliciesBetweenInstances(t *testing.T) {
	t.Parallel()
	l := newPolicyLAN(t)
	// Without isolation, packets between instances do not reach the firewall. The
	// first instance now knows the hardware address of the second.
	l.reaches(l.instance, lanSecond, lanPort, lanInstance)
	l.must(l.net.Isolate(true))
	l.reaches(l.instance, lanSecond, lanPort, lanInstance) // routed by the host
	l.must(l.policies.Apply(netpolicy.Ruleset{}))
	l.refuses(l.instance, lanSecond, lanPort, netpolicy.NoPolicy)

	l.must(l.policies.Apply(allowed(lanPort)))
	l.reaches(l.instance, lanSecond, lanPort, lanInstance)
	l.refuses(l.instance, lanSecond, otherPort, netpolicy.NoPolicy)
	if _, err := l.dialFrom(l.second, lanInstance, lanPort, arrives); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("against the direction of the policy: %v, want connection refused", err)
	}
	l.reaches("", lanSecond, lanPort, lanGateway) // the machine itself reaches all
	l.must(l.policies.Apply(netpolicy.Ruleset{}))
	l.refuses(l.instance, lanSecond, lanPort, netpolicy.NoPolicy)

	// An instance that is created later is isolated as well.
	id := runtime.NewInstanceID()
	t.Cleanup(func() { _ = l.net.Remove(id) })
	l.connect(id, "10.201.16.4")
	l.serve(l.net.Path(id), lanPort)
	l.refuses(l.instance, "10.201.16.4", lanPort, netpolicy.NoPolicy)

	l.must(l.policies.Remove())
	l.must(l.net.Isolate(false))
	l.reaches(l.instance, lanSecond, otherPort, lanInstance)
	l.reaches(l.second, lanInstance, lanPort, lanSecond)
}

// A daemon that was killed while it created an instance's network can leave a veth that
// is not connected to the bridge. The next one starts all the same.
func TestIsolateUnconnectedVeth(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	id := runtime.NewInstanceID()
	t.Cleanup(func() { _ = l.net.Remove(id) })
	l.connect(id, "10.201.16.4")
	veth, err := netlink.LinkByName(VethName(id))
	l.must(err)
	l.must(netlink.LinkSetNoMaster(veth))
	l.must(l.net.Isolate(true))
}

// A policy takes effect within a second, also with many instances.
func TestPoliciesOfManyInstances(t *testing.T) {
	t.Parallel()
	l := newPolicyLAN(t)
	l.must(l.net.Isolate(true))
	many := allowed(lanPort)
	var others []netip.Addr
	for a := netip.MustParseAddr("10.201.17.0"); len(others) < 2000; a = a.Next() {
		others = append(others, a)
	}
	many.Peers = append(many.Peers, netpolicy.Peers{From: others, Allow: many.Peers[0].Allow})
	many.Outside = []netpolicy.Outside{{From: others, Allow: []netpolicy.Allow{{First: netip.MustParseAddr("0.0.0.0"), Last: netip.MustParseAddr("255.255.255.255"), Type: -1, Code: -1}}}}
	began := time.Now()
	l.must(l.policies.Apply(many))
	t.Logf("2001 instances: %v", time.Since(began))
	l.reaches(l.instance, lanSecond, lanPort, lanInstance)
	l.refuses(l.instance, lanNeighbour, lanPort, netpolicy.NoGroup)
}

// Security groups decide about other machines. The machine itself and link-local
// addresses stay closed, whatever they allow.
func TestPoliciesOutside(t *testing.T) {
	t.Parallel()
	l := newPolicyLAN(t)
	l.linkLocals()
	l.must(l.net.Isolate(true))
	to := func(rules ...netpolicy.Allow) netpolicy.Ruleset {
		return netpolicy.Ruleset{Outside: []netpolicy.Outside{{From: []netip.Addr{netip.MustParseAddr(lanInstance)}, Allow: rules}}}
	}
	neighbour := netip.MustParseAddr(lanNeighbour)
	port := func(first, last int) netpolicy.Allow {
		return netpolicy.Allow{First: neighbour, Last: neighbour, Protocol: netpolicy.TCP, Ports: netpolicy.Ports{First: first, Last: last}}
	}
	l.must(l.policies.Apply(netpolicy.Ruleset{}))
	l.refuses(l.instance, lanNeighbour, lanPort, netpolicy.NoGroup)
	l.must(l.policies.Apply(to(port(lanPort+1, lanPort+9))))
	l.refuses(l.instance, lanNeighbour, lanPort, netpolicy.NoGroup)
	l.must(l.policies.Apply(to(port(1, 2), port(lanPort-9, lanPort))))
	l.reaches(l.instance, lanNeighbour, lanPort, lanHost)

	l.must(l.policies.Apply(to(netpolicy.Allow{First: netip.MustParseAddr("0.0.0.0"), Last: netip.MustParseAddr("255.255.255.255")})))
	l.reaches(l.instance, lanNeighbour, lanPort, lanHost)
	l.refuses(l.instance, lanSecond, lanPort, netpolicy.NoPolicy)
	l.refuses(l.instance, lanGateway, lanPort, netpolicy.HostPort)
	l.refuses(l.instance, lanHost, lanPort, netpolicy.HostPort)
	l.reaches(l.instance, lanGateway, lanDoor, lanInstance)
	l.cannotReach(l.instance, lanMetadata, metadataPort)
	l.reported(lanMetadata, metadataPort, netpolicy.LinkLocal)
	l.reaches(l.instance, lanMetadata, dnsPort, lanHostLocal)
	l.cannotReach(l.neighbour, lanInstance, lanPort)

	l.fw.Open = true // --allow-host
	l.must(l.fw.Apply())
	l.must(l.policies.Apply(netpolicy.Ruleset{}))
	l.reaches(l.instance, lanGateway, lanPort, lanInstance)
}

// Other programs flush the rules. They are restored, and are not changed while they are
// complete.
func TestPoliciesComeBack(t *testing.T) {
	t.Parallel()
	l := newPolicyLAN(t)
	l.must(l.net.Isolate(true))
	l.must(l.policies.Restore()) // before the first rules there is nothing to restore
	l.must(l.policies.Apply(allowed(lanPort)))
	for name, damage := range map[string]func(c *nftables.Conn){
		"table deleted": func(c *nftables.Conn) { c.DelTable(l.policies.table()) },
		"table flushed": func(c *nftables.Conn) { c.FlushTable(l.policies.table()) },
		"all flushed":   func(c *nftables.Conn) { c.FlushRuleset() },
	} {
		l.change(damage)
		l.must(l.fw.Restore())
		l.must(l.policies.Restore())
		t.Log(name)
		l.reaches(l.instance, lanSecond, lanPort, lanInstance)
		l.refuses(l.instance, lanSecond, otherPort, netpolicy.NoPolicy)
	}
	l.must(l.policies.Remove())
	l.must(l.policies.Remove()) // there is nothing to remove, which is not an error
}

// Two daemons on one machine have different log groups, and a restarted one gets its
// group again.
func TestRefusalGroups(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	first, err := ListenRefusals("dew")
	l.must(err)
	second, err := ListenRefusals("dew")
	l.must(err)
	if first.Group() == second.Group() {
		t.Errorf("two daemons have the group %d", first.Group())
	}
	l.must(first.Close())
	again, err := ListenRefusals("dew")
	l.must(err)
	if again.Group() != first.Group() {
		t.Errorf("group %d after a restart, want %d", again.Group(), first.Group())
	}
	l.must(errors.Join(second.Close(), again.Close()))
}
