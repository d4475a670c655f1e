package netpolicy

import (
	"testing"
	"time"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	all := map[string]Endpoint{}
	for _, e := range endpoints() {
		all[e.Instance] = e
	}
	bound := desiredState()
	bound.Openings = []Opening{{App: "front", Service: "db"}}
	for _, tt := range []struct {
		name         string
		state        State
		r            Refusal
		source, dest string
		want         string
	}{
		{
			"another app", desiredState(),
			Refusal{Reason: NoPolicy, To: addr("10.0.0.4"), Protocol: TCP, Port: 8080},
			"f0", "b0",
			"Connection refused: app front to app back (10.0.0.4, tcp port 8080). No network policy allows it. To allow it: dew add-network-policy front back --protocol tcp --port 8080",
		},
		{
			"an app of another space", desiredState(),
			Refusal{Reason: NoPolicy, To: addr("10.0.0.5"), Protocol: UDP, Port: 53},
			"f0", "x0",
			"Connection refused: app front to app 'far away' (10.0.0.5, udp port 53). No network policy allows it. To allow it: dew add-network-policy front 'far away' -s prod -o acme --protocol udp --port 53",
		},
		{
			"ping", desiredState(),
			Refusal{Reason: NoPolicy, To: addr("10.0.0.4"), Protocol: ICMP, Type: 8},
			"f0", "b0",
			"Connection refused: app front to app back (10.0.0.4, icmp type 8). Network policies allow only tcp and udp between apps.",
		},
		{
			"an address without an app", desiredState(),
			Refusal{Reason: NoPolicy, To: addr("10.0.0.99"), Protocol: TCP, Port: 80},
			"f0", "",
			"Connection refused: app front to 10.0.0.99, tcp port 80. No app has this address now. Use an internal route (HOST.apps.internal) instead of an address.",
		},
		{
			"a service", desiredState(),
			Refusal{Reason: NoPolicy, To: addr("10.0.0.7"), Protocol: TCP, Port: 5432},
			"f0", "d0",
			"Connection refused: app front to service instance orders (10.0.0.7, tcp port 5432). The app is not bound to it. To allow it: dew bind-service front orders",
		},
		{
			"another port of a service", bound,
			Refusal{Reason: NoPolicy, To: addr("10.0.0.7"), Protocol: TCP, Port: 22},
			"f0", "d0",
			"Connection refused: app front to service instance orders (10.0.0.7, tcp port 22). The service only has port 5432.",
		},
		{
			"from a service", desiredState(),
			Refusal{Reason: NoPolicy, To: addr("10.0.0.4"), Protocol: TCP, Port: 80},
			"d0", "b0",
			"Connection refused: service instance orders to app back (10.0.0.4, tcp port 80). Built-in services cannot connect to apps.",
		},
		{
			"the outside", desiredState(),
			Refusal{Reason: NoGroup, To: addr("192.0.2.1"), Protocol: TCP, Port: 443},
			"fs", "",
			`Connection refused: the build of app front to 192.0.2.1, tcp port 443. No security group of space dev allows it. Add the rule {"protocol":"tcp","destination":"192.0.2.1","ports":"443"} to a security group and bind it: dew bind-security-group GROUP acme --space dev --lifecycle staging`,
		},
		{
			"ping outside", desiredState(),
			Refusal{Reason: NoGroup, To: addr("192.0.2.1"), Protocol: ICMP, Type: 8},
			"f0", "",
			`Connection refused: app front to 192.0.2.1, icmp type 8. No security group of space dev allows it. Add the rule {"protocol":"icmp","destination":"192.0.2.1","type":8,"code":0} to a security group and bind it: dew bind-security-group GROUP acme --space dev`,
		},
		{
			"the machine", desiredState(),
			Refusal{Reason: HostPort, To: addr("10.0.0.1"), Protocol: TCP, Port: 22},
			"f0", "",
			"Connection refused: app front to this machine (10.0.0.1, tcp port 22). Instances reach only the DNS server, the API and the routes of this machine. To open all its ports, start dewd with --allow-host.",
		},
		{
			"metadata", desiredState(),
			Refusal{Reason: LinkLocal, To: addr("169.254.169.254"), Protocol: TCP, Port: 80},
			"f0", "",
			"Connection refused: app front to link-local address 169.254.169.254, tcp port 80. Clouds serve the credentials of the machine at such addresses. To open it, start dewd with --allow-link-local 169.254.169.254.",
		},
	} {
		var target *Endpoint
		if e, ok := all[tt.dest]; ok {
			target = &e
		}
		if got := Explain(tt.state, tt.r, all[tt.source], target); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// Each destination gets one line per minute, and each app a limited number of lines.
func TestNotices(t *testing.T) {
	t.Parallel()
	n, now := newNotices(), time.Now()
	front, back := Endpoint{App: "front"}, Endpoint{App: "back"}
	r := Refusal{To: addr("10.0.0.4"), Protocol: TCP, Port: 80}
	other := Refusal{To: addr("10.0.0.4"), Protocol: TCP, Port: 81}
	for _, tt := range []struct {
		name  string
		e     Endpoint
		r     Refusal
		after time.Duration
		want  bool
	}{
		{"first", front, r, 0, true},
		{"again", front, r, time.Second, false},
		{"another port", front, other, time.Second, true},
		{"another app", back, r, time.Second, true},
		{"before a minute", front, r, time.Minute - 1, false},
		{"after a minute", front, r, time.Minute, true},
	} {
		if got := n.due(tt.e, tt.r, now.Add(tt.after)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	lines := 0
	for port := range uint16(1000) {
		if n.due(Endpoint{App: "scan"}, Refusal{To: addr("10.0.0.4"), Protocol: TCP, Port: port}, now) {
			lines++
		}
	}
	if lines != noticesPerApp {
		t.Errorf("%d lines about a scan, want %d", lines, noticesPerApp)
	}
}
