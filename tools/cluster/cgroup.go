package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is a mounted cgroup hierarchy.
type hierarchy struct {
	path, kind, options string
}

// hierarchies returns all cgroup hierarchies.
func hierarchies() (all []hierarchy) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 3 && (f[2] == "cgroup" || f[2] == "cgroup2") {
			all = append(all, hierarchy{f[1], f[2], f[3]})
		}
	}
	return all
}

// mountOptions returns the options that select a hierarchy of cgroup v1: its controllers
// or its name.
func (h hierarchy) mountOptions() string {
	var own []string
	for option := range strings.SplitSeq(h.options, ",") {
		switch option {
		case "rw", "ro", "relatime", "noatime", "nosuid", "nodev", "noexec", "xattr", "seclabel":
		default:
			own = append(own, option)
		}
	}
	return strings.Join(own, ",")
}

// enterCgroups makes a cgroup the root of all cgroups that this process and its children
// see. The caller locks the thread and then executes a program, because only this thread
// enters.
func enterCgroups(path string) error {
	all := hierarchies()
	for _, h := range all {
		if err := os.WriteFile(filepath.Join(h.path, path, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("cannot join a cgroup: %w", err)
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cannot create a cgroup namespace: %w", err)
	}
	for _, h := range all {
		options := ""
		if h.kind == "cgroup" {
			options = h.mountOptions()
		}
		// The kernel refuses to mount a file system over itself.
		if err := unix.Unmount(h.path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("cannot unmount %s: %w", h.path, err)
		}
		if err := unix.Mount("cgroup", h.path, h.kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
			return fmt.Errorf("cannot mount %s: %w", h.path, err)
		}
		// A cgroup of v2 with processes cannot have children with controllers.
		leaf := filepath.Join(h.path, "system")
		if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := inheritCPUs(h.path, leaf); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("cannot join a cgroup: %w", err)
		}
		if err := delegate(h.path); err != nil {
			return err
		}
	}
	return nil
}

// makeCgroups creates a cgroup in every hierarchy. kubelet creates those of Pods below it.
func makeCgroups(path string) error {
	for _, h := range hierarchies() {
		dir := h.path
		for part := range strings.SplitSeq(path, "/") {
			if err := delegate(dir); err != nil {
				return err
			}
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return fmt.Errorf("cannot create a cgroup: %w", err)
			}
			if err := inheritCPUs(parent, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate enables all controllers of cgroup v2 for the children of a cgroup.
func delegate(dir string) error {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil //nolint:nilerr // cgroup v1 has no such file
	}
	for _, controller := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
			return fmt.Errorf("cannot enable the cgroup controller %s: %w", controller, err)
		}
	}
	return nil
}

// inheritCPUs copies the processors of the parent: a new cpuset of cgroup v1 has none,
// and processes cannot join it.
func inheritCPUs(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			continue
		}
		own, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || strings.TrimSpace(string(own)) != "" || strings.TrimSpace(string(value)) == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes a cgroup and those below it from every hierarchy.
func removeCgroups(path string) error {
	var left []error
	for _, h := range hierarchies() {
		left = append(left, removeCgroup(filepath.Join(h.path, path)))
	}
	return errors.Join(left...)
}

// removeCgroup removes a cgroup and those below it. The kernel can take a moment until a
// cgroup of killed processes is empty.
func removeCgroup(top string) error {
	for end := time.Now().Add(10 * time.Second); ; <-time.After(20 * time.Millisecond) {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		var left error
		for _, dir := range slices.Backward(dirs) {
			if err := syscall.Rmdir(dir); err != nil && left == nil {
				left = fmt.Errorf("cgroup %s: %w", dir, err)
			}
		}
		if left == nil || time.Now().After(end) {
			return left
		}
	}
}
