package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelSettings are files below /proc/sys that kubelet writes. They belong to the whole
// machine, so that a node gets copies.
var kernelSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// privateMounts keeps mounts of this namespace from reaching the machine, and shows the
// processes of its PID namespace in /proc.
func privateMounts(hostname string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("cannot mount /proc: %w", err)
	}
	return unix.Sethostname([]byte(hostname))
}

// nodeMounts gives a node its own /run, /var and kernel settings.
func nodeMounts(dir string) error {
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("cannot mount /run: %w", err)
	}
	for _, folder := range []string{"var/log/pods", "var/lib/kubelet", "var/lib/containerd", "var/lib/cni", "var/tmp", "var/cache", "sys"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", filepath.Join(dir, "var/run")); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, setting := range kernelSettings {
		if err := coverSetting(filepath.Join("/proc/sys", setting), filepath.Join(dir, "sys", strings.ReplaceAll(setting, "/", "."))); err != nil {
			return err
		}
	}
	if err := cover("/proc/sys/kernel/random/boot_id", filepath.Join(dir, "sys", "boot_id"), []byte(bootID())); err != nil {
		return err
	}
	if err := unix.Mount(filepath.Join(dir, "var"), "/var", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot mount /var: %w", err)
	}
	// Volumes of Pods can propagate their mounts, as on a machine with systemd.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// bootID returns a random UUID: kubelet takes another boot ID for a restart of the node.
func bootID() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x\n", random[:4], random[4:6], random[6:8], random[8:10], random[10:])
}

// coverSetting mounts a copy over a file below /proc/sys.
func coverSetting(path, copied string) error {
	value, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return cover(path, copied, value)
}

// cover writes a file and mounts it over another one.
func cover(path, file string, content []byte) error {
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return err
	}
	if err := unix.Mount(file, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot mount a file over %s: %w", path, err)
	}
	return nil
}
