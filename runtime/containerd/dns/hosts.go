package dns

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/dewrun/dew/runtime"
)

// Hosts returns a hosts file with the instance itself and the platform's API.
func Hosts(s runtime.Spec, gateway string) string {
	return fmt.Sprintf("127.0.0.1 localhost\n::1 localhost ip6-localhost\n%s %s\n%s api.dew.internal\n",
		s.Address.Addr(), s.Instance, gateway)
}

// inHosts returns the addresses of a name in a hosts file.
func inHosts(text, name string) []netip.Addr {
	var found []netip.Addr
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		addr, err := netip.ParseAddr(f[0])
		if err != nil {
			continue
		}
		for _, n := range f[1:] {
			if strings.EqualFold(n, strings.TrimSuffix(name, ".")) {
				found = append(found, addr)
				break
			}
		}
	}
	return found
}
