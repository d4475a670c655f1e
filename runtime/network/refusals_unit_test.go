package network

import (
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"

	"github.com/dewrun/dew/netpolicy"
)

// report returns a message of the kernel.
func report(reason string, packet []byte) []byte {
	b, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: logPrefix, Data: []byte(reason + "\x00")}, {Type: logPayload, Data: packet}})
	if err != nil {
		panic(err)
	}
	return append([]byte{2, 0, 0, 5}, b...)
}

func packet(protocol byte, options int, transport ...byte) []byte {
	b := make([]byte, 20+options)
	b[0], b[9] = 0x45+byte(options/4), protocol
	copy(b[12:], []byte{10, 0, 0, 2, 192, 0, 2, 1})
	return append(b, transport...)
}

func TestParseReport(t *testing.T) {
	t.Parallel()
	from, to := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("192.0.2.1")
	for name, tt := range map[string]struct {
		in   []byte
		want netpolicy.Refusal
		ok   bool
	}{
		"tcp":              {report("policy", packet(6, 0, 0x9c, 0x40, 0x1f, 0x90)), netpolicy.Refusal{Reason: netpolicy.NoPolicy, From: from, To: to, Protocol: 6, Port: 8080}, true},
		"udp with options": {report("group", packet(17, 8, 0x9c, 0x40, 0, 53)), netpolicy.Refusal{Reason: netpolicy.NoGroup, From: from, To: to, Protocol: 17, Port: 53}, true},
		"icmp":             {report("group", packet(1, 0, 8, 1, 0, 0)), netpolicy.Refusal{Reason: netpolicy.NoGroup, From: from, To: to, Protocol: 1, Type: 8, Code: 1}, true},
		"no ports":         {report("group", packet(6, 0)), netpolicy.Refusal{Reason: netpolicy.NoGroup, From: from, To: to, Protocol: 6}, true},
		"no packet":        {report("group", nil), netpolicy.Refusal{}, false},
		"ipv6":             {report("group", []byte{0x60, 39: 0}), netpolicy.Refusal{}, false},
		"empty":            {nil, netpolicy.Refusal{}, false},
	} {
		got, ok := parseReport(tt.in)
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add(report("policy", packet(6, 0, 0x9c, 0x40, 0x1f, 0x90)))
	f.Add(report("group", packet(17, 8)))
	f.Add([]byte{2, 0, 0, 5, 255, 255, 9, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := parseReport(b); ok && (!r.From.Is4() || !r.To.Is4()) {
			t.Errorf("%x: %+v", b, r)
		}
	})
}
