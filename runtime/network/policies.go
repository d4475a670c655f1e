package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/netpolicy"
)

// Policies is a second nftables table of the daemon. It refuses the connections of
// instances that no network policy, security group or service binding allows. It is
// separate from Firewall, because it changes with every instance.
type Policies struct {
	fw    *Firewall
	group uint16 // of the log messages about refused connections; 0: none

	mu      sync.Mutex // guards the fields below, and orders the changes
	last    *netpolicy.Ruleset
	chains  int // number of chains of the table
	forward int // number of rules of the forward chain
}

// NewPolicies returns the table that belongs to a firewall. Refused connections are
// reported to the log group.
func NewPolicies(fw *Firewall, group uint16) *Policies { return &Policies{fw: fw, group: group} }

// Chains and sets of the table. Chains for apps and security groups have a number.
const (
	chainToPeers   = "peers"
	chainToOutside = "outside"
	mapPeers       = "peers_by_source"
	mapOutside     = "outside_by_source"
	setRefused     = "refused"

	// elementsAtOnce is the number of elements in one message: its length has 16 bits.
	elementsAtOnce = 200
)

func (p *Policies) table() *nftables.Table {
	return &nftables.Table{Name: p.fw.Table + "-policies", Family: nftables.TableFamilyINet}
}

// Apply replaces all rules in one transaction.
func (p *Policies) Apply(rules netpolicy.Ruleset) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.apply(rules)
}

// Restore applies the last rules again if another program removed them.
func (p *Policies) Restore() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		return nil
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("cannot open nftables: %w", err)
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return fmt.Errorf("cannot list nftables chains: %w", err)
	}
	chains = slices.DeleteFunc(chains, func(ch *nftables.Chain) bool { return ch.Table.Name != p.table().Name })
	forward, err := c.GetRules(p.table(), &nftables.Chain{Name: "forward", Table: p.table()})
	if err != nil {
		return fmt.Errorf("cannot list the rules of network policies: %w", err)
	}
	if len(chains) == p.chains && len(forward) == p.forward {
		return nil
	}
	return p.apply(*p.last)
}

// Remove removes the table.
func (p *Policies) Remove() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = nil
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("cannot open nftables: %w", err)
	}
	c.AddTable(p.table()) // so that the deletion of a missing table is not an error
	c.DelTable(p.table())
	if err := c.Flush(); err != nil {
		return fmt.Errorf("cannot remove nftables table %s: %w", p.table().Name, err)
	}
	return nil
}

func (p *Policies) apply(rules netpolicy.Ruleset) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("cannot open nftables: %w", err)
	}
	t := p.table()
	c.AddTable(t)
	c.DelTable(t)
	c.AddTable(t)
	b := &tableBuilder{conn: c, policies: p, table: t}
	b.build(rules)
	if b.err != nil {
		return b.err
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("cannot set nftables table %s: %w (check that the kernel supports nf_tables with reject, log and sets)", t.Name, err)
	}
	p.last, p.chains, p.forward = &rules, b.chains, b.forward
	return nil
}

// tableBuilder collects the messages of one transaction.
type tableBuilder struct {
	conn     *nftables.Conn
	policies *Policies
	table    *nftables.Table
	sets     uint32
	chains   int
	forward  int
	err      error
}

func (b *tableBuilder) build(rules netpolicy.Ruleset) {
	if b.policies.group != 0 {
		b.set(&nftables.Set{Name: setRefused, KeyType: nftables.TypeIPAddr, Dynamic: true, HasTimeout: true, Timeout: time.Minute, Size: 65536}, nil)
	}
	var peers, outside []nftables.SetElement
	for i, one := range rules.Peers {
		chain := b.peerChain("peer_"+strconv.Itoa(i), one)
		peers = append(peers, jumps(one.From, chain)...)
	}
	for i, one := range rules.Outside {
		chain := b.outsideChain("outside_"+strconv.Itoa(i), one)
		outside = append(outside, jumps(one.From, chain)...)
	}
	b.set(&nftables.Set{Name: mapPeers, IsMap: true, KeyType: nftables.TypeIPAddr, DataType: nftables.TypeVerdict}, peers)
	b.set(&nftables.Set{Name: mapOutside, IsMap: true, KeyType: nftables.TypeIPAddr, DataType: nftables.TypeVerdict}, outside)
	b.decide(chainToPeers, mapPeers, netpolicy.NoPolicy)
	b.decide(chainToOutside, mapOutside, netpolicy.NoGroup)
	b.forwardChain()
	b.inputChain()
	b.preroutingChain()
	b.outputChain()
}

// jumps returns the elements of a map that lead from addresses to a chain.
func jumps(from []netip.Addr, chain string) []nftables.SetElement {
	var out []nftables.SetElement
	for _, a := range from {
		out = append(out, nftables.SetElement{Key: a.AsSlice(), VerdictData: &expr.Verdict{Kind: expr.VerdictJump, Chain: chain}})
	}
	return out
}

// set adds a set with its elements. It numbers the sets itself: the library counts them
// in a variable of the whole program, without a lock.
func (b *tableBuilder) set(s *nftables.Set, elements []nftables.SetElement) {
	b.sets++
	s.Table, s.ID = b.table, b.sets
	if err := b.conn.AddSet(s, nil); err != nil && b.err == nil {
		b.err = fmt.Errorf("cannot create nftables set %s: %w", s.Name, err)
	}
	for some := range slices.Chunk(elements, elementsAtOnce) {
		if err := b.conn.SetAddElements(s, some); err != nil && b.err == nil {
			b.err = fmt.Errorf("cannot fill nftables set %s: %w", s.Name, err)
		}
	}
}

func (b *tableBuilder) chain(ch *nftables.Chain) *nftables.Chain {
	b.chains++
	ch.Table = b.table
	return b.conn.AddChain(ch)
}

func (b *tableBuilder) rule(ch *nftables.Chain, exprs ...[]expr.Any) {
	if ch.Name == "forward" {
		b.forward++
	}
	b.conn.AddRule(&nftables.Rule{Table: b.table, Chain: ch, Exprs: slices.Concat(exprs...)})
}

// peerChain accepts the connections of one app to other containers.
func (b *tableBuilder) peerChain(name string, peers netpolicy.Peers) string {
	ch := b.chain(&nftables.Chain{Name: name})
	for i, a := range peers.Allow {
		set := &nftables.Set{Name: fmt.Sprintf("%s_%d", name, i), KeyType: nftables.TypeIPAddr}
		var to []nftables.SetElement
		for _, addr := range a.To {
			to = append(to, nftables.SetElement{Key: addr.AsSlice()})
		}
		b.set(set, to)
		destination := []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destinationOffset, Len: 4},
			&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID},
		}
		b.rule(ch, destination, matchProtocol(a.Protocol), matchPorts(a.Ports), verdict(expr.VerdictAccept))
	}
	return name
}

// outsideChain accepts the connections to other machines that some containers share.
func (b *tableBuilder) outsideChain(name string, outside netpolicy.Outside) string {
	ch := b.chain(&nftables.Chain{Name: name})
	for _, a := range outside.Allow {
		match := matchAddresses(a.First, a.Last)
		if a.Protocol != 0 {
			match = append(match, matchProtocol(a.Protocol)...)
		}
		switch a.Protocol {
		case netpolicy.TCP, netpolicy.UDP:
			match = append(match, matchPorts(a.Ports)...)
		case netpolicy.ICMP:
			match = append(match, matchICMP(0, a.Type)...)
			match = append(match, matchICMP(1, a.Code)...)
		}
		b.rule(ch, match, verdict(expr.VerdictAccept))
	}
	return name
}

// decide creates the chain that looks up the source in a map, and refuses the rest.
func (b *tableBuilder) decide(name, byName string, reason netpolicy.Reason) {
	ch := b.chain(&nftables.Chain{Name: name})
	b.rule(ch, []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: sourceOffset, Len: 4},
		&expr.Lookup{SourceRegister: 1, DestRegister: 0, IsDestRegSet: true, SetName: byName},
	})
	b.refuse(ch, nil, reason)
}

// refuse adds the rules that report and reject the connections that match. TCP gets a
// reset, because the kernel limits the rate of ICMP errors.
func (b *tableBuilder) refuse(ch *nftables.Chain, match []expr.Any, reason netpolicy.Reason) {
	b.report(ch, match, reason)
	b.rule(ch, match, matchProtocol(netpolicy.TCP), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})
	b.rule(ch, match, []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}})
}

// report adds the rule that reports refused connections. Each source has its own limit,
// so that one instance cannot hide the refusals of others.
func (b *tableBuilder) report(ch *nftables.Chain, match []expr.Any, reason netpolicy.Reason) {
	if b.policies.group == 0 {
		return
	}
	b.rule(ch, match, matchV4(), []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: sourceOffset, Len: 4},
		&expr.Dynset{
			SrcRegKey: 1, SetName: setRefused, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE),
			Exprs: []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: 10, Unit: expr.LimitTimeSecond, Burst: 20}},
		},
		&expr.Log{
			Key:     1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_PREFIX | 1<<unix.NFTA_LOG_SNAPLEN,
			Group:   b.policies.group,
			Data:    []byte(reason),
			Snaplen: reportedBytes,
		},
	})
}

// forwardChain decides about packets from instances to other containers and machines.
// Instances have no IPv6 addresses of their own.
func (b *tableBuilder) forwardChain() {
	ch := b.chain(&nftables.Chain{
		Name: "forward", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: beforeFilter,
	})
	from := matchName(expr.MetaKeyIIFNAME, expr.CmpOpEq, b.policies.fw.Bridge)
	b.rule(ch, from, matchAnswers(), verdict(expr.VerdictAccept))
	b.rule(ch, from, []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
	}, verdict(expr.VerdictDrop))
	b.rule(ch, from, matchNetwork(destinationOffset, b.policies.fw.Subnet), []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chainToPeers}})
	b.rule(ch, from, []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chainToOutside}})
}

// inputChain refuses what the input chain of the Firewall would drop, so that the
// connection fails at once.
func (b *tableBuilder) inputChain() {
	fw := b.policies.fw
	if fw.Open {
		return
	}
	ch := b.chain(&nftables.Chain{
		Name: "input", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: beforeFilter,
	})
	for _, match := range fw.openOnHost() {
		b.rule(ch, matchName(expr.MetaKeyIIFNAME, expr.CmpOpEq, fw.Bridge), match, verdict(expr.VerdictAccept))
	}
	b.refuse(ch, slices.Concat(matchName(expr.MetaKeyIIFNAME, expr.CmpOpEq, fw.Bridge), matchV4()), netpolicy.HostPort)
}

// preroutingChain reports packets to link-local addresses, which the Firewall drops.
func (b *tableBuilder) preroutingChain() {
	fw := b.policies.fw
	ch := b.chain(&nftables.Chain{
		Name: "prerouting", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: beforeRaw,
	})
	from := matchName(expr.MetaKeyIIFNAME, expr.CmpOpEq, fw.Bridge)
	for _, match := range fw.openLinkLocal() {
		b.rule(ch, from, match, verdict(expr.VerdictAccept))
	}
	b.report(ch, slices.Concat(from, matchNetwork(destinationOffset, linkLocal)), netpolicy.LinkLocal)
}

// outputChain drops the host's advice to send packets to other instances directly: the
// bridge does not forward them.
func (b *tableBuilder) outputChain() {
	ch := b.chain(&nftables.Chain{
		Name: "output", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: beforeFilter,
	})
	const redirect = 5
	b.rule(ch, matchName(expr.MetaKeyOIFNAME, expr.CmpOpEq, b.policies.fw.Bridge), matchV4(), matchProtocol(netpolicy.ICMP), matchICMP(0, redirect), verdict(expr.VerdictDrop))
}

var (
	beforeFilter = nftables.ChainPriorityRef(*nftables.ChainPriorityFilter - 1)
	beforeRaw    = nftables.ChainPriorityRef(*nftables.ChainPriorityRaw - 1)
)

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

func matchProtocol(protocol byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
	}
}

func matchPorts(ports netpolicy.Ports) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(ports.First))},
		&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(ports.Last))},
	}
}

// matchICMP matches the type (offset 0) or the code (offset 1). A negative value
// matches all.
func matchICMP(offset uint32, value int) []expr.Any {
	if value < 0 {
		return nil
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(value)}},
	}
}

// matchAddresses matches destinations in a range.
func matchAddresses(first, last netip.Addr) []expr.Any {
	return append(matchV4(),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destinationOffset, Len: 4},
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: first.AsSlice()},
		&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: last.AsSlice()},
	)
}
