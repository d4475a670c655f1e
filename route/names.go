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
	// forwardTimeout is below the five seconds after which programs ask again.
	forwardTimeout = 3 * time.Second
	// maxForwards bounds the questions that wait for other servers.
	maxForwards = 256
	// The platform's own names are below this one.
	ownZone = "dew.internal."
)

// NamesConfig is what a name server for instances needs.
type NamesConfig struct {
	// API is the address of api.dew.internal.
	API netip.Addr
	// Router is the address at which instances reach routes by their public names;
	// none: they do not.
	Router netip.Addr
	// Resolv is the file that names the servers for everything else, such as
	// /etc/resolv.conf; it is read again when it has changed.
	Resolv string
	Logger *slog.Logger
}

// Names is the name server that instances ask: it knows the internal routes and the
// platform itself, and passes other questions on to the servers of the machine.
//
//	<host>.apps.internal          the ready instances of the route's destinations
//	<index>.<host>.apps.internal  that one of them
//	api.dew.internal              the machine, where the API listens for instances
//	the host of any other route   the machine, where the router listens for instances
type Names struct {
	router   *Router
	c        NamesConfig
	forwards chan struct{}

	mu      sync.Mutex // guards the fields below
	servers []string   // host:port, from the file
	read    time.Time  // the file's time of change then
	own     []string   // where we listen ourselves: asking there would never end
}

// Names makes the name server over the router's table.
func (r *Router) Names(c NamesConfig) *Names {
	return &Names{router: r, c: c, forwards: make(chan struct{}, maxForwards)}
}

// Serve answers on both until ctx ends.
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
				return fmt.Errorf("cannot serve names: %w", err)
			}
			return nil
		})
		g.Go(func() error {
			<-ctx.Done()
			select {
			case <-up:
			case <-time.After(time.Second): // it failed to start, and has said so
				return nil
			}
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), forwardTimeout)
			defer cancel()
			_ = s.ShutdownContext(bounded) // what is still asked then gets no answer
			return nil
		})
	}
	return g.Wait()
}

// answer answers one question.
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
		n.c.Logger.Debug("cannot answer a question for a name", "err", err)
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
		return res // the name is there, and has nothing of that kind
	}
	for _, a := range addrs {
		// Nobody may keep it: the next moment the instances are others.
		res.Answer = append(res.Answer, &dns.A{
			Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 0}, A: a.AsSlice(),
		})
	}
	return res
}

// lookup finds the addresses of a full name in lower case. known tells whether there
// is such a name, ours whether nobody else has it.
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
	if n.c.Router.IsValid() && t.serves(name) {
		return []netip.Addr{n.c.Router}, true, true
	}
	return nil, false, false
}

// instances are the addresses that an internal name leads to, in any order.
func (t *table) instances(name string) ([]netip.Addr, bool) {
	ds, known := t.inside[name]
	index := -1
	if !known {
		first, rest, _ := strings.Cut(name, ".")
		n, err := strconv.Atoi(first)
		if ds, known = t.inside[rest]; !known || err != nil || n < 0 {
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

// forward asks the machine's own servers, one after the other.
func (n *Names) forward(ctx context.Context, network string, q *dns.Msg) *dns.Msg {
	failed := new(dns.Msg).SetRcode(q, dns.RcodeServerFailure)
	select {
	case n.forwards <- struct{}{}:
		defer func() { <-n.forwards }()
	default:
		return failed // who asks that much can ask again
	}
	servers, err := n.upstream()
	if err != nil {
		n.c.Logger.Warn("cannot read which servers know names", "err", err)
		return failed
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	client := &dns.Client{Net: network, Timeout: forwardTimeout, UDPSize: dns.DefaultMsgSize}
	if len(servers) > 1 {
		client.Timeout = forwardTimeout / 2 // a dead server shall leave time for the next
	}
	for _, s := range servers {
		res, _, err := client.ExchangeContext(ctx, q, s)
		if err == nil {
			return res
		}
		n.c.Logger.Debug("a name server did not answer", "server", s, "err", err)
	}
	return failed
}

// upstream are the servers that the file names, without ourselves.
func (n *Names) upstream() ([]string, error) {
	info, err := os.Stat(n.c.Resolv)
	if err != nil {
		return nil, fmt.Errorf("cannot look at %s: %w", n.c.Resolv, err)
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
		return nil, errors.New("no server is named in " + n.c.Resolv)
	}
	n.servers, n.read = found, info.ModTime()
	return found, nil
}
