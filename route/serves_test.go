package route

import (
	"errors"
	"net"
	"strconv"
	"testing"

	"github.com/dewrun/dew/app"
)

func TestServes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, routeTo("shop", "", "shop-app"), routeTo("deep", "/path", "shop-app"), routeTo("empty", ""))
	hosts, err := Hosts(w.registry)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"shop.dew.localhost": true, "SHOP.dew.localhost.": true, "deep.dew.localhost": true,
		"empty.dew.localhost": false, "other.dew.localhost": false, "dew.localhost": false, "127.0.0.1": false, "::1": false, "": false,
	} {
		if got := w.router.Serves(host); got != want || hosts(host) != want {
			t.Errorf("%q: %v and %v, want %v", host, got, hosts(host), want)
		}
	}
}

// A TCP route serves its port at its own domain, once the port is open: another program
// may use it.
func TestServesPort(t *testing.T) {
	t.Parallel()
	rt := app.Route{GUID: "tcp", Domain: "t", Port: 20001, Destinations: []app.Destination{{App: "shop-app", ProcessType: app.Web}}}
	w := newWorld(t)
	w.registry.set(func() {
		w.registry.domains = append(w.registry.domains, app.Domain{GUID: "t", Name: "tcp.example", RouterGroup: "default"})
		w.registry.routes = []app.Route{rt}
	})
	if err := w.router.readRoutes(); err != nil {
		t.Fatal(err)
	}
	if w.router.table.Load().ports[rt.Port] == nil {
		t.Fatal("the table has no TCP route")
	}
	taken := true
	d := &tcpListeners{router: w.router, open: map[int][]net.Listener{}, listen: func(int) ([]net.Listener, error) {
		if taken {
			return nil, errors.New("taken")
		}
		return []net.Listener{}, nil
	}}
	serves := func(want bool, host string, port int) {
		t.Helper()
		if got := w.router.ServesPort(host, strconv.Itoa(port)); got != want {
			t.Errorf("%s:%d: %v, want %v", host, port, got, want)
		}
	}
	serves(false, "tcp.example", rt.Port) // not tried yet
	d.update(t.Context())
	serves(false, "tcp.example", rt.Port) // another program uses it
	taken = false
	d.update(t.Context())
	serves(true, "TCP.example", rt.Port)
	serves(false, "tcp.example", rt.Port+1)
	serves(false, "localhost", rt.Port)
	d.leave()
	serves(false, "tcp.example", rt.Port)
}
