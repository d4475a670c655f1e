package netpolicy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Reason says which part of the firewall refused a connection.
type Reason string

// The reasons of a refusal.
const (
	NoPolicy  Reason = "policy"    // to another container
	NoGroup   Reason = "group"     // to another machine
	HostPort  Reason = "host"      // to a closed port of this machine
	LinkLocal Reason = "linklocal" // to a link-local address
)

// Refusal is a connection that the firewall refused.
type Refusal struct {
	Reason   Reason
	From, To netip.Addr
	Protocol byte
	Port     uint16 // of TCP and UDP
	Type     byte   // of ICMP
	Code     byte
}

// place returns the address and the port that the connection was for.
func (r Refusal) place() string {
	switch r.Protocol {
	case TCP:
		return fmt.Sprintf("%s, tcp port %d", r.To, r.Port)
	case UDP:
		return fmt.Sprintf("%s, udp port %d", r.To, r.Port)
	case ICMP:
		return fmt.Sprintf("%s, icmp type %d", r.To, r.Type)
	}
	return fmt.Sprintf("%s, protocol %d", r.To, r.Protocol)
}

// Explain returns the log line for a refused connection: what was refused, why, and how
// to allow it. The target is nil if no container has the address.
func Explain(s State, r Refusal, source Endpoint, target *Endpoint) string {
	from := s.name(source)
	refused := func(to, why string) string { return fmt.Sprintf("Connection refused: %s to %s. %s", from, to, why) }
	switch r.Reason {
	case HostPort:
		return refused("this machine ("+r.place()+")", "Instances reach only the DNS server, the API and the routes of this machine. To open all its ports, start dewd with --allow-host.")
	case LinkLocal:
		return refused("link-local address "+r.place(), fmt.Sprintf("Clouds serve the credentials of the machine at such addresses. To open it, start dewd with --allow-link-local %s.", r.To))
	case NoGroup:
		return refused(r.place(), s.adviseGroup(r, source))
	}
	if target == nil {
		return refused(r.place(), "No app has this address now. Use an internal route (HOST.apps.internal) instead of an address.")
	}
	to := fmt.Sprintf("%s (%s)", s.name(*target), r.place())
	if target.Kind == Service {
		return refused(to, s.adviseBinding(source, *target))
	}
	return refused(to, s.advisePolicy(r, source, *target))
}

// name returns the name of a container for the log.
func (s State) name(e Endpoint) string {
	if e.Kind == Service {
		return "service instance " + shellWord(s.Services[e.App], e.App)
	}
	what := "app "
	if e.Kind == Staging {
		what = "the build of app "
	}
	return what + shellWord(s.Apps[e.App].Name, e.App)
}

// adviseGroup names the rule that would allow a connection to another machine.
func (s State) adviseGroup(r Refusal, source Endpoint) string {
	rule := fmt.Sprintf(`{"protocol":"all","destination":"%s"}`, r.To)
	switch r.Protocol {
	case TCP, UDP:
		rule = fmt.Sprintf(`{"protocol":"%s","destination":"%s","ports":"%d"}`, map[byte]string{TCP: "tcp", UDP: "udp"}[r.Protocol], r.To, r.Port)
	case ICMP:
		rule = fmt.Sprintf(`{"protocol":"icmp","destination":"%s","type":%d,"code":%d}`, r.To, r.Type, r.Code)
	}
	space := s.Spaces[s.Apps[source.App].Space]
	lifecycle := ""
	if source.Kind == Staging {
		lifecycle = " --lifecycle staging"
	}
	if source.Kind == Service || space.Name == "" {
		return "No security group allows it."
	}
	return fmt.Sprintf("No security group of space %s allows it. Add the rule %s to a security group and bind it: dew bind-security-group GROUP %s --space %s%s",
		shellWord(space.Name, ""), rule, shellWord(space.Org, ""), shellWord(space.Name, ""), lifecycle)
}

// adviseBinding says how to open a built-in service.
func (s State) adviseBinding(source, target Endpoint) string {
	for _, service := range s.servicesOf(source.App) {
		if service == target.App {
			return fmt.Sprintf("The service only has port %s.", joinPorts(target.Ports))
		}
	}
	return fmt.Sprintf("The app is not bound to it. To allow it: dew bind-service %s %s", shellWord(s.Apps[source.App].Name, source.App), shellWord(s.Services[target.App], target.App))
}

// advisePolicy names the command that creates the missing policy.
func (s State) advisePolicy(r Refusal, source, target Endpoint) string {
	if source.Kind == Service {
		return "Built-in services cannot connect to apps."
	}
	if r.Protocol != TCP && r.Protocol != UDP {
		return "Network policies allow only tcp and udp between apps."
	}
	from, to := s.Apps[source.App], s.Apps[target.App]
	elsewhere := ""
	if from.Space != to.Space {
		space := s.Spaces[to.Space]
		elsewhere = fmt.Sprintf(" -s %s -o %s", shellWord(space.Name, ""), shellWord(space.Org, ""))
	}
	protocol := map[byte]string{TCP: "tcp", UDP: "udp"}[r.Protocol]
	return fmt.Sprintf("No network policy allows it. To allow it: dew add-network-policy %s %s%s --protocol %s --port %d",
		shellWord(from.Name, source.App), shellWord(to.Name, target.App), elsewhere, protocol, r.Port)
}

func joinPorts(ports []int) string {
	var out []string
	for _, p := range ports {
		out = append(out, strconv.Itoa(p))
	}
	return strings.Join(out, ", ")
}

// shellWord returns a name as one word of a shell. It is the guid if the name is
// unknown.
func shellWord(name, guid string) string {
	if name == "" {
		return guid
	}
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
	}
	if strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
