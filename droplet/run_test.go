package droplet

import (
	"strings"
	"testing"
	"testing/synctest"
)

// A build that finishes while the queue looks for the next one is not staged again.
func TestEachBuildIsStagedOnce(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		const all = 20
		k := y.push("a", member{name: "x", text: "x"})
		for range all {
			y.create(BuildRequest{Package: k.GUID})
		}
		y.run()
		synctest.Wait()
		begun := 0
		for _, line := range y.loggedLines() {
			if strings.Contains(line, "Staging package") {
				begun++
			}
		}
		if begun != all {
			t.Errorf("%d times a build was staged, want %d", begun, all)
		}
	})
}
