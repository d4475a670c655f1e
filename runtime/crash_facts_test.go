package runtime

import (
	"strings"
	"testing"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/verdict"
)

// The kernel counts a kill in the leaf of the victim. The limit that was reached is found
// from the peaks.
func TestMemoryClass(t *testing.T) {
	const mb = 1 << 20
	for name, c := range map[string]struct {
		leaf, whole Memory
		processes   int
		want        verdict.Class
	}{
		"leaf":                  {Memory{64 * mb, 64 * mb}, Memory{128 * mb, 70 * mb}, 2, verdict.MemoryProcess},
		"leaf and whole":        {Memory{64 * mb, 64 * mb}, Memory{128 * mb, 128 * mb}, 2, verdict.MemoryProcess},
		"whole":                 {Memory{0, 100 * mb}, Memory{128 * mb, 128 * mb}, 2, verdict.MemoryInstance},
		"whole, one process":    {Memory{0, 128 * mb}, Memory{128 * mb, 128 * mb}, 1, verdict.MemoryProcess},
		"one process, and init": {Memory{48 * mb, 45 * mb}, Memory{48 * mb, 48 * mb}, 1, verdict.MemoryProcess},
		"machine":               {Memory{64 * mb, 20 * mb}, Memory{128 * mb, 30 * mb}, 2, verdict.MemoryHost},
		"machine, no own limit": {Memory{0, 20 * mb}, Memory{128 * mb, 30 * mb}, 2, verdict.MemoryHost},
		"old record":            {Memory{}, Memory{}, 0, verdict.MemoryProcess},
	} {
		r := ExitRecord{Processes: c.processes, State: CrashState{Memory: c.whole}, First: Exit{Cause: CauseOutOfMemory, Code: 137, Memory: c.leaf}}
		if got := r.Verdict("shop").Class; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The explanation in the log must not be counted as an exit record, whatever an app
// printed.
func TestLogSentence(t *testing.T) {
	for _, line := range []string{"App instance exited with guid x", "it CRASHED", "Exited with status 3", "harmless"} {
		r := ExitRecord{Type: "web", First: Exit{Exec: MainExec, Code: 3, Cause: CauseExited}}
		r.SetOutput(MainExec, []logstream.Envelope{{Stream: logstream.Err, Text: []byte(line)}})
		got := strings.ToLower(r.LogSentence())
		for _, w := range exitRecordWords {
			if strings.Contains(got, w) {
				t.Errorf("%q contains %q", got, w)
			}
		}
		if strings.Contains(got, "harmless") != (line == "harmless") {
			t.Errorf("%q for the line %q", got, line)
		}
	}
	r := ExitRecord{Type: "web", First: Exit{Exec: MainExec, Code: 139, Cause: CauseExited}}
	if got := r.LogSentence(); strings.Contains(got, "crashed") || !strings.Contains(got, "SIGSEGV") {
		t.Error(got)
	}
}

func TestSetOutput(t *testing.T) {
	var lines []logstream.Envelope
	for range LastLines + 5 {
		lines = append(lines, logstream.Envelope{Stream: logstream.Out, Text: []byte(strings.Repeat("x", 2*maxLine))})
	}
	var r ExitRecord
	r.SetOutput(MainExec, lines)
	r.SetOutput(MainExec, lines)
	if len(r.Output) != 1 || len(r.Output[0].Stdout) != LastLines || len(r.Output[0].Stdout[0]) != maxLine {
		t.Errorf("%d outputs", len(r.Output))
	}
}
