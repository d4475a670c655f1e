package app

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dewrun/dew/yamlfile"
)

// CheckProtocol wants the protocol that the manifest names to fit the route.
func (m *ManifestApp) CheckProtocol(i int, rt Route) error {
	if m.Routes[i].Protocol == "" {
		return nil
	}
	var ps Violations
	CheckProtocol(&ps, fmt.Sprintf("routes[%d].protocol", i), m.Routes[i].Protocol, rt.Protocols()...)
	if err := ps.Err(); err != nil {
		return m.Explain(err)
	}
	return nil
}

func RouteKey(i int) string { return fmt.Sprintf("routes[%d].route", i) }

// checkManifestRoute checks what can be seen without knowing the domains.
func checkManifestRoute(i int, mr ManifestRoute) error {
	var ps Violations
	_, path, _, err := SplitRoute(mr.Route)
	if err != nil {
		ps.Add(RouteKey(i), "%v", err)
	}
	CheckPath(&ps, RouteKey(i), path)
	CheckRouteOptions(&ps, fmt.Sprintf("routes[%d].options", i), mr.Options)
	if mr.Protocol != "" {
		CheckProtocol(&ps, fmt.Sprintf("routes[%d].protocol", i), mr.Protocol, ProtocolHTTP1, ProtocolHTTP2, ProtocolTCP)
	}
	return ps.Err()
}

// SplitRoute takes host.domain/path or domain:port apart, the name in small letters.
func SplitRoute(s string) (name, path string, port int, err error) {
	name, path, _ = strings.Cut(s, "/")
	name, number, ported := strings.Cut(name, ":")
	for label := range strings.SplitSeq(strings.TrimPrefix(name, AnyHost+"."), ".") {
		if !HostLabel.MatchString(label) {
			return "", "", 0, fmt.Errorf("must be a host and a domain without scheme, such as shop.example.com/cart, or the domain and port of a TCP route, not %q", yamlfile.Shorten(s))
		}
	}
	if ported {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 || path != "" {
			return "", "", 0, fmt.Errorf("must have a port from 1 to 65535 and no path behind its colon, such as tcp.example.com:20000, not %q", yamlfile.Shorten(s))
		}
		port = int(n)
	}
	if path = strings.TrimRight(path, "/"); path != "" {
		path = "/" + path
	}
	return strings.ToLower(name), path, port, nil
}
