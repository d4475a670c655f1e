package cgroup

import (
	"os"
	"strconv"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// Restore moves a process back only if it is not in its leaf in some hierarchy.
func TestRestoreMovesBack(t *testing.T) {
	t.Parallel()
	self := testkit.Sleeper(t).Process.Pid // it has no children
	for name, c := range map[string]*Hierarchies{"v1": fakeV1(t, false), "hybrid": fakeV1(t, true), "v2": fakeV2(t)} {
		for _, m := range c.leafMounts() {
			testkit.Touch(t, c.path(m, someInstance, "main"), "cgroup.procs", "memory.limit_in_bytes", "memory.max")
		}
		last := c.leafMounts()[len(c.leafMounts())-1]
		for _, want := range []bool{true, false} {
			if restored, err := c.Restore(someInstance, "main", 1<<20, self); restored != want || err != nil {
				t.Errorf("%s: Restore = %v, %v, want %v", name, restored, err, want)
			}
			checkFiles(t, c.path(last, someInstance, "main"), map[string]string{"cgroup.procs": strconv.Itoa(self)})
		}
		testkit.WriteFile(t, c.path(last, someInstance, "main")+"/cgroup.procs", "1\n")
		if restored, err := c.Restore(someInstance, "main", 1<<20, self); !restored || err != nil {
			t.Errorf("%s: Restore after a move in one hierarchy = %v, %v", name, restored, err)
		}
	}
}

// The children of a process belong to it.
func TestWithChildren(t *testing.T) {
	t.Parallel()
	child := testkit.Sleeper(t)
	if got := withChildren(os.Getpid()); len(got) < 2 || got[0] != os.Getpid() {
		t.Errorf("processes = %v, want this one and %d", got, child.Process.Pid)
	}
}
