package app

import (
	"regexp"
	"strings"
	"testing"
)

func TestRuleParts(t *testing.T) {
	for s, want := range map[string]bool{
		"443": true, "80,443": true, "8080-8090, 1": true, "": false, "0": false, "65536": false, "9-1": false, "a": false, "1-": false, ",": false,
	} {
		if got := portList(s); got != want {
			t.Errorf("ports %q = %t, want %t", s, got, want)
		}
	}
	for s, want := range map[string]bool{
		"10.0.0.1": true, "10.0.0.0/8": true, "10.0.0.1-10.0.0.9": true, "::1": true, "fd00::/8": true,
		"": false, "10.0.0.9-10.0.0.1": false, "10.0.0.1-::1": false, "10.0.0.0/33": false, "example.com": false,
	} {
		if got := destinationRange(s); got != want {
			t.Errorf("destination %q = %t, want %t", s, got, want)
		}
	}
}

var portsOnly = regexp.MustCompile(`^[-+0-9, \t\n\v\f\r\x{85}\x{a0}\pZ]+$`)

// portList accepts only ports and ranges, and no security rule causes a panic.
func FuzzSecurityRule(f *testing.F) {
	f.Add("tcp", "10.0.0.0/8", "80,8080-8090")
	f.Add("icmp", "10.0.0.1-10.0.0.9,::1", "")
	f.Add("all", "-", "-,")
	f.Fuzz(func(t *testing.T, protocol, destination, ports string) {
		var ps Violations
		SecurityRule{Protocol: protocol, Destination: destination, Ports: ports}.check(&ps, "rules[0]")
		if portList(ports) && !portsOnly.MatchString(ports) {
			t.Errorf("%q was taken for ports", ports)
		}
		if destinationRange(destination) && !strings.ContainsAny(destination, ".:") {
			t.Errorf("%q was taken for a destination", destination)
		}
	})
}
