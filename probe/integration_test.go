//go:build integration

package probe

import (
	"os"
	"os/exec"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// Every probe sees what must happen. `make probes` sets DEW_PROBES_UPDATE, and then the
// test writes the table into docs/security.md.
func TestProbes(t *testing.T) {
	testkit.NeedRoot(t)
	w := newTarget(t, programs(t))
	var probes []Probe
	for _, a := range attacks() {
		t.Run(a.Group+"/"+a.Name, func(t *testing.T) {
			seen, err := a.run(w)
			if err != nil {
				t.Errorf("%v\nwant: %s\nseen: %s", err, a.Want, seen)
			}
			a.Seen = seen
			probes = append(probes, a.Probe)
		})
	}
	if os.Getenv("DEW_PROBES_UPDATE") == "" || t.Failed() {
		return
	}
	page, err := Replace(string(testkit.Must(os.ReadFile(pageFile))(t)), probes)
	if err == nil {
		err = os.WriteFile(pageFile, []byte(page), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// programs builds the programs of the test, or returns the folder DEW_TEST_BIN.
func programs(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("DEW_TEST_BIN"); dir != "" {
		return dir
	}
	dir := t.TempDir()
	others := exec.Command("go", "build", "-trimpath", "-o", dir+"/", "../cmd/dew", "../cmd/dew-init", "../cmd/dew-sftp", "./testdata/attacker")
	others.Env = append(os.Environ(), "CGO_ENABLED=0")
	dewd := exec.Command("go", "build", "-race", "-trimpath", "-o", dir+"/", "../cmd/dewd")
	for _, c := range []*exec.Cmd{others, dewd} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c, err, out)
		}
	}
	return dir
}
