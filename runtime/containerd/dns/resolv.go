package dns

import (
	"net/netip"
	"os"
	"strings"
)

// ResolvConf returns the first of the host's files that has a name server which is
// reachable from other network namespaces. It leaves out servers that are not.
func ResolvConf(paths ...string) string {
	var text string
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var kept strings.Builder
		servers := 0
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			isServer := len(f) > 1 && f[0] == "nameserver"
			if isServer && (strings.HasPrefix(f[1], "127.") || f[1] == "::1") {
				continue
			}
			if isServer {
				servers++
			}
			kept.WriteString(line)
		}
		if text = kept.String(); servers > 0 {
			break
		}
	}
	return text
}

// maxServers is the number of name servers that a program uses.
const maxServers = 3

// WithServer adds a name server at the front of a resolv.conf, and leaves at most
// maxServers.
func WithServer(text string, first netip.Addr) string {
	var b strings.Builder
	b.WriteString("nameserver " + first.String() + "\n")
	servers := 1
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			servers++
			if servers > maxServers || f[1] == first.String() {
				continue
			}
		}
		b.WriteString(line)
	}
	return b.String()
}

// nameservers returns the servers in a resolv.conf.
func nameservers(text string) []netip.Addr {
	var out []netip.Addr
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(f[1]); err == nil {
			out = append(out, addr)
		}
	}
	return out
}
