package network

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// Firewall is the daemon's own nftables table, and the two rules that it needs in a
// foreign chain. An accept in its own table does not override a foreign drop. A drop in
// its own table overrides every accept, so the own table also limits those two rules.
type Firewall struct {
	Table  string
	Bridge string
	Subnet netip.Prefix
	Host   netip.Addr // the bridge's own address
	Ports  []uint16   // TCP ports of the host that containers can reach
	Open   bool       // containers can reach every port of the host
	// LinkLocal has the link-local networks that containers can reach.
	LinkLocal []netip.Prefix
}

// ownChain is a chain of the daemon's own table with its expected rules.
type ownChain struct {
	chain *nftables.Chain
	rules [][]expr.Any
}

const (
	dnsPort     = 53
	ctEstabOrRe = expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
)

// Apply installs the table and replaces an earlier one in the same transaction.
func (f *Firewall) Apply() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("cannot open nftables: %w", err)
	}
	if err := f.applyTable(c); err != nil {
		return err
	}
	return f.restoreForward(c)
}

// Restore restores rules that other programs removed: a reload of the nftables service
// flushes every table, not only its own.
func (f *Firewall) Restore() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("cannot open nftables: %w", err)
	}
	whole, err := f.whole(c)
	if err != nil {
		return err
	}
	if !whole {
		if err := f.applyTable(c); err != nil {
			return err
		}
	}
	return f.restoreForward(c)
}

func (f *Firewall) applyTable(c *nftables.Conn) error {
	t := f.ownTable()
	c.AddTable(t) // so that the deletion of a missing table is not an error
	c.DelTable(t)
	c.AddTable(t)
	for _, own := range f.chains() {
		c.AddChain(own.chain)
		for _, exprs := range own.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: own.chain, Exprs: exprs})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("cannot set nftables table %s: %w (check that the kernel supports nf_tables with NAT)", f.Table, err)
	}
	return nil
}

// whole reports whether the daemon's own table has all its chains with all their rules.
// For a missing chain or table the kernel lists no rules.
func (f *Firewall) whole(c *nftables.Conn) (bool, error) {
	for _, own := range f.chains() {
		rules, err := c.GetRules(own.chain.Table, own.chain)
		if err != nil {
			return false, fmt.Errorf("cannot list rules of chain %s: %w", own.chain.Name, err)
		}
		if len(rules) != len(own.rules) {
			return false, nil
		}
	}
	return true, nil
}

func (f *Firewall) ownTable() *nftables.Table {
	return &nftables.Table{Name: f.Table, Family: nftables.TableFamilyINet}
}

// chains returns the chains of the daemon's own table. Every chain has a rule.
func (f *Firewall) chains() []ownChain {
	chains := []ownChain{f.prerouting(), f.postrouting(), f.forward()}
	if !f.Open {
		chains = append(chains, f.input())
	}
	return chains
}

// linkLocal has the addresses that are valid only within one network. Clouds provide
// the credentials of a machine at one of them.
var linkLocal = netip.MustParsePrefix("169.254.0.0/16")

// prerouting closes link-local addresses to instances. It sees packets before any rule
// changes their destination. DNS stays open: some clouds have their name server there,
// and instances use it while no daemon runs. Instances have no IPv6 outside their own
// bridge.
func (f *Firewall) prerouting() ownChain {
	pre := ownChain{chain: &nftables.Chain{
		Name: "prerouting", Table: f.ownTable(), Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
	}}
	add := func(match []expr.Any, verdict expr.VerdictKind) {
		exprs := append(matchName(expr.MetaKeyIIFNAME, expr.CmpOpEq, f.Bridge), match...)
		pre.rules = append(pre.rules, append(exprs, &expr.Verdict{Kind: verdict}))
	}
	for _, match := range f.openLinkLocal() {
		add(match, expr.VerdictAccept)
	}
	add(matchNetwork(destinationOffset, linkLocal), expr.VerdictDrop)
	return pre
}

// openLinkLocal matches the packets to link-local addresses that instances can send.
func (f *Firewall) openLinkLocal() [][]expr.Any {
	var out [][]expr.Any
	for _, p := range f.LinkLocal {
		out = append(out, matchNetwork(destinationOffset, p))
	}
	return append(out,
		append(matchNetwork(destinationOffset, linkLocal), matchPort(unix.IPPROTO_TCP, dnsPort)...),
		append(matchNetwork(destinationOffset, linkLocal), matchPort(unix.IPPROTO_UDP, dnsPort)...))
}

// postrouting lets instances connect to the outside under the host's address.
func (f *Firewall) postrouting() ownChain {
	rule := matchNetwork(sourceOffset, f.Subnet)
	rule = append(rule, matchName(expr.MetaKeyOIFNAME, expr.CmpOpNeq, f.Bridge)...)
	return ownChain{
		chain: &nftables.Chain{
			Name: "postrouting", Table: f.ownTable(), Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
		},
		rules: [][]expr.Any{append(rule, &expr.Masq{})},
	}
}

// forward closes instances to the networks around the host. Because the host forwards,
// a neighbour that routes the subnet through it could reach every port of every
// instance. Only answers to connections of instances come in.
func (f *Firewall) forward() ownChain {
	rule := func(match []expr.Any, verdict expr.VerdictKind) []expr.Any {
		exprs := matchName(expr.MetaKeyOIFNAME, expr.CmpOpEq, f.Bridge)
		exprs = append(exprs, matchName(expr.MetaKeyIIFNAME, expr.CmpOpNeq, f.Bridge)...)
		return append(append(exprs, match...), &expr.Verdict{Kind: verdict})
	}
	return ownChain{
		chain: &nftables.Chain{
			Name: "forward", Table: f.ownTable(), Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
		},
		rules: [][]expr.Any{
			rule(matchAnswers(), expr.VerdictAccept),
			rule(nil, expr.VerdictDrop),
		},
	}
}

// input closes the host to instances, except for the allowed ports.
func (f *Firewall) input() ownChain {
	in := ownChain{chain: &nftables.Chain{
		Name: "input", Table: f.ownTable(), Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter,
	}}
	add := func(match []expr.Any, verdict expr.VerdictKind) {
		exprs := append(matchName(expr.MetaKeyIIFNAME, expr.CmpOpEq, f.Bridge), match...)
		in.rules = append(in.rules, append(exprs, &expr.Verdict{Kind: verdict}))
	}
	for _, match := range f.openOnHost() {
		add(match, expr.VerdictAccept)
	}
	add(nil, expr.VerdictDrop)
	return in
}

// openOnHost matches the packets to the host that instances can send.
func (f *Firewall) openOnHost() [][]expr.Any {
	out := [][]expr.Any{matchAnswers()}
	for _, p := range append([]uint16{dnsPort}, f.Ports...) {
		out = append(out, append(matchDestination(f.Host), matchPort(unix.IPPROTO_TCP, p)...))
	}
	return append(out, append(matchDestination(f.Host), matchPort(unix.IPPROTO_UDP, dnsPort)...))
}

// restoreForward adds the firewall's accepts to a FORWARD chain that drops by default, or
// to the chain that Docker reserves for its users. Other tools flush these chains, so
// it is called regularly.
func (f *Firewall) restoreForward(c *nftables.Conn) error {
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return fmt.Errorf("cannot list nftables chains: %w", err)
	}
	chain := foreignChain(chains)
	if chain == nil {
		return nil
	}
	mine, err := f.ownRules(c, chain)
	if err != nil || len(mine) == 2 {
		return err
	}
	for _, r := range mine {
		if err := c.DelRule(r); err != nil {
			return fmt.Errorf("cannot renew forward rules: %w", err)
		}
	}
	for _, key := range []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME} {
		// Use only expressions that iptables can print: with any other it refuses the
		// chain.
		exprs := append(matchName(key, expr.CmpOpEq, f.Bridge), &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept})
		c.InsertRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: exprs, UserData: f.comment()})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("cannot add forward rules to chain %s: %w", chain.Name, err)
	}
	return nil
}

// foreignChain returns the chain that would drop forwarded packets of instances, if
// there is one. If Docker's FORWARD chain drops, it is the chain that Docker never
// changes itself.
func foreignChain(chains []*nftables.Chain) *nftables.Chain {
	var forward, user *nftables.Chain
	for _, ch := range chains {
		switch {
		case ch.Table.Family != nftables.TableFamilyIPv4 || ch.Table.Name != "filter":
		case ch.Name == "DOCKER-USER":
			user = ch
		case ch.Name == "FORWARD" && ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop:
			forward = ch
		}
	}
	if forward != nil && user != nil {
		return user
	}
	return forward
}

func (f *Firewall) comment() []byte {
	return userdata.AppendString(nil, userdata.TypeComment, "dew "+f.Bridge)
}

func (f *Firewall) ownRules(c *nftables.Conn, chain *nftables.Chain) ([]*nftables.Rule, error) {
	rules, err := c.GetRules(chain.Table, chain)
	if err != nil {
		return nil, fmt.Errorf("cannot list rules of chain %s: %w", chain.Name, err)
	}
	var mine []*nftables.Rule
	for _, r := range rules {
		if bytes.Equal(r.UserData, f.comment()) {
			mine = append(mine, r)
		}
	}
	return mine, nil
}

// Remove removes the table and the rules in foreign chains.
func (f *Firewall) Remove() error {
	const tries = 3
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("cannot open nftables: %w", err)
	}
	for try := 1; ; try++ {
		err := f.removeOnce(c)
		// Another program removed one of the rules at the same time, and the kernel
		// rolled back the whole transaction.
		if !errors.Is(err, unix.ENOENT) || try == tries {
			return err
		}
	}
}

func (f *Firewall) removeOnce(c *nftables.Conn) error {
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return fmt.Errorf("cannot list nftables chains: %w", err)
	}
	var mine []*nftables.Rule
	for _, ch := range chains {
		if ch.Table.Name != "filter" || (ch.Name != "DOCKER-USER" && ch.Name != "FORWARD") {
			continue
		}
		rules, err := f.ownRules(c, ch)
		if err != nil {
			return err
		}
		mine = append(mine, rules...)
	}
	for _, r := range mine {
		if err := c.DelRule(r); err != nil {
			return fmt.Errorf("cannot remove forward rule: %w", err)
		}
	}
	c.AddTable(f.ownTable()) // so that the deletion of a missing table is not an error
	c.DelTable(f.ownTable())
	if err := c.Flush(); err != nil {
		return fmt.Errorf("cannot remove nftables table %s: %w", f.Table, err)
	}
	return nil
}

func matchName(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: padded},
	}
}

func matchV4() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
	}
}

// Offsets of the addresses in the header of a packet.
const (
	sourceOffset      = 12
	destinationOffset = 16
)

func matchNetwork(offset uint32, p netip.Prefix) []expr.Any {
	mask := ipNet(p).Mask
	return append(matchV4(),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()},
	)
}

func matchDestination(a netip.Addr) []expr.Any {
	return append(matchV4(),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destinationOffset, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: a.AsSlice()},
	)
}

func matchPort(proto byte, port uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
	}
}

// matchAnswers matches packets of a connection that was accepted before.
func matchAnswers() []expr.Any { return matchState(ctEstabOrRe) }

func matchState(bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}
