package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
)

// Restore puts a process and its children back into their leaf, and creates the leaf
// again, if another program has moved the process or removed the leaf. It reports
// whether that was necessary. Memory is the limit of the leaf, as for CreateLeaf.
func (c *Hierarchies) Restore(id runtime.InstanceID, leaf string, memory int64, pid int) (bool, error) {
	if c.isPlaced(id, leaf, pid) {
		return false, nil
	}
	if err := c.CreateLeaf(id, leaf, memory); err != nil {
		return false, err
	}
	for _, pid := range withChildren(pid) {
		if err := c.Place(id, leaf, pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return false, fmt.Errorf("cannot move a process back into its cgroup: %w", err)
		}
	}
	return true, nil
}

// isPlaced reports whether the process is in its leaf in every hierarchy.
func (c *Hierarchies) isPlaced(id runtime.InstanceID, leaf string, pid int) bool {
	for _, m := range c.leafMounts() {
		dir := c.path(m, id, leaf)
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if m == c.V1["cpu"] && errors.Is(err, fs.ErrNotExist) && m != c.V1["memory"] {
			continue // older versions of dewd created no leaf there
		}
		if err != nil || !slices.Contains(strings.Fields(string(b)), strconv.Itoa(pid)) {
			return false
		}
	}
	return true
}

// withChildren returns a process, its children, their children and so on.
func withChildren(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i])) // the pattern is correct
		for _, f := range files {
			b, _ := os.ReadFile(f) // the thread has exited
			for s := range strings.FieldsSeq(string(b)) {
				if child, err := strconv.Atoi(s); err == nil {
					all = append(all, child)
				}
			}
		}
	}
	return all
}
