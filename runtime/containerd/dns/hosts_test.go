package dns

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/dewrun/dew/runtime"
)

func TestHostsFile(t *testing.T) {
	t.Parallel()
	const instance runtime.InstanceID = "0a1b2c3d-0000-4000-8000-abcd"
	got := Hosts(runtime.Spec{Instance: instance, Address: netip.MustParsePrefix("10.201.0.7/20")}, "10.201.0.1")
	want := strings.Join([]string{
		"127.0.0.1 localhost", "::1 localhost ip6-localhost", "10.201.0.7 " + string(instance), "10.201.0.1 api.dew.internal", "",
	}, "\n")
	if got != want {
		t.Errorf("hosts = %q, want %q", got, want)
	}
}
