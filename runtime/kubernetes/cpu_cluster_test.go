//go:build k8stest

package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// podQuota returns the CPU limit of the Pod of a process, as the kernel prints it.
func podQuota(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		file := filepath.Join("/sys/fs/cgroup/cpu", filepath.Dir(f[2]), "cpu.cfs_quota_us")
		if f[1] == "" { // cgroup v2
			file = filepath.Join("/sys/fs/cgroup", filepath.Dir(f[2]), "cpu.max")
		} else if f[1] != "cpu" {
			continue
		}
		if text, err := os.ReadFile(file); err == nil {
			quota, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
			return quota, nil
		}
	}
	return "", errors.New("the cgroup of the Pod was not found")
}

// The kernel enforces the CPU limit of an instance.
func TestCPULimit(t *testing.T) {
	w := newClusterWorld(t)
	w.cpu = 250
	w.open()
	c := w.start("exec sleep 1000", "exec sleep 1379")
	quota, err := podQuota(processOf(t, "sleep 1379"))
	if err != nil || quota != "25000" { // microseconds of each 100 milliseconds
		t.Errorf("the Pod has the quota %q (%v), want a quarter of a core", quota, err)
	}
	if err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}
