package faults

import (
	"context"

	"github.com/dewrun/dew/fire/load"
)

// peers returns the faults of the servers that dewd connects to.
func peers() []Fault {
	var out []Fault
	for _, p := range []struct {
		name string
		gate func(*load.Peers) *load.Gate
	}{
		{"mail server", func(p *load.Peers) *load.Gate { return p.Mail }},
		{"syslog server", func(p *load.Peers) *load.Gate { return p.Syslog }},
		{"service broker", func(p *load.Peers) *load.Gate { return p.Broker }},
	} {
		out = append(out,
			Fault{p.name + " is slow", 1, gated(p.gate, load.Slow)},
			Fault{p.name + " hangs", 1, gated(p.gate, load.Silent)},
			Fault{p.name + " resets connections", 1, gated(p.gate, load.Reset)})
	}
	return out
}

func gated(gate func(*load.Peers) *load.Gate, mode int) Inject {
	return func(_ context.Context, e *Env, _ Draw) (func() error, error) {
		g := gate(e.Peers)
		g.Set(mode)
		return func() error { g.Set(load.Open); return nil }, nil
	}
}
