package apps

import (
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// The state of an instance from before the last restart does not count for the new one.
// A client that waits must not see the old one's running or crashed state.
func TestStatsAfterRestart(t *testing.T) {
	p := app.Process{Current: []string{"new"}}
	for _, tt := range []struct {
		version string
		state   runtime.State
		want    runtime.State
		details string
	}{
		{"new", runtime.Running, runtime.Running, "why"},
		{"new", runtime.Crashed, runtime.Crashed, "why"},
		{"", runtime.Down, runtime.Down, "why"},
		{"old", runtime.Running, runtime.Stopping, "why"},
		{"old", runtime.Stopping, runtime.Stopping, "why"},
		{"old", runtime.Starting, runtime.Starting, "why"},
		{"old", runtime.Crashed, runtime.Starting, ""},
		{"old", runtime.Down, runtime.Starting, ""},
	} {
		got := seenSlot(p, runtime.Status{Version: tt.version, State: tt.state, Details: "why"}, time.Now())
		if got.State != tt.want || got.Details != tt.details {
			t.Errorf("shown(%s, %s) = %s %q, want %s %q", tt.version, tt.state, got.State, got.Details, tt.want, tt.details)
		}
	}
}

// Details say why an instance does not run, or since when its health or readiness is
// unknown.
func TestInstanceDetails(t *testing.T) {
	at := time.Date(2026, 11, 16, 8, 0, 0, 0, time.UTC)
	lost := runtime.Unknown{Since: at, Reason: "cannot run the port check: no turn"}
	for _, tt := range []struct {
		st   runtime.Status
		want string
	}{
		{runtime.Status{State: runtime.Running, Details: "unknown: containerd does not answer", HealthUnknown: lost}, "unknown: containerd does not answer"},
		{runtime.Status{State: runtime.Running, HealthUnknown: lost}, "health unknown since 2026-11-16T08:00:00Z: cannot run the port check: no turn"},
		{runtime.Status{State: runtime.Starting, HealthUnknown: lost}, "health unknown since 2026-11-16T08:00:00Z: cannot run the port check: no turn"},
		{runtime.Status{State: runtime.Running, ReadinessUnknown: lost}, "readiness unknown since 2026-11-16T08:00:00Z: cannot run the port check: no turn"},
		{runtime.Status{State: runtime.Crashed, Details: "why", HealthUnknown: lost}, "why"},
		{runtime.Status{State: runtime.Stopping, HealthUnknown: lost}, ""},
	} {
		if got := detailsOf(tt.st); got != tt.want {
			t.Errorf("details of %+v = %q, want %q", tt.st, got, tt.want)
		}
	}
}

func TestReadSignal(t *testing.T) {
	for in, want := range map[string]syscall.Signal{"KILL": 9, "SIGQUIT": 3, "hup": 1, "64": 64, "": 9} {
		if got, err := readSignal(in); err != nil || got != want {
			t.Errorf("readSignal(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"65", "-9", "SIG", "SIGSIGKILL", "KILL "} {
		if got, err := readSignal(in); err == nil {
			t.Errorf("readSignal(%q) = %d, want an error", in, got)
		}
	}
}

func TestPreferredWait(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 0, "wait=1": time.Second, "respond-async, Wait = 2": 2 * time.Second, "wait=3600": longestWait,
		"wait": 0, "wait=": 0, "wait=-1": 0, "wait=1s": 0, "waiting=1": 0, "return=minimal": 0,
	} {
		if got := preferredWait(header); got != want {
			t.Errorf("Prefer: %q: %v, want %v", header, got, want)
		}
	}
}

func TestSettled(t *testing.T) {
	in := func(states ...runtime.Status) (all []instanceState) {
		for _, st := range states {
			all = append(all, instanceState{status: st})
		}
		return all
	}
	starting, running, crashed := runtime.Status{State: runtime.Starting}, runtime.Status{State: runtime.Running}, runtime.Status{State: runtime.Crashed}
	for name, tt := range map[string]struct {
		all  []instanceState
		want bool
	}{
		"no instances":    {in(), true},
		"one starts":      {in(starting), false},
		"the old stops":   {in(runtime.Status{State: runtime.Stopping}, starting), false},
		"one runs":        {in(starting, running), true},
		"one has crashed": {in(crashed, starting), true},
		"one has details": {in(runtime.Status{State: runtime.Down, Details: "no addresses are left"}), true},
	} {
		if got := settled(tt.all); got != tt.want {
			t.Errorf("%s: settled = %v, want %v", name, got, tt.want)
		}
	}
}
