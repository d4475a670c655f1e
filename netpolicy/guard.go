package netpolicy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Config is the configuration of a Guard.
type Config struct {
	State  func() (State, error)         // reads the desired state
	Apply  func(Ruleset) error           // replaces the rules of the firewall at once
	Log    func(e Endpoint, text string) // writes to the log of an app
	Logger *slog.Logger
}

// Guard keeps the rules of the firewall up to date: for the containers that run, and
// after changes of the desired state.
type Guard struct {
	cfg     Config
	changed chan struct{}
	refused *notices

	mu        sync.Mutex // guards the fields below
	endpoints map[string]Endpoint
	want      int    // counts changes
	state     *State // nil: it has changed and must be read again

	applying sync.Mutex // held while rules are applied; guards applied
	applied  int        // value of want that the firewall has
}

// NewGuard returns a guard without containers.
func NewGuard(cfg Config) *Guard {
	return &Guard{cfg: cfg, changed: make(chan struct{}, 1), refused: newNotices(), endpoints: map[string]Endpoint{}}
}

// Attach adds containers, and returns when the firewall has their rules. Calls at the
// same time share one change of the firewall.
func (g *Guard) Attach(es ...Endpoint) error {
	g.mu.Lock()
	for _, e := range es {
		g.endpoints[e.Instance] = e
		if _, known := g.knownApp(e.App); !known {
			g.state = nil // the app is newer
		}
	}
	g.want++
	g.mu.Unlock()
	if err := g.apply(); err != nil {
		return fmt.Errorf("cannot set the network rules: %w", err)
	}
	return nil
}

// knownApp looks up an app in the state. The caller holds mu.
func (g *Guard) knownApp(guid string) (App, bool) {
	if g.state == nil {
		return App{}, false
	}
	a, ok := g.state.Apps[guid]
	return a, ok
}

// Detach removes a container. The firewall follows soon after.
func (g *Guard) Detach(instance string) {
	g.mu.Lock()
	_, known := g.endpoints[instance]
	delete(g.endpoints, instance)
	if known {
		g.want++
	}
	g.mu.Unlock()
	if known {
		g.wake()
	}
}

// Changed reports a change of the desired state. It never waits, so listeners of the
// store can call it.
func (g *Guard) Changed() {
	g.mu.Lock()
	g.state = nil
	g.want++
	g.mu.Unlock()
	g.wake()
}

func (g *Guard) wake() {
	select {
	case g.changed <- struct{}{}:
	default: // a change is already waiting
	}
}

// retryAfter is the time between two tries to apply a change.
const retryAfter = time.Second

// Run applies changes until ctx is done.
func (g *Guard) Run(ctx context.Context) {
	var retry <-chan time.Time
	for {
		select {
		case <-g.changed:
		case <-retry:
		case <-ctx.Done():
			return
		}
		retry = nil
		if err := g.apply(); err != nil {
			g.cfg.Logger.Warn("cannot change the network rules; dewd tries again", "err", err)
			retry = time.After(retryAfter)
		}
	}
}

// apply brings the firewall up to date. It does nothing if another call did that.
func (g *Guard) apply() error {
	g.mu.Lock()
	mine := g.want
	g.mu.Unlock()
	g.applying.Lock()
	defer g.applying.Unlock()
	if g.applied >= mine {
		return nil
	}
	g.mu.Lock()
	now, state, endpoints := g.want, g.state, slices.Collect(maps.Values(g.endpoints))
	g.mu.Unlock()
	if state == nil {
		read, err := g.cfg.State()
		if err != nil {
			return err
		}
		state = &read
	}
	if err := g.cfg.Apply(Rules(*state, endpoints)); err != nil {
		return err
	}
	g.applied = now
	g.mu.Lock()
	if g.want == now { // otherwise it can have changed since it was read
		g.state = state
	}
	g.mu.Unlock()
	return nil
}

// Refused explains a refused connection in the log of the app that tried it.
func (g *Guard) Refused(r Refusal) {
	source := g.at(r.From)
	if source == nil || !g.refused.due(*source, r, time.Now()) {
		return
	}
	s, err := g.cfg.State() // names can have changed since the rules were applied
	if err != nil {
		g.cfg.Logger.Warn("cannot explain a refused connection", "app", source.App, "err", err)
		return
	}
	g.cfg.Log(*source, Explain(s, r, *source, g.at(r.To)))
}

// at returns the container with an address, or nil.
func (g *Guard) at(a netip.Addr) *Endpoint {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.endpoints {
		if e.Address == a {
			return &e
		}
	}
	return nil
}
