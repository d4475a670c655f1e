package supervisor

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/policy"
)

// Every move of the loop is legal. Moves that would skip a step are illegal.
func TestMoves(t *testing.T) {
	t.Parallel()
	legal := map[[2]runtime.State]bool{
		{runtime.Down, runtime.Starting}: true, {runtime.Down, runtime.Crashed}: true, {runtime.Down, runtime.Stopping}: true,
		{runtime.Starting, runtime.Running}: true, {runtime.Starting, runtime.Crashed}: true, {runtime.Starting, runtime.Stopping}: true, {runtime.Starting, runtime.Down}: true,
		{runtime.Running, runtime.Crashed}: true, {runtime.Running, runtime.Stopping}: true,
		{runtime.Crashed, runtime.Starting}: true, {runtime.Crashed, runtime.Stopping}: true, {runtime.Crashed, runtime.Down}: true,
		{runtime.Stopping, runtime.Down}: true,
	}
	all := []runtime.State{runtime.Down, runtime.Starting, runtime.Running, runtime.Crashed, runtime.Stopping}
	for _, from := range all {
		for _, to := range all {
			want := from == to || legal[[2]runtime.State{from, to}]
			if got := mayMove(from, to); got != want {
				t.Errorf("mayMove(%s, %s) = %v, want %v", from, to, got, want)
			}
		}
	}
}

// Three immediate restarts, then a delay of 30 s that doubles up to 16 min. The slot is
// given up after 200 crashes.
func TestCrashPolicy(t *testing.T) {
	t.Parallel()
	p := policy.Policy{}.WithDefaults()
	for _, c := range []struct {
		crashes int
		wait    time.Duration
		givenUp bool
	}{
		{1, 0, false},
		{2, 0, false},
		{3, 0, false},
		{4, 30 * time.Second, false},
		{5, time.Minute, false},
		{6, 2 * time.Minute, false},
		{7, 4 * time.Minute, false},
		{8, 8 * time.Minute, false},
		{9, 16 * time.Minute, false},
		{10, 16 * time.Minute, false},
		{199, 16 * time.Minute, false},
		{200, 16 * time.Minute, true},
		{1 << 40, 16 * time.Minute, true},
	} {
		if got := p.Backoff(c.crashes); got != c.wait {
			t.Errorf("backoff(%d) = %v, want %v", c.crashes, got, c.wait)
		}
		if got := p.GivesUp(c.crashes); got != c.givenUp {
			t.Errorf("givesUp(%d) = %v, want %v", c.crashes, got, c.givenUp)
		}
	}
}

// The delay for a container service that does not answer grows from 1 s to 30 s.
func TestRetryGrows(t *testing.T) {
	t.Parallel()
	p := policy.Policy{}.WithDefaults()
	var got []time.Duration
	for n := 1; n <= 7; n++ {
		got = append(got, p.Retry(n)/time.Second)
	}
	if diff := cmp.Diff(got, []time.Duration{1, 2, 4, 8, 16, 30, 30}); diff != "" {
		t.Errorf("retry in seconds (-got +want):\n%s", diff)
	}
}
