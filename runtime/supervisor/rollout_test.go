package supervisor_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime/rollout"
)

// Each case is one step of a deployment, for the given condition of the instances.
func TestAdvance(t *testing.T) {
	t.Parallel()
	type numbers struct {
		State  app.DeploymentState
		New    int
		Others []int
	}
	for name, tt := range map[string]struct {
		inFlight, desired int
		from              numbers
		known             map[int]rollout.Counts // generation 9 is the process's own; the others count from 0
		want              numbers
	}{
		"nothing serves yet":      {1, 3, numbers{app.Deploying, 1, []int{3}}, map[int]rollout.Counts{9: {Starting: 1}, 0: {Ready: 3}}, numbers{app.Deploying, 1, []int{3}}},
		"one more":                {1, 3, numbers{app.Deploying, 1, []int{3}}, map[int]rollout.Counts{9: {Ready: 1}, 0: {Ready: 3}}, numbers{app.Deploying, 2, []int{2}}},
		"two at a time":           {2, 5, numbers{app.Deploying, 2, []int{5}}, map[int]rollout.Counts{9: {Ready: 2}, 0: {Ready: 5}}, numbers{app.Deploying, 4, []int{3}}},
		"one of them crashed":     {2, 5, numbers{app.Deploying, 2, []int{5}}, map[int]rollout.Counts{9: {Ready: 1, Failing: 1}, 0: {Ready: 5}}, numbers{app.Deploying, 2, []int{4}}},
		"all serve":               {1, 3, numbers{app.Deploying, 3, []int{1}}, map[int]rollout.Counts{9: {Ready: 3}, 0: {Ready: 1}}, numbers{app.Deployed, 3, []int{0}}},
		"the last is not ready":   {1, 3, numbers{app.Deploying, 3, []int{1}}, map[int]rollout.Counts{9: {Ready: 2, Starting: 1}, 0: {Ready: 1}}, numbers{app.Deploying, 3, []int{1}}},
		"none are desired":        {1, 0, numbers{app.Deploying, 0, []int{0}}, nil, numbers{app.Deployed, 0, []int{0}}},
		"failing ones go first":   {1, 3, numbers{app.Deploying, 1, []int{3, 1}}, map[int]rollout.Counts{9: {Starting: 1}, 0: {Ready: 3}, 1: {Failing: 1}}, numbers{app.Deploying, 1, []int{3, 0}}},
		"the oldest go first":     {1, 3, numbers{app.Deploying, 1, []int{2, 1}}, map[int]rollout.Counts{9: {Ready: 1}, 0: {Ready: 2}, 1: {Ready: 1}}, numbers{app.Deploying, 2, []int{1, 1}}},
		"back, none serve":        {1, 3, numbers{app.Canceling, 3, []int{2}}, map[int]rollout.Counts{9: {Ready: 1, Starting: 2}, 0: {Ready: 2}}, numbers{app.Canceling, 3, []int{2}}},
		"back, all serve":         {1, 3, numbers{app.Canceling, 3, []int{2}}, map[int]rollout.Counts{9: {Ready: 3}, 0: {Ready: 2}}, numbers{app.Canceled, 3, []int{0}}},
		"back, old ones crash":    {1, 3, numbers{app.Canceling, 3, []int{2}}, map[int]rollout.Counts{9: {Ready: 1, Failing: 2}, 0: {Ready: 2}}, numbers{app.Canceled, 3, []int{2}}},
		"back, new ones are dead": {1, 3, numbers{app.Canceling, 3, []int{1}}, map[int]rollout.Counts{9: {Starting: 3}, 0: {Failing: 1}}, numbers{app.Canceled, 3, []int{1}}},
	} {
		d := app.Deployment{State: tt.from.State, Instances: tt.from.New, Original: tt.desired, Target: tt.desired, Options: app.DeploymentOptions{MaxInFlight: tt.inFlight}}
		for generation, n := range tt.from.Others {
			d.Others = append(d.Others, app.Share{Generation: generation, Instances: n})
		}
		rollout.Advance(&d, app.Process{Generation: 9, Instances: tt.desired}, rollout.Situation{Known: tt.known})
		got := numbers{State: d.State, New: d.Instances}
		for _, s := range d.Others {
			got.Others = append(got.Others, s.Instances)
		}
		if diff := cmp.Diff(got, tt.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", name, diff)
		}
	}
}
