//go:build integration

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// dewd unpacks a droplet as soon as it is staged, before an instance starts on it. The
// deletion of the app removes it.
func TestStagedDropletIsUnpacked(t *testing.T) {
	runParallel(t)
	c := newCell(t)
	c.start()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	unpacked := func() bool {
		cmd := exec.Command("ctr", "-a", filepath.Join(c.run, "containerd", "containerd.sock"), "-n", c.names.Namespace, "snapshots", "ls")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("ctr: %v: %s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "dew-image-") && strings.Contains(line, "Committed") && !strings.Contains(line, "-draft") {
				return true
			}
		}
		return false
	}
	c.dew("push", "early", "--no-manifest", "-p", dir, "-b", "binary_buildpack", "-c", "sleep inf", "-u", "process", "--no-route", "--no-start")
	c.dew("stage", "early")
	testkit.EventuallyTrue(t, "the droplet is unpacked", unpacked)
	c.dew("delete", "early", "-f")
	testkit.EventuallyTrue(t, "the unpacked droplet is removed", func() bool { return !unpacked() })
}
