package dns

import (
	"net/netip"
	"slices"
	"testing"
)

func TestLookups(t *testing.T) {
	hosts := "127.0.0.1 localhost\n::1 localhost ip6-localhost\n# 1.2.3.4 db\n10.0.0.1 api.dew.internal # door\nbroken\n"
	for name, want := range map[string][]netip.Addr{
		"localhost":        {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
		"LOCALHOST.":       {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
		"api.dew.internal": {netip.MustParseAddr("10.0.0.1")},
		"db":               nil,
		"door":             nil,
	} {
		if got := inHosts(hosts, name); !slices.Equal(got, want) {
			t.Errorf("inHosts(%q) = %v, want %v", name, got, want)
		}
	}
	got := nameservers("# nameserver 9.9.9.9\nsearch x\nnameserver 10.0.0.53\nnameserver fe80::1%eth0\nnameserver nonsense\n")
	if want := []netip.Addr{netip.MustParseAddr("10.0.0.53"), netip.MustParseAddr("fe80::1%eth0")}; !slices.Equal(got, want) {
		t.Errorf("nameservers = %v, want %v", got, want)
	}
}
