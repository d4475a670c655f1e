//go:build integration

package probe

import (
	"os"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// Every probe sees what must happen. `make probes` sets DEW_PROBES_UPDATE, and then the
// test writes the table into docs/security.md.
func TestProbes(t *testing.T) {
	testkit.NeedRoot(t)
	w := newTarget(t, testkit.Programs(t, true, "./testdata/attacker"))
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
