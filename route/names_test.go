package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/testkit"
)

// serveNames starts a name server on loopback and returns its address.
func serveNames(t *testing.T, serve func(context.Context, net.PacketConn, net.Listener) error) string {
	t.Helper()
	udp, tcp := samePort(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- serve(ctx, udp, tcp) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return udp.LocalAddr().String()
}

// samePort listens on a port that is free for both.
func samePort(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		udp, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		tcp, err := net.Listen("tcp", udp.LocalAddr().String())
		if err == nil {
			return udp, tcp
		}
		udp.Close()
		if !errors.Is(err, unix.EADDRINUSE) {
			t.Fatal(err)
		}
	}
	t.Fatal("no port is free for udp and tcp")
	return nil, nil
}

// outside is a name server of the machine that resolves all names.
func outside(ctx context.Context, udp net.PacketConn, tcp net.Listener) error {
	h := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Answer = append(m.Answer, &dns.TXT{
			Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{w.RemoteAddr().Network()},
		})
		_ = w.WriteMsg(m)
	})
	ss := []*dns.Server{{PacketConn: udp, Handler: h}, {Listener: tcp, Handler: h}}
	done := make(chan error, len(ss))
	for _, s := range ss {
		go func() { done <- s.ActivateAndServe() }()
	}
	<-ctx.Done()
	udp.Close()
	tcp.Close()
	for range ss {
		<-done
	}
	return nil
}

func resolvFile(t *testing.T, servers ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	writeResolv(t, path, time.Unix(1, 0), servers...)
	return path
}

func writeResolv(t *testing.T, path string, at time.Time, servers ...string) {
	t.Helper()
	text := ""
	for _, s := range servers {
		text += "nameserver " + s + "\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func internalRoute(host string, apps ...string) app.Route {
	rt := routeTo(host, "", apps...)
	rt.Domain = "i"
	return rt
}

func TestInternalNames(t *testing.T) {
	reg := &fakeRegistry{domains: twoDomains, routes: []app.Route{
		internalRoute("one", "a"), internalRoute("both", "a", "b"), internalRoute("empty", "c"), internalRoute("twice", "a", "a"), routeTo("shop", "", "a"),
	}}
	w := &world{registry: reg}
	r, err := New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	r.Changed(ready("a", 0))
	r.Changed(ready("a", 1))
	r.Changed(ready("b", 0))
	away := ready("a", 2)
	away.Ready = false
	r.Changed(away)
	server := serveNames(t, r.Names(NamesConfig{API: netip.MustParseAddr("10.201.0.1"), Router: netip.MustParseAddr("10.201.0.2"), Resolv: resolvFile(t), Logger: slog.New(slog.DiscardHandler)}).Serve)
	at := func(guid string, index int) string { return addressOf(idOf(guid, index)).String() }
	for _, c := range []struct {
		name  string
		kind  uint16
		rcode int
		want  []string
	}{
		{"one.apps.internal.", dns.TypeA, dns.RcodeSuccess, []string{at("a", 0), at("a", 1)}},
		{"shop.dew.localhost.", dns.TypeA, dns.RcodeSuccess, []string{"10.201.0.2"}},
		{"ONE.Apps.Internal.", dns.TypeA, dns.RcodeSuccess, []string{at("a", 0), at("a", 1)}},
		{"twice.apps.internal.", dns.TypeA, dns.RcodeSuccess, []string{at("a", 0), at("a", 1)}},
		{"both.apps.internal.", dns.TypeA, dns.RcodeSuccess, []string{at("a", 0), at("a", 1), at("b", 0)}},
		{"1.both.apps.internal.", dns.TypeA, dns.RcodeSuccess, []string{at("a", 1)}},
		{"2.both.apps.internal.", dns.TypeA, dns.RcodeNameError, nil},
		{"x.both.apps.internal.", dns.TypeA, dns.RcodeNameError, nil},
		{"-1.both.apps.internal.", dns.TypeA, dns.RcodeNameError, nil},
		{"empty.apps.internal.", dns.TypeA, dns.RcodeSuccess, nil},
		{"one.apps.internal.", dns.TypeAAAA, dns.RcodeSuccess, nil},
		{"none.apps.internal.", dns.TypeA, dns.RcodeNameError, nil},
		{"none.apps.internal.", dns.TypeAAAA, dns.RcodeNameError, nil},
		{"apps.internal.", dns.TypeA, dns.RcodeSuccess, nil},
		{"api.dew.internal.", dns.TypeA, dns.RcodeSuccess, []string{"10.201.0.1"}},
		{"API.dew.internal.", dns.TypeAAAA, dns.RcodeSuccess, nil},
		{"other.dew.internal.", dns.TypeA, dns.RcodeNameError, nil},
		{"dew.internal.", dns.TypeA, dns.RcodeSuccess, nil},
		{"nobody.dew.localhost.", dns.TypeA, dns.RcodeServerFailure, nil}, // forwarded, but no server is reachable
	} {
		for _, network := range []string{"udp", "tcp"} {
			q := new(dns.Msg).SetQuestion(c.name, c.kind)
			res, _, err := (&dns.Client{Net: network, Timeout: testkit.Patience}).Exchange(q, server)
			if err != nil {
				t.Errorf("%s %s: %v", network, c.name, err)
				continue
			}
			var got []string
			for _, rr := range res.Answer {
				got = append(got, rr.(*dns.A).A.String())
				if rr.Header().Ttl != 0 || rr.Header().Name != c.name {
					t.Errorf("%s: header %v", c.name, rr.Header())
				}
			}
			slices.Sort(got)
			if d := cmp.Diff(got, c.want); d != "" || res.Rcode != c.rcode {
				t.Errorf("%s %s: %s, want %s (-got +want)\n%s", network, c.name, dns.RcodeToString[res.Rcode], dns.RcodeToString[c.rcode], d)
			}
		}
	}
}

// A response that does not fit into a packet is truncated, and TCP returns the whole
// response.
func TestManyInstancesByName(t *testing.T) {
	reg := &fakeRegistry{domains: twoDomains, routes: []app.Route{internalRoute("many", "a")}}
	w := &world{registry: reg}
	r, err := New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		st := ready("a", i)
		st.Address = netip.AddrFrom4([4]byte{10, 201, 1, byte(i)})
		r.Changed(st)
	}
	server := serveNames(t, r.Names(NamesConfig{Resolv: resolvFile(t), Logger: slog.New(slog.DiscardHandler)}).Serve)
	q := new(dns.Msg).SetQuestion("many.apps.internal.", dns.TypeA)
	for network, want := range map[string]int{"udp": 0, "tcp": 100} {
		res, _, err := (&dns.Client{Net: network, Timeout: testkit.Patience}).Exchange(q, server)
		if err != nil || res.Truncated != (network == "udp") || want > 0 && len(res.Answer) != want {
			t.Errorf("%s: %d answers, truncated %v, %v", network, len(res.Answer), res.Truncated, err)
		}
	}
}

// Other names are forwarded to the machine's servers over the same protocol, until one
// responds.
func TestOtherNamesArePassedOn(t *testing.T) {
	up := serveNames(t, outside)
	w := &world{registry: &fakeRegistry{domains: twoDomains}}
	r, err := New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	n := r.Names(NamesConfig{Resolv: resolvFile(t, "192.0.2.1"), Logger: slog.New(slog.DiscardHandler)})
	own := serveNames(t, n.Serve)
	n.mu.Lock()
	n.servers, n.read = []string{"127.0.0.1:1", up}, time.Unix(1, 0) // as if the file contained ports
	n.mu.Unlock()
	for _, network := range []string{"udp", "tcp"} {
		q := new(dns.Msg).SetQuestion("example.com.", dns.TypeTXT)
		res, _, err := (&dns.Client{Net: network, Timeout: testkit.Patience}).Exchange(q, own)
		if err != nil || len(res.Answer) != 1 || !strings.Contains(res.Answer[0].String(), network) || res.Id != q.Id {
			t.Errorf("%s: %v, %v", network, res, err)
		}
	}
	q := new(dns.Msg).SetQuestion("example.com.", dns.TypeTXT)
	q.Opcode = dns.OpcodeUpdate
	if res, _, err := (&dns.Client{Timeout: testkit.Patience}).Exchange(q, own); err != nil || res.Rcode != dns.RcodeNotImplemented {
		t.Errorf("update: %v, %v", res, err)
	}
}

// The file is read again after a change, and the server never queries itself.
func TestUpstreamFollowsTheFile(t *testing.T) {
	path := resolvFile(t, "192.0.2.1", "192.0.2.2")
	n := &Names{c: NamesConfig{Resolv: path}, own: []string{"10.201.0.1:53"}}
	check := func(want ...string) {
		t.Helper()
		got, err := n.upstream()
		if d := cmp.Diff(got, want); d != "" || (err != nil) != (len(want) == 0) {
			t.Errorf("%v (-got +want)\n%s", err, d)
		}
	}
	check("192.0.2.1:53", "192.0.2.2:53")
	writeResolv(t, path, time.Unix(2, 0), "10.201.0.1", "2001:db8::1")
	check("[2001:db8::1]:53")
	writeResolv(t, path, time.Unix(3, 0), "10.201.0.1")
	check()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check()
}

// For any query, the response can be encoded.
func FuzzLookup(f *testing.F) {
	f.Add("one.apps.internal.")
	f.Add("..")
	f.Add(fmt.Sprint(strings.Repeat("9", 40), ".one.apps.internal."))
	w := &world{registry: &fakeRegistry{domains: twoDomains, routes: []app.Route{internalRoute("one", "a")}}}
	r, err := New(w.config())
	if err != nil {
		f.Fatal(err)
	}
	r.Changed(ready("a", 0))
	n := r.Names(NamesConfig{API: netip.MustParseAddr("10.201.0.1")})
	f.Fuzz(func(t *testing.T, name string) {
		addrs, known, ours := n.lookup(strings.ToLower(name))
		if len(addrs) > 0 && !known || known && !ours {
			t.Errorf("%q: %v %v %v", name, addrs, known, ours)
		}
	})
}
