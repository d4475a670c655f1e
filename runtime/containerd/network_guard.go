package containerd

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/netpolicy"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/network"
)

// networkGuard enforces network policies and security groups for the containers of an
// engine. Without a Guard it enforces nothing.
type networkGuard struct {
	*netpolicy.Guard
	policies *network.Policies
	refusals *network.Refusals // nil: the kernel does not report refused connections
	log      *slog.Logger
}

// openGuard starts or stops the enforcement, also for instances that already run. Their
// rules come with their adoption.
func (e *Engine) openGuard() error {
	g := &e.guard
	g.log = e.log
	if e.cfg.Policies == nil {
		g.policies = network.NewPolicies(e.fw, 0)
		return errors.Join(e.net.Isolate(false), g.policies.Remove())
	}
	var err error
	if g.refusals, err = network.ListenRefusals(e.cfg.Names.Table); err != nil {
		e.log.Warn("the logs of apps do not explain refused connections", "err", err)
	}
	g.policies = network.NewPolicies(e.fw, g.refusals.Group())
	g.Guard = netpolicy.NewGuard(netpolicy.Config{
		State: e.cfg.Policies, Apply: g.policies.Apply, Log: e.logRefusal, Logger: e.log,
	})
	return e.net.Isolate(true)
}

// PoliciesChanged reports that the result of Config.Policies has changed.
func (e *Engine) PoliciesChanged() {
	if e.guard.Guard != nil {
		e.guard.Changed()
	}
}

// logRefusal writes the explanation of a refused connection to the log of its app.
func (e *Engine) logRefusal(to netpolicy.Endpoint, text string) {
	l, err := e.appLog(to.App)
	if err == nil {
		src := logstream.Source{Type: "CELL", Index: to.Index, InstanceID: to.Instance}
		err = l.Append(logstream.Envelope{Source: src, Stream: logstream.Err, Text: []byte(text)})
	}
	if err != nil && !errors.Is(err, logstream.ErrRemoved) {
		e.log.Error("cannot write to the app's log", "app", to.App, "err", err)
	}
}

// attach adds containers and waits until their rules are in effect.
func (g *networkGuard) attach(specs ...runtime.Spec) error {
	if g.Guard == nil {
		return nil
	}
	var es []netpolicy.Endpoint
	for _, s := range specs {
		es = append(es, endpointOf(s))
	}
	return g.Attach(es...)
}

func endpointOf(s runtime.Spec) netpolicy.Endpoint {
	e := netpolicy.Endpoint{Instance: string(s.Instance), Index: s.Slot.Index, Kind: netpolicy.Running, App: s.App, Address: s.Address.Addr()}
	switch s.Kind {
	case runtime.KindStaging:
		e.Kind = netpolicy.Staging
	case runtime.KindService:
		e.Kind, e.Ports = netpolicy.Service, s.Ports
	}
	return e
}

func (g *networkGuard) detach(id runtime.InstanceID) {
	if g.Guard != nil {
		g.Detach(string(id))
	}
}

// run applies changes and reports refused connections until ctx is done.
func (g *networkGuard) run(ctx context.Context) {
	if g.Guard == nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { g.Run(ctx) })
	if g.refusals == nil {
		return
	}
	if err := g.refusals.Run(ctx, g.Refused); err != nil {
		g.log.Warn("the logs of apps no longer explain refused connections", "err", err)
	}
}

// close stops listening. The rules stay: instances keep running.
func (g *networkGuard) close() error { return g.refusals.Close() }
