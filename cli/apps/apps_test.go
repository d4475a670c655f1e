package apps

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

func TestMemorySum(t *testing.T) {
	n := func(mb int) *int { return &mb }
	for want, sidecars := range map[string][]v3.Sidecar{
		"256M": nil,
		"256M = web 160M + config server 64M + agent 32M":                                   {{Name: "config server", MemoryInMB: n(64)}, {Name: "agent", MemoryInMB: n(32)}},
		"256M (agent has no memory limit of its own)":                                       {{Name: "agent"}},
		"256M = web 192M + config server 64M (agent, b have no memory limits of their own)": {{Name: "agent"}, {Name: "config server", MemoryInMB: n(64)}, {Name: "b", MemoryInMB: n(0)}},
	} {
		if got := memorySum("web", 256, sidecars); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSettled(t *testing.T) {
	at := func(states ...string) []v3.InstanceStats {
		var out []v3.InstanceStats
		for _, s := range states {
			out = append(out, v3.InstanceStats{State: s})
		}
		return out
	}
	for _, c := range []struct {
		stats []v3.InstanceStats
		want  bool
		fails bool
	}{
		{at(), true, false},
		{at("RUNNING", "CRASHED"), true, false},
		{at("STARTING", "CRASHED"), false, false},
		{at("DOWN"), false, false},
		{at("CRASHED", "CRASHED"), false, true},
	} {
		if got, err := settled("web", c.stats); got != c.want || (err != nil) != c.fails {
			t.Errorf("%v: %v, %v", c.stats, got, err)
		}
	}
}

// Only an error that the time limit caused becomes a timeout. A success or a crash in
// time does not.
func TestTimedOut(t *testing.T) {
	late := &console.Failure{Status: console.StatusTimeout, Err: errBroken}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, late)
	defer cancel()
	<-ctx.Done()
	crashed := &NotRunning{process: "web"}
	for _, c := range []struct{ err, want error }{
		{nil, nil},
		{crashed, crashed},
		{context.Cause(ctx), late},
		{fmt.Errorf("cannot lock: %w", context.Cause(ctx)), late},
		{&client.Unreachable{Err: ctx.Err()}, late},
	} {
		if got := console.TimeoutCause(ctx, c.err); !errors.Is(got, c.want) || !errors.Is(c.want, got) {
			t.Errorf("%v became %v, want %v", c.err, got, c.want)
		}
	}
}
