package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// refused returns the rule that an error names. It is empty for another error, or none.
func refused(err error) string {
	if r, ok := errors.AsType[*Refused](err); ok {
		return r.What
	}
	return ""
}

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	const loopback, unspecified, linkLocal, cloud = "a loopback address", "an unspecified address", "a link-local address", "a cloud metadata address"
	for address, want := range map[string]string{
		"127.0.0.1": loopback, "127.255.255.254": loopback, "::1": loopback,
		"0.0.0.0": unspecified, "0.1.2.3": unspecified, "::": unspecified,
		"169.254.169.254": linkLocal, "169.254.0.1": linkLocal, "fe80::1": linkLocal, "fe80::1%eth0": linkLocal, "febf::1": linkLocal,
		"fd00:ec2::254": cloud, "fd20:ce::254": cloud,
		// The same addresses, embedded in IPv6 addresses.
		"::ffff:127.0.0.1": loopback, "::ffff:169.254.169.254": linkLocal, "::ffff:0.0.0.0": unspecified,
		"::127.0.0.1": loopback, "::ffff:0:127.0.0.1": loopback,
		"64:ff9b::127.0.0.1": loopback, "64:ff9b::a9fe:a9fe": linkLocal,
		"64:ff9b:1::127.0.0.1": loopback, "64:ff9b:1:7f00:0:100::": loopback, "64:ff9b:1:7f:0:1::": loopback, "64:ff9b:1:0:7f:0:100:0": loopback,
		"2002:7f00:1::1": loopback, "2002:a9fe:a9fe::1": linkLocal,
		"2001:0:c000:201::80ff:fffe": loopback, // Teredo inverts the client's address
		// Ordinary addresses.
		"192.0.2.1": "", "10.9.8.7": "", "2001:db8::1": "", "fd00::1": "", "64:ff9b::192.0.2.1": "", "2002:c000:201::1": "", "64:ff9b:1::192.0.2.1": "", "::ffff:192.0.2.1": "",
	} {
		if got := refused((&Policy{}).checkAddress(netip.MustParseAddr(address))); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

// A program that listens on all addresses is protected on all addresses of the machine,
// not only on the loopback address.
func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	own, err := ownAddresses()
	if err != nil || !own[netip.MustParseAddr("127.0.0.1")] {
		t.Fatalf("own addresses %v, %v; want the loopback address among them", own, err)
	}
	for a := range own {
		if special(a) != "" {
			continue
		}
		if got := refused((&Policy{}).checkAddress(a)); got != "an address of this machine" {
			t.Errorf("%s: %q", a, got)
		}
		var p Policy
		if err := p.Allow.UnmarshalText([]byte(a.String())); err != nil {
			t.Fatal(err)
		}
		if err := p.checkAddress(a); err != nil {
			t.Errorf("%s, which is allowed: %v", a, err)
		}
	}
}

// server starts a server that counts the connections.
func server(t *testing.T) (address string, met *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	met = new(atomic.Int32)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			met.Add(1)
			c.Close()
		}
	}()
	return l.Addr().String(), met
}

// names returns a resolver with these answers. Each query gets the next one, and the
// last one is repeated.
func names(t *testing.T, answers map[string][]string) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]int{} // the server has one goroutine for each query; see below
	turn := make(chan struct{}, 1)
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		res := new(dns.Msg).SetReply(q)
		name := strings.ToLower(strings.TrimSuffix(q.Question[0].Name, "."))
		all, known := answers[name]
		if !known {
			res.SetRcode(q, dns.RcodeNameError)
		}
		if known && q.Question[0].Qtype == dns.TypeA {
			turn <- struct{}{}
			n := min(asked[name], len(all)-1)
			asked[name]++
			<-turn
			res.Answer = append(res.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.ParseIP(all[n]),
			})
		}
		_ = w.WriteMsg(res) // the resolver repeats its query
	})}
	go func() { _ = s.ActivateAndServe() }() // returns when the connection is closed
	t.Cleanup(func() { pc.Close() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

func TestDial(t *testing.T) {
	t.Parallel()
	at, met := server(t)
	_, port, _ := net.SplitHostPort(at)
	resolver := names(t, map[string][]string{"near.example": {"127.0.0.1"}})
	for _, tt := range []struct {
		host, allow string
		want        string
	}{
		{"127.0.0.1", "", "a loopback address"},
		{"localhost", "", "a loopback address"},
		{"0.0.0.0", "", "an unspecified address"},
		{"::ffff:127.0.0.1", "", "a loopback address"},
		{"near.example", "", "a loopback address"},
		{"", "", "an address that is not valid"},
		{"127.0.0.1", "127.0.0.2,near.example", "a loopback address"},
		{"near.example", "near.example", ""},
		{"NEAR.example.", "Near.Example", ""},
		{"near.example", "127.0.0.0/8", ""},
		{"127.0.0.1", "127.0.0.1", ""},
		{"localhost", "localhost", ""},
	} {
		before := met.Load()
		p := Policy{Resolver: resolver}
		if err := p.Allow.UnmarshalText([]byte(tt.allow)); err != nil {
			t.Fatal(err)
		}
		conn, err := p.DialContext(t.Context(), "tcp", net.JoinHostPort(tt.host, port))
		if err == nil {
			_, _ = conn.Read(make([]byte, 1)) // the server closes the connection after it has counted
			conn.Close()
		}
		if got := refused(err); got != tt.want || (err == nil) != (tt.want == "") {
			t.Errorf("%q with %q: %v, want %q", tt.host, tt.allow, err, tt.want)
		}
		if reached := met.Load() > before; reached != (tt.want == "") {
			t.Errorf("%q with %q: reached %v", tt.host, tt.allow, reached)
		}
		if err != nil && strings.Contains(err.Error(), port) {
			t.Errorf("%q: the error tells of the port: %v", tt.host, err)
		}
	}
}

// A name resolves to an allowed address during the check, and to another one during the
// connect (DNS rebinding).
func TestRebinding(t *testing.T) {
	t.Parallel()
	at, met := server(t)
	_, port, _ := net.SplitHostPort(at)
	p := Policy{Resolver: names(t, map[string][]string{"rebind.example": {"192.0.2.1", "127.0.0.1"}})}
	if err := p.Check(t.Context(), "rebind.example"); err != nil {
		t.Fatalf("the first address is refused: %v", err)
	}
	_, err := p.DialContext(t.Context(), "tcp", "rebind.example:"+port)
	if refused(err) != "a loopback address" || met.Load() != 0 {
		t.Errorf("%v, connections: %d", err, met.Load())
	}
}

// A TCP route is reachable only by its domain and port.
func TestTCPRoute(t *testing.T) {
	t.Parallel()
	at, met := server(t)
	other, spared := server(t)
	p := Policy{
		Resolver: names(t, map[string][]string{"tcp.example": {"127.0.0.1"}}),
		TCP:      func(host, port string) (string, bool) { return at, host == "tcp.example" && port == "20000" },
	}
	conn, err := p.DialContext(t.Context(), "tcp", "tcp.example:20000")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Read(make([]byte, 1)) // the server closes the connection after it has counted
	conn.Close()
	_, port, _ := net.SplitHostPort(other)
	_, err = p.DialContext(t.Context(), "tcp", "tcp.example:"+port)
	if refused(err) != "a loopback address" || met.Load() != 1 || spared.Load() != 0 {
		t.Errorf("another port: %v, connections: %d and %d", err, met.Load(), spared.Load())
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	p := Policy{
		Resolver: names(t, map[string][]string{"near.example": {"127.0.0.1"}, "far.example": {"192.0.2.1"}, "app.example": {"127.0.0.1"}, "tcp.example": {"127.0.0.1"}}),
		Web:      func(host string) (string, bool) { return "", host == "app.example" },
		TCP:      func(host, port string) (string, bool) { return "", host == "tcp.example" && port == "20000" },
	}
	for text, want := range map[string]string{
		"http://near.example": "a loopback address", "https://far.example": "", "http://app.example:1": "", "https-batch://app.example": "",
		"syslog://app.example:514":   "a loopback address", // HTTP routes do not apply to it
		"syslog://tcp.example:20000": "", "syslog://tcp.example:20001": "a loopback address", "http://tcp.example:20000": "a loopback address",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := refused(p.CheckURL(t.Context(), u)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestAllowed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", " , ": "", "A.example.,b": "a.example,b", "127.0.0.1": "127.0.0.1/32", "[::1]": "::1/128", "10.1.2.3/8": "10.0.0.0/8",
		"fd00::/8, host-1.example": "host-1.example,fd00::/8", "::ffff:10.0.0.1": "10.0.0.1/32",
	} {
		var l Allowed
		if err := l.UnmarshalText([]byte(text)); err != nil || l.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, l.String(), err, want)
		}
	}
	for _, text := range []string{"http://a.example", "a.example:80", "a b", "10.0.0.0/33", "*.example", "-a", "a,b/8"} {
		if err := new(Allowed).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// UnmarshalText parses the output of String to the same value.
func FuzzAllowed(f *testing.F) {
	for _, s := range []string{"a.example,127.0.0.0/8", "[::1]", "::ffff:1.2.3.4", "1.2.3.4/33", ",", "fe80::1%eth0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var l, again Allowed
		if l.UnmarshalText([]byte(s)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(l.String())); err != nil || again.String() != l.String() {
			t.Errorf("%q: %q, then %q, %v", s, l.String(), again.String(), err)
		}
	})
}
