package world

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Limit moves a process into a cgroup of its own with a limit, until the returned
// function is called. The controller is cpu, memory or pids. The limit is in the unit of
// the v2 file: "10000 100000" for cpu.max.
func (w *World) Limit(controller, limit string, pid int) (release func() error, err error) {
	base, settings, err := limitFiles(controller, limit)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(base, w.Names.Cgroup+"-fire-"+controller)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("cannot create a cgroup: %w", err)
	}
	home, err := groupOf(base, controller, pid)
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	release = func() error { return dissolve(dir, home) }
	if err := control(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
		return nil, errors.Join(err, release())
	}
	for _, s := range settings {
		if err := control(filepath.Join(dir, s[0]), s[1]); err != nil {
			return nil, errors.Join(err, release())
		}
	}
	return release, nil
}

// limitFiles returns the folder of a controller and the files to write, for cgroup v1
// and v2.
func limitFiles(controller, limit string) (base string, settings [][2]string, err error) {
	base = filepath.Join("/sys/fs/cgroup", controller)
	if _, err := os.Stat(base); err != nil {
		return "/sys/fs/cgroup", [][2]string{{controller + ".max", limit}}, nil //nolint:nilerr // cgroup v2
	}
	switch controller {
	case "cpu":
		quota, period, _ := strings.Cut(limit, " ")
		return base, [][2]string{{"cpu.cfs_period_us", period}, {"cpu.cfs_quota_us", quota}}, nil
	case "memory":
		return base, [][2]string{{"memory.limit_in_bytes", limit}}, nil
	case "pids":
		return base, [][2]string{{"pids.max", limit}}, nil
	}
	return "", nil, fmt.Errorf("no controller is called %q", controller)
}

// groupOf returns the folder of a process's cgroup.
func groupOf(base, controller string, pid int) (string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && (fields[1] == controller || fields[1] == "" && base == "/sys/fs/cgroup") {
			return filepath.Join(base, fields[2]), nil
		}
	}
	return "", fmt.Errorf("process %d is in no cgroup of %s", pid, controller)
}

// dissolve moves all processes of a cgroup to another one, and removes it. They can start
// others at the same time.
func dissolve(dir, home string) (err error) {
	const attempts = 500
	for range attempts {
		for _, pid := range pidsIn(filepath.Join(dir, "cgroup.procs")) {
			_ = control(filepath.Join(home, "cgroup.procs"), strconv.Itoa(pid)) // it can have exited
		}
		if err = os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		<-time.After(pause)
	}
	return err
}

// control writes a control file of the kernel.
func control(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("cannot write %q: %w", value, err)
	}
	return nil
}

// LoseGroup moves the processes of an instance's leaf to the parent of all cgroups and
// removes the leaf, in every hierarchy.
func (w *World) LoseGroup(id, leaf string) error {
	dirs, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", "*", w.Names.Cgroup, id, leaf)) // the pattern is correct
	if v2 := filepath.Join("/sys/fs/cgroup", w.Names.Cgroup, id, leaf); exists(v2) {
		dirs = append(dirs, v2)
	}
	var errs []error
	for _, dir := range dirs {
		base, _, _ := strings.Cut(dir, "/"+w.Names.Cgroup+"/")
		errs = append(errs, dissolve(dir, base))
	}
	if len(dirs) == 0 {
		return fmt.Errorf("instance %s has no cgroup %s", id, leaf)
	}
	return errors.Join(errs...)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
