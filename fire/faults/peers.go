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
		{"registry", func(p *load.Peers) *load.Gate { return p.Registry }},
	} {
		out = append(out,
			Fault{Name: p.name + " is slow", Weight: 1, Inject: gated(p.gate, load.Slow)},
			Fault{Name: p.name + " hangs", Weight: 1, Inject: gated(p.gate, load.Silent)},
			Fault{Name: p.name + " resets connections", Weight: 1, Inject: gated(p.gate, load.Reset)})
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
