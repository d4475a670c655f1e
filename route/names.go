package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
)

const (
	// forwardTimeout is less than the five seconds after which programs repeat a query.
	forwardTimeout = 3 * time.Second
	// maxForwards limits the queries that wait for other servers.
	maxForwards = 256
	// ownZone is the domain of dew's own names.
	ownZone = "dew.internal."
)

// NamesConfig configures a name server for instances.
type NamesConfig struct {
	// API is the address of api.dew.internal.
	API netip.Addr
	// Router is the address at which instances reach routes by their public names. If
	// it is invalid, they cannot.
	Router netip.Addr
	// Resolv is the file that lists the servers for all other names, such as
	// /etc/resolv.conf. It is read again after a change.
	Resolv string
	Logger *slog.Logger
}

// Names is the name server of instances. It resolves internal routes and dew's own
// names, and forwards other queries to the servers of the machine.
//
//	<host>.apps.internal          the ready instances of the route's destinations
//	<index>.<host>.apps.internal  that one of them
//	api.dew.internal              the machine, where the API listens for instances
//	the host of any other route   the machine, where the router listens for instances
//	the names of the API          the same
type Names struct {
	router   *Router
	c        NamesConfig
	forwards chan struct{}

	mu      sync.Mutex // guards the fields below
	servers []string   // host:port, from the file
	read    time.Time  // modification time of the file at that time
	own     []string   // own addresses: queries to them would loop
}

// Names returns a name server that uses the router's table.
func (r *Router) Names(c NamesConfig) *Names {
	return &Names{router: r, c: c, forwards: make(chan struct{}, maxForwards)}
}

// Serve answers queries on both until ctx is cancelled.
func (n *Names) Serve(ctx context.Context, udp net.PacketConn, tcp net.Listener) error {
	n.mu.Lock()
	n.own = append(n.own, udp.LocalAddr().String())
	n.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	h := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) { n.answer(ctx, w, q) })
	for _, s := range []*dns.Server{{PacketConn: udp, Handler: h}, {Listener: tcp, Handler: h}} {
		up := make(chan struct{})
		s.NotifyStartedFunc = func() { close(up) }
		g.Go(func() error {
			if err := s.ActivateAndServe(); err != nil && ctx.Err() == nil {
				return fmt.Errorf("cannot run the DNS server: %w", err)
			}
			return nil
		})
		g.Go(func() error {
			<-ctx.Done()
			select {
			case <-up:
			case <-time.After(time.Second): // it failed to start, which is already reported
				return nil
			}
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), forwardTimeout)
			defer cancel()
			_ = s.ShutdownContext(bounded) // queries in progress get no response
			return nil
		})
	}
	return g.Wait()
}

// answer answers one query.
func (n *Names) answer(ctx context.Context, w dns.ResponseWriter, q *dns.Msg) {
	res := n.resolve(ctx, w, q)
	size := dns.MaxMsgSize
	if w.RemoteAddr().Network() == "udp" {
		size = dns.MinMsgSize
		if opt := q.IsEdns0(); opt != nil {
			size = max(size, int(opt.UDPSize()))
		}
	}
	res.Truncate(size)
	if err := w.WriteMsg(res); err != nil {
		n.c.Logger.Debug("cannot answer a DNS query", "err", err)
	}
}

func (n *Names) resolve(ctx context.Context, w dns.ResponseWriter, q *dns.Msg) *dns.Msg {
	res := new(dns.Msg)
	if q.Opcode != dns.OpcodeQuery || len(q.Question) != 1 {
		return res.SetRcode(q, dns.RcodeNotImplemented)
	}
	question := q.Question[0]
	name := strings.ToLower(question.Name)
	addrs, known, ours := n.lookup(name)
	switch {
	case !ours:
		return n.forward(ctx, w.RemoteAddr().Network(), q)
	case !known:
		res.SetRcode(q, dns.RcodeNameError)
	default:
		res.SetReply(q)
	}
	res.Authoritative, res.RecursionAvailable = true, true
	if question.Qtype != dns.TypeA || question.Qclass != dns.ClassINET {
		return res // the name exists, but has no record of that type
	}
	for _, a := range addrs {
		// TTL 0: the instances can change at any time.
		res.Answer = append(res.Answer, &dns.A{
			Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 0}, A: a.AsSlice(),
		})
	}
	return res
}

// lookup returns the addresses of a full name in lower case. known reports whether the
// name exists, ours whether dew answers the query itself instead of forwarding it.
func (n *Names) lookup(name string) (addrs []netip.Addr, known, ours bool) {
	switch {
	case name == "api."+ownZone:
		return []netip.Addr{n.c.API}, true, true
	case name == ownZone:
		return nil, true, true
	case strings.HasSuffix(name, "."+ownZone):
		return nil, false, true
	}
	t := n.router.table.Load()
	name = strings.TrimSuffix(name, ".")
	for _, zone := range t.zones {
		if name == zone {
			return nil, true, true
		}
		if strings.HasSuffix(name, "."+zone) {
			addrs, known = t.instances(name)
			return addrs, known, true
		}
	}
	if n.c.Router.IsValid() && (t.serves(name) || n.router.isAPI(name)) {
		return []netip.Addr{n.c.Router}, true, true
	}
	return nil, false, false
}

// instances returns the addresses of an internal name in random order.
func (t *table) instances(name string) ([]netip.Addr, bool) {
	ds, known := t.internal[name]
	index := -1
	if !known {
		first, rest, _ := strings.Cut(name, ".")
		n, err := strconv.Atoi(first)
		if ds, known = t.internal[rest]; !known || err != nil || n < 0 {
			return nil, false
		}
		index = n
	}
	var out []netip.Addr
	seen := map[netip.Addr]bool{}
	for _, d := range ds {
		for _, ep := range d.pool.endpoints() {
			if !seen[ep.address] && (index < 0 || ep.slot.Index == index) {
				seen[ep.address] = true
				out = append(out, ep.address)
			}
		}
	}
	if index >= 0 && len(out) == 0 {
		return nil, false
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out, true
}

// forward queries the machine's own servers, one after the other.
func (n *Names) forward(ctx context.Context, network string, q *dns.Msg) *dns.Msg {
	failed := new(dns.Msg).SetRcode(q, dns.RcodeServerFailure)
	select {
	case n.forwards <- struct{}{}:
		defer func() { <-n.forwards }()
	default:
		return failed // too many queries: the client can repeat it
	}
	servers, err := n.upstream()
	if err != nil {
		n.c.Logger.Warn("cannot read the list of DNS servers", "err", err)
		return failed
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	client := &dns.Client{Net: network, Timeout: forwardTimeout, UDPSize: dns.DefaultMsgSize}
	if len(servers) > 1 {
		client.Timeout = forwardTimeout / 2 // a dead server must leave time for the next
	}
	for _, s := range servers {
		res, _, err := client.ExchangeContext(ctx, q, s)
		if err == nil {
			return res
		}
		n.c.Logger.Debug("a DNS server did not answer", "server", s, "err", err)
	}
	return failed
}

// upstream returns the servers in the file, without dew's own.
func (n *Names) upstream() ([]string, error) {
	info, err := os.Stat(n.c.Resolv)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", n.c.Resolv, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if info.ModTime().Equal(n.read) {
		return n.servers, nil
	}
	c, err := dns.ClientConfigFromFile(n.c.Resolv)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", n.c.Resolv, err)
	}
	var found []string
	for _, s := range c.Servers {
		address := net.JoinHostPort(s, c.Port)
		if !slices.Contains(n.own, address) {
			found = append(found, address)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no DNS server found in " + n.c.Resolv)
	}
	n.servers, n.read = found, info.ModTime()
	return found, nil
}
