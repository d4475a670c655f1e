package runtime

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

// One step of a deployment, by what is known of the instances.
func TestAdvance(t *testing.T) {
	t.Parallel()
	type numbers struct {
		State  app.DeploymentState
		New    int
		Others []int
	}
	for name, tt := range map[string]struct {
		inFlight, wished int
		from             numbers
		known            map[int]generationCounts // generation 9 is the process's own; the others count from 0
		want             numbers
	}{
		"nothing serves yet":      {1, 3, numbers{app.Deploying, 1, []int{3}}, map[int]generationCounts{9: {starting: 1}, 0: {ready: 3}}, numbers{app.Deploying, 1, []int{3}}},
		"one more":                {1, 3, numbers{app.Deploying, 1, []int{3}}, map[int]generationCounts{9: {ready: 1}, 0: {ready: 3}}, numbers{app.Deploying, 2, []int{2}}},
		"two at a time":           {2, 5, numbers{app.Deploying, 2, []int{5}}, map[int]generationCounts{9: {ready: 2}, 0: {ready: 5}}, numbers{app.Deploying, 4, []int{3}}},
		"one of them crashed":     {2, 5, numbers{app.Deploying, 2, []int{5}}, map[int]generationCounts{9: {ready: 1, failing: 1}, 0: {ready: 5}}, numbers{app.Deploying, 2, []int{4}}},
		"all serve":               {1, 3, numbers{app.Deploying, 3, []int{1}}, map[int]generationCounts{9: {ready: 3}, 0: {ready: 1}}, numbers{app.Deployed, 3, []int{0}}},
		"the last is not ready":   {1, 3, numbers{app.Deploying, 3, []int{1}}, map[int]generationCounts{9: {ready: 2, starting: 1}, 0: {ready: 1}}, numbers{app.Deploying, 3, []int{1}}},
		"none are wished":         {1, 0, numbers{app.Deploying, 0, []int{0}}, nil, numbers{app.Deployed, 0, []int{0}}},
		"failing ones go first":   {1, 3, numbers{app.Deploying, 1, []int{3, 1}}, map[int]generationCounts{9: {starting: 1}, 0: {ready: 3}, 1: {failing: 1}}, numbers{app.Deploying, 1, []int{3, 0}}},
		"the oldest go first":     {1, 3, numbers{app.Deploying, 1, []int{2, 1}}, map[int]generationCounts{9: {ready: 1}, 0: {ready: 2}, 1: {ready: 1}}, numbers{app.Deploying, 2, []int{1, 1}}},
		"back, none serve":        {1, 3, numbers{app.Canceling, 3, []int{2}}, map[int]generationCounts{9: {ready: 1, starting: 2}, 0: {ready: 2}}, numbers{app.Canceling, 3, []int{2}}},
		"back, all serve":         {1, 3, numbers{app.Canceling, 3, []int{2}}, map[int]generationCounts{9: {ready: 3}, 0: {ready: 2}}, numbers{app.Canceled, 3, []int{0}}},
		"back, old ones crash":    {1, 3, numbers{app.Canceling, 3, []int{2}}, map[int]generationCounts{9: {ready: 1, failing: 2}, 0: {ready: 2}}, numbers{app.Canceled, 3, []int{2}}},
		"back, new ones are dead": {1, 3, numbers{app.Canceling, 3, []int{1}}, map[int]generationCounts{9: {starting: 3}, 0: {failing: 1}}, numbers{app.Canceled, 3, []int{1}}},
	} {
		d := app.Deployment{State: tt.from.State, Instances: tt.from.New, Original: tt.wished, Target: tt.wished, Options: app.DeploymentOptions{MaxInFlight: tt.inFlight}}
		for generation, n := range tt.from.Others {
			d.Others = append(d.Others, app.Share{Generation: generation, Instances: n})
		}
		advance(&d, app.Process{Generation: 9, Instances: tt.wished}, situation{known: tt.known})
		got := numbers{State: d.State, New: d.Instances}
		for _, s := range d.Others {
			got.Others = append(got.Others, s.Instances)
		}
		if diff := cmp.Diff(got, tt.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", name, diff)
		}
	}
}
