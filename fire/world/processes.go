package world

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/shim"
	"github.com/dewrun/dew/runtime/process"
)

// The leaves of an instance's cgroup.
const (
	InitLeaf    = "init"
	MainLeaf    = "main"
	SidecarLeaf = "sidecar-0"
)

// Slot names an instance that should run.
type Slot struct {
	App   string
	Index int
}

func (s Slot) String() string { return fmt.Sprintf("%s/%d", s.App, s.Index) }

// Instance is an instance that has a cgroup now.
type Instance struct {
	ID     string
	Slot   Slot // empty while its main process has not started
	Leaves map[string][]int
}

// Instances returns the instances on this machine, by id. It reads the cgroups, so it
// also finds instances that dewd has forgotten.
func (w *World) Instances() map[string]Instance {
	found := map[string]Instance{}
	for _, base := range w.cgroupParents() {
		files, _ := filepath.Glob(filepath.Join(base, "*", "*", "cgroup.procs")) // the pattern is correct
		for _, f := range files {
			leaf := filepath.Dir(f)
			id := filepath.Base(filepath.Dir(leaf))
			if _, known := found[id]; !known {
				found[id] = Instance{ID: id, Leaves: map[string][]int{}}
			}
			found[id].Leaves[filepath.Base(leaf)] = pidsIn(f)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slots := map[string]Slot{} // without the instances that are gone
	for id, in := range found {
		if in.Slot = w.slots[id]; in.Slot.App == "" && started(w, id) {
			in.Slot = slotOf(in.Leaves[MainLeaf])
		}
		if in.Slot.App != "" {
			slots[id] = in.Slot
		}
		if len(in.Leaves[MainLeaf]) == 0 {
			in.Slot = Slot{}
		}
		found[id] = in
	}
	w.slots = slots
	return found
}

// started reports whether the processes of an instance can run. Those of a spare wait.
func started(w *World, id string) bool {
	_, err := os.Stat(filepath.Join(w.Run, "instances", id, "started"))
	return err == nil
}

// cgroupParents returns the folders that have the cgroups of the instances.
func (w *World) cgroupParents() []string {
	return []string{filepath.Join("/sys/fs/cgroup/memory", w.Names.Cgroup), filepath.Join("/sys/fs/cgroup", w.Names.Cgroup)}
}

func pidsIn(file string) []int {
	b, _ := os.ReadFile(file) // the group is gone
	var pids []int
	for s := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(s); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// slotOf reads the slot from the environment of a main process.
func slotOf(pids []int) Slot {
	for _, pid := range pids {
		b, err := os.ReadFile(process.File(pid, "environ"))
		if err != nil {
			continue
		}
		s := Slot{Index: -1}
		for kv := range bytes.SplitSeq(b, []byte{0}) {
			if v, ok := bytes.CutPrefix(kv, []byte("CF_INSTANCE_INDEX=")); ok {
				s.Index, _ = strconv.Atoi(string(v)) // dewd wrote a number
			}
			if v, ok := bytes.CutPrefix(kv, []byte("VCAP_APPLICATION=")); ok {
				var a struct {
					Name string `json:"application_name"`
				}
				_ = json.Unmarshal(v, &a) // an empty name is no slot
				s.App = a.Name
			}
		}
		if s.App != "" && s.Index >= 0 {
			return s
		}
	}
	return Slot{}
}

// Running returns the instances whose main process and sidecar run, in the order of
// their slots.
func (w *World) Running() []Instance {
	var out []Instance
	for _, in := range w.Instances() {
		if in.Slot.App != "" && len(in.Leaves[SidecarLeaf]) > 0 {
			out = append(out, in)
		}
	}
	slices.SortFunc(out, func(a, b Instance) int {
		return cmp.Or(strings.Compare(a.Slot.App, b.Slot.App), a.Slot.Index-b.Slot.Index, strings.Compare(a.ID, b.ID))
	})
	return out
}

// Shim returns the pid of an instance's shim.
func (w *World) Shim(id string) (int, error) {
	all, err := shim.List(w.Names.Namespace)
	if err != nil {
		return 0, err
	}
	if pid, ok := all[names.Prefix+id]; ok {
		return pid, nil
	}
	return 0, fmt.Errorf("instance %s has no shim", id)
}

// Shims returns the number of running shims.
func (w *World) Shims() (int, error) {
	all, err := shim.List(w.Names.Namespace)
	return len(all), err
}
