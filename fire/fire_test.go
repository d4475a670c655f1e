//go:build integration

package fire_test

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/fire"
	"github.com/dewrun/dew/fire/faults"
	"github.com/dewrun/dew/fire/page"
	"github.com/dewrun/dew/testkit"
)

// bound limits the time from the end of a fault until all invariants hold.
const bound = 90 * time.Second

// Each fault once. dewd has the race detector. `make fire` sets DEW_FIRE_FAULTS, and then
// the test runs the schedules of DEW_FIRE_SEEDS seeds from DEW_FIRE_SEED on. Then dewd has
// the race detector only with DEW_FIRE_RACE=1, because it needs ten times the processor
// time for each line with it.
func TestFire(t *testing.T) {
	testkit.NeedRoot(t)
	first, faults := uint64(number(t, "DEW_FIRE_SEED", 1)), number(t, "DEW_FIRE_FAULTS", 0)
	enough, cancel := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	bin := testkit.Programs(t, faults == 0 || os.Getenv("DEW_FIRE_RACE") == "1", "./testdata/counter")
	for seed := first; seed < first+uint64(number(t, "DEW_FIRE_SEEDS", 1)); seed++ {
		if enough.Err() == nil && !isDone(t, seed, faults) {
			fireOnce(t, enough.Done(), bin, seed, faults)
		}
	}
}

// fireOnce runs one seed in a world of its own. When enough is closed, it injects no other
// fault, and ends with the checks.
func fireOnce(t *testing.T, enough <-chan struct{}, bin string, seed uint64, n int) {
	t.Helper()
	rows := selected(t, os.Getenv("DEW_FIRE_ONLY"))
	steps, apps := fire.Once(seed, rows), number(t, "DEW_FIRE_APPS", 6)
	lines := number(t, "DEW_FIRE_LINES", 10)
	if n > 0 {
		steps = fire.Schedule(seed, n, rows)
	}
	dir := testkit.ShortDir(t)
	report, err := fire.Run(t.Context(), fire.Options{Seed: seed, Steps: steps, Apps: apps, Lines: lines, Limit: time.Duration(number(t, "DEW_FIRE_MINUTES", 0)) * time.Minute, Dir: dir, Bin: bin, Bound: bound, Out: output{t}, Enough: enough})
	t.Logf("seed %d: %d faults in %.0f s, slowest recovery %.1f s, checked %v", seed, report.Total(), report.Seconds, report.Slowest, report.Checked)
	if err != nil {
		keep(t, filepath.Join(dir, "dewd.log"), fmt.Sprintf("dew-fire-%d.log", seed), "the output of dewd")
		if n > 0 {
			keep(t, filepath.Join(dir, "volume.img"), fmt.Sprintf("dew-fire-%d.img", seed), "the file system of the root")
		}
		t.Errorf("%v\nreproduce with: make fire SEED=%d FAULTS=%d APPS=%d LINES=%d", err, seed, n, apps, lines)
	}
	if n > 0 && os.Getenv("DEW_FIRE_ONLY") == "" {
		store(t, report)
	}
}

// The results of `make fire`, and the page that shows them.
const results, pageFile, plotFile = "results.json", "../docs/reliability.md", "../docs/reliability.svg"

// isDone reports whether a seed was run on this commit before.
func isDone(t *testing.T, seed uint64, faults int) bool {
	t.Helper()
	return faults > 0 && os.Getenv("DEW_FIRE_ONLY") == "" && page.Done(testkit.Must(page.Load(results))(t), os.Getenv("DEW_FIRE_COMMIT"), seed, faults)
}

// store adds the report to the page.
func store(t *testing.T, r page.Report) {
	t.Helper()
	r.Commit = os.Getenv("DEW_FIRE_COMMIT")
	if err := page.Write(pageFile, plotFile, testkit.Must(page.Store(results, r))(t)); err != nil {
		t.Error(err)
	}
}

// selected returns the faults with names that are separated by semicolons, or all faults.
func selected(t *testing.T, only string) []faults.Fault {
	t.Helper()
	if only == "" {
		return faults.All()
	}
	var rows []faults.Fault
	for name := range strings.SplitSeq(only, ";") {
		rows = append(rows, testkit.Must(faults.ByName(strings.TrimSpace(name)))(t))
	}
	return rows
}

// output writes to the log of a test at once, so that a long run shows how far it is.
type output struct{ t *testing.T }

func (l output) Write(b []byte) (int, error) {
	l.t.Helper()
	fmt.Fprintf(os.Stderr, "%s", b)
	return len(b), nil
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
	if err != nil {
		t.Fatalf("%s is not a number: %v", name, err)
	}
	return n
}

// keep moves a file of a failed run to a folder that outlives the test.
func keep(t *testing.T, file, name, what string) {
	t.Helper()
	kept := filepath.Join(os.TempDir(), name)
	if err := os.Rename(file, kept); err != nil {
		t.Log(err)
		return
	}
	t.Logf("%s is in %s", what, kept)
}
