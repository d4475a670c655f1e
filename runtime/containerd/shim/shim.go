package shim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/runtime/process"
)

// List returns the pids of the shims of a namespace, by container. If
// containerd was killed while it started a shim, it does not know that shim. It has no
// bundle of it, and the shim waits forever.
func List(namespace string) (map[string]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot list shims: %w", err)
	}
	found := map[string]int{}
	for _, d := range entries {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if name, ok := containerOf(pid, namespace); ok {
			found[name] = pid
		}
	}
	return found, nil
}

// containerOf returns the container of a process that is a shim of the namespace.
func containerOf(pid int, namespace string) (string, bool) {
	b, err := os.ReadFile(process.File(pid, "cmdline"))
	if err != nil {
		return "", false
	}
	return parse(b, namespace)
}

// parse reads the command line of a shim.
func parse(cmdline []byte, namespace string) (string, bool) {
	var args []string
	for arg := range bytes.SplitSeq(cmdline, []byte{0}) {
		args = append(args, string(arg))
	}
	after := func(option string) string {
		if i := slices.Index(args, option); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") || after("-namespace") != namespace {
		return "", false
	}
	// With an action it is a helper of containerd, which exits by itself.
	if slices.Contains(args, "start") || slices.Contains(args, "delete") {
		return "", false
	}
	id := after("-id")
	return id, id != ""
}

// Kill kills the shim of a container that containerd does not know. It returns the
// shim's pid, or 0 if there is none.
func Kill(namespace, name string) (int, error) {
	all, err := List(namespace)
	if err != nil {
		return 0, err
	}
	pid, ok := all[name]
	if !ok {
		return 0, nil
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return 0, fmt.Errorf("cannot kill a lost shim: %w", err)
	}
	defer func() { _ = p.Release() }()
	// The pid can have been reused before FindProcess: check it again. From now on p
	// stays bound to its process.
	if now, ok := containerOf(pid, namespace); !ok || now != name {
		return 0, nil
	}
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, fmt.Errorf("cannot kill a lost shim: %w", err)
	}
	return pid, nil
}
