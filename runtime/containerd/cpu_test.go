//go:build integration

package containerd

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// busy uses as much CPU time as it gets.
const busy = "exec sh -c 'while :; do :; done'"

// pin lets the processes of an instance run only on the first CPU that this test can use.
func (w *world) pin(id runtime.InstanceID, execs ...string) {
	w.t.Helper()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		w.t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	for _, exec := range execs {
		for _, pid := range w.pids(id, exec) {
			if err := unix.SchedSetaffinity(pid, &one); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// parentWeight returns the CPU weight of all instances in MiB of memory.
func (w *world) parentWeight() int {
	w.t.Helper()
	cg := w.engine.cg
	file, perGiB := filepath.Join(cg.V1["cpu"], cg.Parent, "cpu.shares"), 1024
	if cg.IsV2() {
		file, perGiB = filepath.Join(cg.Unified, cg.Parent, "cpu.weight"), 100
	}
	text, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		w.t.Fatal(err)
	}
	return n * 1024 / perGiB
}

// Instances that want more CPU time than there is get it by their memory limits, and so
// do the processes of one instance. Their parent weighs as much as all of them.
func TestCPUByMemory(t *testing.T) {
	w := newWorld(t)
	w.boot()
	small := w.put(testApp{name: "small", memory: 64, command: busy})
	large := w.put(testApp{name: "large", memory: 256, command: busy, sidecars: []app.Sidecar{sidecar("busy too", busy, 64)}})
	one, two := w.running(small).Instance, w.running(large).Instance
	side := runtime.SidecarExec(0)
	for id, execs := range map[runtime.InstanceID][]string{one: {runtime.MainExec}, two: {runtime.MainExec, side}} {
		for _, exec := range execs {
			w.eventually(exec+" is busy", func() error {
				if used := w.engine.cg.PartUsage(id, exec).CPU; used < 20*time.Millisecond {
					return fmt.Errorf("it used %s", used)
				}
				return nil
			})
		}
		w.pin(id, execs...)
	}
	if got := w.parentWeight(); math.Abs(float64(got-320)) > 15 {
		t.Errorf("the parent weighs as %d MiB, want 320", got)
	}
	used := func() (out [4]time.Duration) {
		cg := w.engine.cg
		return [4]time.Duration{
			cg.Consumption(one).CPU, cg.Consumption(two).CPU, cg.PartUsage(two, runtime.MainExec).CPU, cg.PartUsage(two, side).CPU,
		}
	}
	// Other work on the machine disturbs the shares for a moment: each window of four
	// seconds of CPU time is judged alone, until one is right.
	before := used()
	w.eventually("the CPU time follows the memory limits", func() error {
		last := used()
		var got [4]time.Duration
		for i := range got {
			got[i] = last[i] - before[i]
		}
		if got[0]+got[1] < 4*time.Second {
			return fmt.Errorf("used only %s", got)
		}
		before = last
		instances, processes := got[1].Seconds()/got[0].Seconds(), got[2].Seconds()/got[3].Seconds()
		if math.Abs(instances/4-1) > 0.15 || math.Abs(processes/3-1) > 0.15 {
			return fmt.Errorf("the instances used it in the ratio %.2f, want 4; the processes %.2f, want 3", instances, processes)
		}
		return nil
	})
	w.stop(large)
	w.eventually("the parent weighs less", func() error {
		if got := w.parentWeight(); math.Abs(float64(got-64)) > 5 {
			return fmt.Errorf("it weighs as %d MiB, want 64", got)
		}
		return nil
	})
}

// An instance does not use more CPU time than its limit, and dewd knows how long the
// limit held it back.
func TestCPULimit(t *testing.T) {
	w := newWorld(t)
	w.engine.cfg.Cores = 50 // a machine with other work still reaches it
	w.boot()
	p := w.put(testApp{name: "busy", memory: 1024, command: busy})
	id := w.running(p).Instance
	first := w.engine.cg.PartUsage(id, runtime.MainExec)
	var last runtime.PartUsage
	w.eventually("the limit is reached", func() error {
		last = w.engine.cg.PartUsage(id, runtime.MainExec)
		if n := last.Throttled - first.Throttled; n < 20 {
			return fmt.Errorf("in %d of %d periods", n, last.Periods-first.Periods)
		}
		return nil
	})
	// Each processor can take a slice of the next period.
	allowed := time.Duration(last.Periods-first.Periods+2) * 5 * time.Millisecond
	if used := last.CPU - first.CPU; used > allowed*115/100 {
		t.Errorf("used %s in %d periods, want at most %s", used, last.Periods-first.Periods, allowed)
	}
	if last.Waited <= first.Waited {
		t.Errorf("held back for %s, want longer than %s", last.Waited, first.Waited)
	}
}
