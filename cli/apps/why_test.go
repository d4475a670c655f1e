package apps

import (
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// The cause of a crash at the start decides the exit status and the advice.
func TestExplainCrash(t *testing.T) {
	for name, c := range map[string]struct {
		crash  v3.Crash
		status int
		err    string
		todo   string
	}{
		"failed": {
			v3.Crash{Description: "APP/PROC/WEB: Exited with status 1", First: v3.CrashExit{Code: 1}},
			4, "shop crashed while starting: APP/PROC/WEB: Exited with status 1", "dew crashes shop",
		},
		"status 0":   {v3.Crash{First: v3.CrashExit{Code: 0}}, 4, "crashed while starting", "Exit status 0 is a crash as well"},
		"no command": {v3.Crash{First: v3.CrashExit{Code: 127, Cause: "start_failed", Detail: "the command was not found"}}, 4, "crashed", "The command was not found. Check command"},
		"no memory":  {v3.Crash{First: v3.CrashExit{Code: 137, OutOfMemory: true, MemoryLimit: 64 << 20}}, 7, "crashed", "-m, or memory in the manifest"},
		"sidecar":    {v3.Crash{First: v3.CrashExit{Code: 137, OutOfMemory: true, MemoryLimit: 64 << 20, Sidecar: "cache"}}, 7, "crashed", "more than 64.0M (memory under sidecars"},
		"undeclared": {v3.Crash{First: v3.CrashExit{Code: 137, OutOfMemory: true, Sidecar: "cache"}}, 7, "crashed", "-m, or memory in the manifest"},
		"wrong answer": {
			v3.Crash{Description: "APP/PROC/WEB: Instance never healthy after 5s: http check failed: GET /health answered 404, want 200", First: v3.CrashExit{Code: -1, Cause: causeStartTimeout}},
			5, "GET /health answered 404", "health-check-http-endpoint in the manifest (or --endpoint) to a path that answers 200",
		},
		"not healthy": {v3.Crash{First: v3.CrashExit{Code: -1, Cause: causeStartTimeout, Detail: "never healthy after 3s"}}, 5, "did not become healthy", "listen on 0.0.0.0:$PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			f := explainCrash("shop", c.crash)
			if f.Status != c.status || !strings.Contains(f.Error(), c.err) || !strings.Contains(f.Advice, c.todo) {
				t.Errorf("status %d, %q, %q; want %d, %q, %q", f.Status, f.Error(), f.Advice, c.status, c.err, c.todo)
			}
		})
	}
}
