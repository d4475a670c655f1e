package containerd

import (
	"net/netip"
	"testing"
)

// The name server at the bridge comes first; the machine's own come after it.
func TestWithServer(t *testing.T) {
	for in, want := range map[string]string{
		"": "nameserver 10.201.0.1\n",
		"search a.example\nnameserver 192.0.2.1\noptions edns0\n":                    "nameserver 10.201.0.1\nsearch a.example\nnameserver 192.0.2.1\noptions edns0\n",
		"nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nsearch x": "nameserver 10.201.0.1\nnameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch x",
		"nameserver 10.201.0.1\n": "nameserver 10.201.0.1\n",
	} {
		if got := withServer(in, netip.MustParseAddr("10.201.0.1")); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
