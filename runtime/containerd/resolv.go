package containerd

import (
	"net/netip"
	"strings"
)

// Gateway returns the bridge's own address, where instances reach the machine.
func (e *Engine) Gateway() netip.Addr { return e.net.Gateway() }

// UseNames makes instances that start from now on use the name server at the bridge's
// address.
func (e *Engine) UseNames() { e.named.Store(true) }

// maxServers is the number of name servers that a program uses.
const maxServers = 3

// resolvConf returns the resolv.conf of an instance. It has the name server at the
// bridge, if there is one, and then the machine's own, for the time when no daemon
// runs.
func (e *Engine) resolvConf(paths ...string) string {
	text := resolvConf(paths...)
	if !e.named.Load() {
		return text
	}
	return withServer(text, e.Gateway())
}

// withServer adds a name server at the front of a resolv.conf, and leaves at most
// maxServers.
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
