package droplet

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
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

// While the store cannot be written, Run does not end: it stores the result of a build as
// soon as the store works again.
func TestBuildOutlivesAFailingStore(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		failures := 5
		y.builds.Record(func(_ *store.Tx, w Build, d *Droplet) error {
			if w.State != BuildStaging || d != nil {
				if failures--; failures >= 0 {
					return errors.New("no space left on device")
				}
			}
			return nil
		})
		y.run()
		k := y.push("a", member{name: "server", text: "#!"})
		b := y.build(BuildRequest{Package: k.GUID})
		time.Sleep(time.Minute)
		if b = testkit.Must(y.builds.Get(b.GUID))(t); b.State != BuildFailed || !strings.Contains(b.Error, "no space left on device") {
			t.Errorf("build = %+v, want it to fail because of the store", b)
		}
		if failures >= 0 {
			t.Errorf("%d failures did not happen", failures+1)
		}
	})
}
