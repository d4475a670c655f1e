package registry

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

func TestRevisionReasons(t *testing.T) {
	t.Parallel()
	old := app.Revision{Droplet: "d", Env: map[string]string{"A": "1"}, Commands: map[string]string{"web": "", "worker": "w", "clock": "c"}, Sidecars: []app.Sidecar{{Name: "s", ProcessTypes: []string{"web", "worker"}}}}
	same := app.Revision{Droplet: "d", Env: map[string]string{"A": "1"}, Commands: map[string]string{"web": "", "worker": "w", "clock": "c"}, Sidecars: []app.Sidecar{{GUID: "g", Name: "s", ProcessTypes: []string{"worker", "web"}}}}
	if got := revisionReasons(old, same); len(got) != 0 {
		t.Errorf("reasons = %v, want none", got)
	}
	next := app.Revision{Droplet: "e", Commands: map[string]string{"web": "x", "worker": "", "cron": ""}}
	want := []string{
		"Custom start command added for 'web' process.", "Custom start command removed for 'worker' process.",
		"New droplet deployed.", "New environment variables deployed.", "New process type 'cron' added.",
		"Process type 'clock' removed.", "Sidecars updated.",
	}
	if diff := cmp.Diff(revisionReasons(old, next), want); diff != "" {
		t.Errorf("reasons (-got +want):\n%s", diff)
	}
}
