package dns

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/dewrun/dew/testkit"
)

func TestResolvConf(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "",
		"nameserver 127.0.0.53\nsearch example\n":                                                "search example\n",
		"# by hand\nnameserver 10.0.0.1\nnameserver 127.0.0.1\n nameserver\t::1 \noptions edns0": "# by hand\nnameserver 10.0.0.1\noptions edns0",
		"nameserver 2001:db8::1\nnameserver 12.7.0.1\n":                                          "nameserver 2001:db8::1\nnameserver 12.7.0.1\n",
		"nameserver\n": "nameserver\n",
	} {
		if got := ResolvConf(testkit.WriteFile(t, filepath.Join(t.TempDir(), "resolv.conf"), in)); got != want {
			t.Errorf("resolvConf of %q = %q, want %q", in, got, want)
		}
	}
	dir := t.TempDir()
	absent := filepath.Join(dir, "absent")
	local := testkit.WriteFile(t, filepath.Join(dir, "local"), "nameserver 127.0.0.53\nsearch local\n")
	reachable := testkit.WriteFile(t, filepath.Join(dir, "real"), "nameserver 10.0.0.1\nsearch real\n")
	for _, tt := range []struct {
		paths []string
		want  string
	}{
		{[]string{local, reachable}, "nameserver 10.0.0.1\nsearch real\n"},
		{[]string{reachable, local}, "nameserver 10.0.0.1\nsearch real\n"},
		{[]string{local, absent}, "search local\n"},
		{[]string{absent, reachable}, "nameserver 10.0.0.1\nsearch real\n"},
	} {
		if got := ResolvConf(tt.paths...); got != tt.want {
			t.Errorf("resolvConf of %q = %q, want %q", tt.paths, got, tt.want)
		}
	}
	if got := ResolvConf(absent); got != "" {
		t.Errorf("without a file = %q, want nothing", got)
	}
}

// The name server at the bridge comes first; the machine's own come after it.
func TestWithServer(t *testing.T) {
	for in, want := range map[string]string{
		"": "nameserver 10.201.0.1\n",
		"search a.example\nnameserver 192.0.2.1\noptions edns0\n":                    "nameserver 10.201.0.1\nsearch a.example\nnameserver 192.0.2.1\noptions edns0\n",
		"nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nsearch x": "nameserver 10.201.0.1\nnameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch x",
		"nameserver 10.201.0.1\n": "nameserver 10.201.0.1\n",
	} {
		if got := WithServer(in, netip.MustParseAddr("10.201.0.1")); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
