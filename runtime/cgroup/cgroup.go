package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
)

// InitLeaf is the leaf in which runc places PID 1, and every exec until it is moved.
const InitLeaf = "init"

// Hierarchies has the cgroup hierarchies of this machine. On v2 there is one; on v1 and
// hybrid hosts the same path exists in each.
type Hierarchies struct {
	Parent  string            // folder of all instances in each hierarchy, such as "dew"
	Unified string            // mount of the unified hierarchy, "" on pure v1
	V1      map[string]string // mounts by controller, empty on v2
	All     []string          // every cgroup mount, for removal

	weighing sync.Mutex // held while the weight of Parent changes
}

// Find reads the machine's cgroup mounts from a mountinfo file.
func Find(mountinfo, parent string) (*Hierarchies, error) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("cannot read cgroup mounts: %w", err)
	}
	defer f.Close()
	c := &Hierarchies{Parent: parent, V1: map[string]string{}}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		c.addMount(sc.Text())
	}
	if len(c.All) == 0 {
		return nil, errors.New("cannot find cgroups: no cgroup file system is mounted; mount cgroup2 at /sys/fs/cgroup")
	}
	if c.IsV2() {
		return c, c.needV2("memory", "pids", "cpu")
	}
	for _, need := range []string{"memory", "pids", "freezer"} {
		if c.V1[need] == "" {
			return nil, fmt.Errorf("cannot use cgroups: the v1 controller %s is not mounted; mount it under /sys/fs/cgroup, or boot with cgroup v2", need)
		}
	}
	return c, nil
}

func (c *Hierarchies) addMount(line string) {
	before, after, ok := strings.Cut(line, " - ")
	left, right := strings.Fields(before), strings.Fields(after)
	if !ok || len(left) < 5 || len(right) < 3 || slices.Contains(c.All, left[4]) {
		return
	}
	// A mount of a part of a hierarchy belongs to a container, not to the host.
	if left[3] != "/" {
		return
	}
	point := left[4]
	switch right[0] {
	case "cgroup2":
		if c.Unified == "" {
			c.Unified = point
		}
		c.All = append(c.All, point)
	case "cgroup":
		c.All = append(c.All, point)
		for _, o := range strings.Split(right[2], ",") {
			if c.V1[o] == "" {
				c.V1[o] = point
			}
		}
	}
}

// IsV2 reports whether the unified hierarchy controls memory.
func (c *Hierarchies) IsV2() bool { return c.V1["memory"] == "" && c.Unified != "" }

func (c *Hierarchies) needV2(controllers ...string) error {
	b, err := os.ReadFile(filepath.Join(c.Unified, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("cannot read cgroup controllers: %w", err)
	}
	have := strings.Fields(string(b))
	for _, need := range controllers {
		if !slices.Contains(have, need) {
			return fmt.Errorf("cannot use cgroups: controller %s is not available on %s; enable it on the kernel command line", need, c.Unified)
		}
	}
	return nil
}

// Limits are the limits of a whole instance.
type Limits struct {
	Memory int64
	PIDs   int64
	Cores  Cores // limit of CPU time
}

// OCIPath returns the cgroupsPath for the OCI spec.
func (c *Hierarchies) OCIPath(id runtime.InstanceID) string {
	return "/" + filepath.Join(c.Parent, string(id), InitLeaf)
}

func (c *Hierarchies) path(mount string, id runtime.InstanceID, leaf string) string {
	return filepath.Join(mount, c.Parent, string(id), leaf)
}

// Memory returns the folder with the memory files of a leaf.
func (c *Hierarchies) Memory(id runtime.InstanceID, leaf string) string {
	if c.IsV2() {
		return c.path(c.Unified, id, leaf)
	}
	return c.path(c.V1["memory"], id, leaf)
}

// Create creates the instance's group with its limits. runc creates the init leaf.
func (c *Hierarchies) Create(id runtime.InstanceID, l Limits) error {
	if c.IsV2() {
		return c.createV2(id, l)
	}
	for _, ctl := range []string{"memory", "pids", "freezer", "cpu"} {
		if c.V1[ctl] == "" {
			continue
		}
		if err := os.MkdirAll(c.path(c.V1[ctl], id, ""), 0o755); err != nil {
			return fmt.Errorf("cannot create cgroup: %w", err)
		}
	}
	if err := limitMemoryV1(c.path(c.V1["memory"], id, ""), l.Memory); err != nil {
		return err
	}
	return errors.Join(
		c.setCPU(id, l),
		write(c.path(c.V1["pids"], id, ""), "pids.max", strconv.FormatInt(l.PIDs, 10)),
		c.WeighParent(),
	)
}

func (c *Hierarchies) createV2(id runtime.InstanceID, l Limits) error {
	dir := c.path(c.Unified, id, "")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot create cgroup: %w", err)
	}
	// Controllers are enabled from the top down, one level at a time.
	for _, d := range []string{c.Unified, filepath.Dir(dir), dir} {
		if err := write(d, "cgroup.subtree_control", "+memory +pids +cpu"); err != nil {
			return err
		}
	}
	return errors.Join(
		write(dir, "memory.max", strconv.FormatInt(l.Memory, 10)),
		writeIfThere(dir, "memory.swap.max", "0"),
		write(dir, "pids.max", strconv.FormatInt(l.PIDs, 10)),
		c.setCPU(id, l),
		c.WeighParent(),
	)
}

// leafMounts returns the hierarchies in which a process is placed into its leaf.
func (c *Hierarchies) leafMounts() []string {
	if c.IsV2() {
		return []string{c.Unified}
	}
	ms := []string{c.V1["memory"], c.V1["freezer"], c.V1["pids"]}
	if c.Unified != "" { // for cgroup.kill and the CPU time
		ms = append(ms, c.Unified)
	}
	for _, m := range []string{c.V1["cpu"], c.V1["cpuacct"]} {
		if m != "" && !slices.Contains(ms, m) && (m == c.V1["cpu"] || c.Unified == "") {
			ms = slices.Insert(ms, 0, m)
		}
	}
	return ms
}

// CreateLeaf creates the leaf of one process. Memory 0 means only the container's
// limit.
func (c *Hierarchies) CreateLeaf(id runtime.InstanceID, leaf string, memory int64) error {
	for _, m := range c.leafMounts() {
		if err := os.MkdirAll(c.path(m, id, leaf), 0o755); err != nil {
			return fmt.Errorf("cannot create cgroup leaf: %w", err)
		}
	}
	dir := c.Memory(id, leaf)
	if c.IsV2() {
		err := errors.Join(writeIfThere(dir, "memory.swap.max", "0"), writeIfThere(dir, "memory.oom.group", "1"))
		if err != nil || memory == 0 {
			return err
		}
		return write(dir, "memory.max", strconv.FormatInt(memory, 10))
	}
	if memory == 0 {
		return writeIfThere(dir, "memory.swappiness", "0")
	}
	return limitMemoryV1(dir, memory)
}

func limitMemoryV1(dir string, n int64) error {
	v := strconv.FormatInt(n, 10)
	return errors.Join(
		write(dir, "memory.limit_in_bytes", v),
		writeIfThere(dir, "memory.memsw.limit_in_bytes", v), // after the limit, because it must not be smaller
		writeIfThere(dir, "memory.swappiness", "0"),
	)
}

// Place moves a process into its leaf. Its pages so far stay charged to the init leaf,
// but the launcher has only waited until now.
func (c *Hierarchies) Place(id runtime.InstanceID, leaf string, pid int) error {
	for _, m := range c.leafMounts() {
		err := write(c.path(m, id, leaf), "cgroup.procs", strconv.Itoa(pid))
		if m == c.V1["cpu"] && errors.Is(err, fs.ErrNotExist) {
			continue // older versions of dewd created no leaf there
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Procs lists the running processes of a leaf.
func (c *Hierarchies) Procs(id runtime.InstanceID, leaf string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(c.Memory(id, leaf), "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list processes of a cgroup: %w", err)
	}
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Signal sends sig to every process of a leaf.
func (c *Hierarchies) Signal(id runtime.InstanceID, leaf string, sig syscall.Signal) error {
	pids, err := c.Procs(id, leaf)
	for _, pid := range pids {
		if e := unix.Kill(pid, sig); e != nil && !errors.Is(e, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("cannot send %s to process %d: %w", sig, pid, e))
		}
	}
	return err
}

// Kill kills every process of a leaf and returns when it is empty.
func (c *Hierarchies) Kill(ctx context.Context, id runtime.InstanceID, leaf string) error {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		// A frozen v1 task does not exit before it is thawed, and a reader that is
		// behind can freeze it again.
		if err := c.Freeze(id, leaf, false); err != nil {
			return err
		}
		pids, err := c.Procs(id, leaf)
		if err != nil || len(pids) == 0 {
			return err
		}
		// Use both: a fork cannot escape the first, and the second reaches processes
		// that the first misses.
		c.KillAtOnce(id, leaf)
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // the next iteration checks the result
		}
		if err := process.Sleep(ctx, wait); err != nil {
			return fmt.Errorf("cannot stop all processes in cgroup leaf %s of %s, %d are left: %w", leaf, id, len(pids), err)
		}
	}
}

// KillAtOnce uses cgroup.kill, which a fork cannot escape, if the kernel has it. It is
// not sufficient, because it misses two kinds of processes. One is in execve on a
// thread that is not its first, as the launcher is. The other was placed by a killed
// daemon in another hierarchy only. Therefore callers also kill the processes one by
// one.
func (c *Hierarchies) KillAtOnce(id runtime.InstanceID, leaf string) {
	if c.Unified != "" {
		_ = write(c.path(c.Unified, id, leaf), "cgroup.kill", "1")
	}
}

// OOMKills returns the number of OOM kills in a leaf, for any limit. The count of
// failed allocations is not evidence, because page cache alone raises it.
func (c *Hierarchies) OOMKills(id runtime.InstanceID, leaf string) int64 {
	file := "memory.oom_control"
	if c.IsV2() {
		file = "memory.events.local"
	}
	b, err := os.ReadFile(filepath.Join(c.Memory(id, leaf), file))
	if err != nil {
		return 0
	}
	return keyed(string(b), "oom_kill")
}

// MemoryOf returns the limit and the peak of a leaf.
func (c *Hierarchies) MemoryOf(id runtime.InstanceID, leaf string) runtime.Memory {
	dir := c.Memory(id, leaf)
	if c.IsV2() {
		return runtime.Memory{Limit: number(dir, "memory.max"), Peak: number(dir, "memory.peak")}
	}
	m := runtime.Memory{Limit: number(dir, "memory.limit_in_bytes"), Peak: number(dir, "memory.max_usage_in_bytes")}
	if m.Limit > 1<<60 { // v1 writes "no limit" as a huge number
		m.Limit = 0
	}
	return m
}

// Remove removes the instance's groups from every hierarchy.
func (c *Hierarchies) Remove(ctx context.Context, id runtime.InstanceID) error {
	var errs error
	for _, m := range c.All {
		errs = errors.Join(errs, removeTree(ctx, c.path(m, id, "")))
	}
	return errors.Join(errs, c.WeighParent())
}

// Instances lists the ids that have a group in any hierarchy.
func (c *Hierarchies) Instances() []runtime.InstanceID {
	var ids []runtime.InstanceID
	for _, m := range c.All {
		entries, err := os.ReadDir(filepath.Join(m, c.Parent))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if id := runtime.InstanceID(e.Name()); e.IsDir() && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// RemoveParent removes the folder of all instances after it is empty.
func (c *Hierarchies) RemoveParent(ctx context.Context) error {
	var errs error
	for _, m := range c.All {
		errs = errors.Join(errs, removeTree(ctx, filepath.Join(m, c.Parent)))
	}
	return errs
}

// removeTree removes a cgroup and its children. A group that was just emptied can stay
// busy for a moment.
func removeTree(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot remove cgroup: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := removeTree(ctx, filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("cannot remove cgroup %s: %w", dir, err)
		}
		if process.Sleep(ctx, wait) != nil {
			return fmt.Errorf("cannot remove cgroup %s: %w", dir, err)
		}
	}
}

// write sets one control file. Control files are not stored on disk, so no sync is
// needed.
func write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot set cgroup: %w", err)
	}
	_, err = f.WriteString(value)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot set cgroup %s to %q: %w", file, value, err)
	}
	return nil
}

// writeIfThere writes a file that not every kernel has.
func writeIfThere(dir, file, value string) error {
	err := write(dir, file, value)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// keyed returns the number after name in a flat keyed file.
func keyed(text, name string) int64 {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64) // not a number: the same as missing
			return n
		}
	}
	return 0
}

// number reads a file with one number, and returns 0 if there is none ("max").
func number(dir, file string) int64 {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}
