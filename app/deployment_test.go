package app

import "testing"

// The plan of a deployment is its end, or the next pause with one instance more.
func TestDeploymentPlan(t *testing.T) {
	t.Parallel()
	canary := func(step, original, target int, weights ...int) Deployment {
		return Deployment{Strategy: Canary, State: Prepaused, Step: step, Original: original, Target: target, Options: DeploymentOptions{Steps: weights}}
	}
	for name, tt := range map[string]struct {
		d         Deployment
		instances int
		want      Plan
	}{
		"rolling":             {Deployment{State: Deploying}, 3, Plan{3, 3}},
		"none":                {Deployment{State: Deploying}, 0, Plan{0, 0}},
		"canary":              {canary(1, 4, 4), 4, Plan{1, 5}},
		"first step":          {canary(1, 10, 10, 20, 50), 10, Plan{2, 11}},
		"second step":         {canary(2, 10, 10, 20, 50), 10, Plan{5, 11}},
		"rounded":             {canary(1, 3, 3, 50), 3, Plan{2, 4}},
		"at least one":        {canary(1, 2, 2, 1), 2, Plan{1, 3}},
		"all of them":         {canary(1, 4, 4, 100), 4, Plan{4, 4}},
		"fewer than before":   {canary(1, 10, 4, 50), 4, Plan{2, 5}},
		"more than before":    {canary(1, 4, 10, 50), 10, Plan{2, 5}},
		"scaled meanwhile":    {canary(1, 4, 4, 50), 8, Plan{4, 9}},
		"paused":              {Deployment{State: Paused, Step: 1, Original: 4, Target: 4, Options: DeploymentOptions{Steps: []int{50}}}, 4, Plan{2, 5}},
		"after the last step": {Deployment{State: Deploying, Step: 1, Options: DeploymentOptions{Steps: []int{50}}}, 4, Plan{4, 4}},
	} {
		if got := tt.d.Plan(tt.instances); got != tt.want {
			t.Errorf("%s: plan = %+v, want %+v", name, got, tt.want)
		}
	}
}

func FuzzSplitGeneration(f *testing.F) {
	for _, s := range []string{"", "p", "p.1", "p.01", "p.-1", "p.1.2", "p.", ".5", "p.99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, guid string) {
		process, generation, ok := SplitGeneration(guid)
		if ok && GenerationGUID(process, generation) != guid || !ok && process != guid {
			t.Errorf("%q is split into %q, %d, %t", guid, process, generation, ok)
		}
	})
}
