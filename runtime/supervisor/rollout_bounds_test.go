package supervisor_test

import (
	"math"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime/rollout"
)

// A continued canary makes progress for every value of MaxInFlight.
func TestAnyNumberInFlight(t *testing.T) {
	t.Parallel()
	d := app.Deployment{
		State: app.Deploying, Instances: 1, Original: 3, Target: 3,
		Options: app.DeploymentOptions{MaxInFlight: math.MaxInt}, Others: []app.Share{{Instances: 3}},
	}
	rollout.Advance(&d, app.Process{Generation: 1, Instances: 3}, rollout.Situation{Known: map[int]rollout.Counts{1: {Ready: 1}, 0: {Ready: 3}}})
	if d.Instances != 3 {
		t.Errorf("%d new instances are desired, want all 3", d.Instances)
	}
}
