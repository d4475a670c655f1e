package check

import (
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/fire/load"
)

func TestRecordOf(t *testing.T) {
	t.Parallel()
	crash := func(cause, sidecar string, complete bool) v3.Crash {
		return v3.Crash{First: v3.CrashExit{Cause: cause, Sidecar: sidecar}, Complete: complete}
	}
	sidecar := load.Ending{Cause: []string{"exited"}, Sidecar: true}
	for name, tt := range map[string]struct {
		ending load.Ending
		found  []v3.Crash
		ok     bool
	}{
		"right":         {sidecar, []v3.Crash{crash("exited", "companion", true)}, true},
		"none":          {sidecar, nil, false},
		"none, allowed": {load.Ending{Maybe: true}, nil, true},
		"two":           {sidecar, []v3.Crash{crash("exited", "companion", true), crash("exited", "companion", true)}, false},
		"wrong process": {sidecar, []v3.Crash{crash("exited", "", true)}, false},
		"wrong cause":   {sidecar, []v3.Crash{crash("unhealthy", "companion", true)}, false},
		"not complete":  {sidecar, []v3.Crash{crash("exited", "companion", false)}, false},
		"any process":   {load.Ending{Cause: []string{"init_exited"}, AnyProcess: true}, []v3.Crash{crash("init_exited", "", true)}, true},
	} {
		if err := recordOf("i", tt.ending, tt.found); (err == nil) != tt.ok {
			t.Errorf("%s: error = %v, want success %t", name, err, tt.ok)
		}
	}
}
