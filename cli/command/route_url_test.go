package command

import (
	"testing"
)

// A route is shown as the URL to type; a TCP route has its own port.
func TestRouteURL(t *testing.T) {
	for _, tt := range [][3]string{
		{"shop.dew.localhost", "http://127.0.0.1:8080", "http://shop.dew.localhost:8080"},
		{"shop.dew.localhost/api", "http://127.0.0.1:8080", "http://shop.dew.localhost:8080/api"},
		{"tcp.dew.localhost:20000", "http://127.0.0.1:8080", "tcp://tcp.dew.localhost:20000"},
		{"shop.dew.localhost", "", "shop.dew.localhost"},
	} {
		if got := RouteURL(tt[0], tt[1]); got != tt[2] {
			t.Errorf("routeURL(%q, %q) = %q, want %q", tt[0], tt[1], got, tt[2])
		}
	}
}
