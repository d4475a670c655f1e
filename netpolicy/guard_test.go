package netpolicy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// firewall records the rules that a guard applies.
type firewall struct {
	mu    sync.Mutex
	state State
	rules Ruleset
	times int
	fail  error
	logs  []string
}

func (f *firewall) guard() *Guard {
	return NewGuard(Config{
		State: func() (State, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.state, nil
		},
		Apply: func(r Ruleset) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.times++
			if f.fail == nil {
				f.rules = r
			}
			return f.fail
		},
		Log:    func(e Endpoint, text string) { f.logs = append(f.logs, e.App+": "+text) },
		Logger: slog.New(slog.DiscardHandler),
	})
}

func (f *firewall) set(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

// When Attach returns, the firewall has the rules. A change of the state follows without
// a wait, and a failed one is tried again.
func TestGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &firewall{state: desiredState()}
		g := f.guard()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go g.Run(ctx)
		if err := g.Attach(endpoints()...); err != nil || f.times != 1 || len(f.rules.Peers) != 0 {
			t.Fatalf("%v, %d times: %+v", err, f.times, f.rules)
		}
		f.set(func() {
			f.state.Policies = []Policy{{Source: "front", Destination: "back", Protocol: "tcp", Ports: Ports{8080, 8080}}}
		})
		g.Changed()
		synctest.Wait()
		if len(f.rules.Peers) != 1 {
			t.Errorf("after a policy: %+v", f.rules)
		}
		g.Detach("b0")
		g.Detach("unknown")
		synctest.Wait()
		if len(f.rules.Peers) != 0 || f.times != 3 {
			t.Errorf("without the destination, after %d changes: %+v", f.times, f.rules)
		}
		f.set(func() { f.fail = errors.New("busy") })
		if err := g.Attach(endpoints()...); err == nil {
			t.Error("no error of a firewall that fails")
		}
		g.Changed()
		synctest.Wait()
		f.set(func() { f.fail = nil })
		time.Sleep(retryAfter)
		synctest.Wait()
		if len(f.rules.Peers) != 1 {
			t.Errorf("after a failure: %+v", f.rules)
		}
	})
}

// A refused connection appears in the log of the app that tried it, once.
func TestRefused(t *testing.T) {
	t.Parallel()
	f := &firewall{state: desiredState()}
	g := f.guard()
	if err := g.Attach(endpoints()...); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		g.Refused(Refusal{Reason: NoPolicy, From: addr("10.0.0.2"), To: addr("10.0.0.4"), Protocol: TCP, Port: 8080})
	}
	g.Refused(Refusal{Reason: NoPolicy, From: addr("10.9.9.9"), To: addr("10.0.0.4"), Protocol: TCP, Port: 8080}) // an unknown source
	if len(f.logs) != 1 || f.logs[0][:len("front: Connection refused: app front to app back")] != "front: Connection refused: app front to app back" {
		t.Errorf("lines %q", f.logs)
	}
}
