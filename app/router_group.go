package app

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// TCPGroup is the name of the router group that a daemon has.
const TCPGroup = "default-tcp"

// RouterGroup is where the ports of TCP routes come from. All its domains share
// them: a connection tells its port, and no name.
type RouterGroup struct {
	GUID      string    `json:"guid"`
	Name      string    `json:"name"`
	Ports     PortRange `json:"ports"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// PortRange is a row of ports, both ends included; the zero value has none. Its text
// form is first-last, or empty.
type PortRange struct{ First, Last int }

// lowestPort is the first that needs no privilege. Those below belong to services of
// the machine.
const lowestPort = 1024

// UnmarshalText reads 20000-20099, one port, or nothing.
func (p *PortRange) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	if text == "" {
		*p = PortRange{}
		return nil
	}
	from, to, ok := strings.Cut(text, "-")
	if !ok {
		to = from
	}
	first, ferr := strconv.ParseUint(from, 10, 16)
	last, lerr := strconv.ParseUint(to, 10, 16)
	if ferr != nil || lerr != nil || first < lowestPort || first > last {
		return fmt.Errorf("must be two ports from %d to 65535 such as 20000-20099, not %q", lowestPort, shorten(text))
	}
	*p = PortRange{First: int(first), Last: int(last)}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (p PortRange) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p PortRange) String() string {
	if p == (PortRange{}) {
		return ""
	}
	return strconv.Itoa(p.First) + "-" + strconv.Itoa(p.Last)
}

// Has tells whether the port is in the range.
func (p PortRange) Has(port int) bool { return port != 0 && p.First <= port && port <= p.Last }

// RouterGroups returns all router groups by name.
func (r *Registry) RouterGroups() ([]RouterGroup, error) {
	return sorted(r.groups, "router groups", func(a, b RouterGroup) int { return cmp.Compare(a.Name, b.Name) })
}

// RouterGroup returns the router group with guid.
func (r *Registry) RouterGroup(guid string) (RouterGroup, error) {
	return get(r.groups, "router group", guid)
}

// EnsureRouterGroup gives the router group its ports, and makes it when there are
// some for the first time. Routes whose port is no longer among them stay.
func (r *Registry) EnsureRouterGroup(ports PortRange) error {
	return r.update(func(r *Registry) error {
		g, err := oneBy(r.groups, "name", TCPGroup, "router group")
		switch {
		case errors.Is(err, ErrNotFound) && ports == PortRange{}:
			return nil
		case errors.Is(err, ErrNotFound):
			g = RouterGroup{GUID: uuid.NewString(), Name: TCPGroup, CreatedAt: now()}
		case err != nil:
			return err
		case g.Ports == ports:
			return nil
		}
		g.Ports, g.UpdatedAt = ports, now()
		if err := r.groups.Put(g.GUID, g); err != nil {
			return fmt.Errorf("cannot keep router group %s: %w", g.Name, err)
		}
		return nil
	})
}

// freePort is a port of the group that no route has.
func (r *Registry) freePort(g RouterGroup) (int, error) {
	routes, err := r.Routes()
	if err != nil {
		return 0, err
	}
	taken := map[int]bool{}
	for _, rt := range routes {
		taken[rt.Port] = true
	}
	n := g.Ports.Last - g.Ports.First + 1
	if g.Ports == (PortRange{}) {
		n = 0
	}
	for i, begin := 0, rand.IntN(max(n, 1)); i < n; i++ {
		if port := g.Ports.First + (begin+i)%n; !taken[port] {
			return port, nil
		}
	}
	return 0, &Invalid{Key: "port", Message: fmt.Sprintf("all ports of router group %s are taken (%s): delete a route, or start dewd with more --tcp-ports", g.Name, cmp.Or(g.Ports.String(), "none"))}
}

// portFor is the port of a new route in a domain: the one that is asked for, or a
// free one. Routes that have no port get none.
func (r *Registry) portFor(rt Route, d Domain) (int, error) {
	if !d.TCP() {
		return rt.Port, nil
	}
	g, err := r.RouterGroup(d.RouterGroup)
	if err != nil {
		return 0, err
	}
	if rt.Port == 0 {
		return r.freePort(g)
	}
	if !g.Ports.Has(rt.Port) {
		return 0, &Invalid{Key: "port", Message: fmt.Sprintf("%d is not available: router group %s has the ports %s", rt.Port, g.Name, cmp.Or(g.Ports.String(), "none"))}
	}
	return rt.Port, nil
}
