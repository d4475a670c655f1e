package containerd

import (
	"net/netip"
	"strings"
)

// Gateway is the bridge's own address: there instances find the machine.
func (e *Engine) Gateway() netip.Addr { return e.net.Gateway() }

// UseNames makes instances that start from now on ask for names at the bridge's
// address.
func (e *Engine) UseNames() { e.named.Store(true) }

// maxServers is how many a program asks.
const maxServers = 3

// resolvConf says whom an instance asks for names: the server at the bridge, where
// there is one, and then the machine's own, for the time in which no daemon runs.
func (e *Engine) resolvConf(paths ...string) string {
	text := resolvConf(paths...)
	if !e.named.Load() {
		return text
	}
	return withServer(text, e.Gateway())
}

// withServer puts a server in front of those that a resolv.conf names, and leaves
// no more than are asked.
func withServer(text string, first netip.Addr) string {
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
