package world

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Stored counts what apps leave in containerd and on the disk: containers, snapshots,
// images, disk images, and files of packages and droplets.
func (w *World) Stored(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	for name, args := range map[string][]string{
		"containers": {"containers", "list", "-q"},
		"images":     {"images", "list", "-q"},
		"snapshots":  {"snapshots", "list"},
	} {
		out, err := w.ctr(ctx, args...)
		if err != nil {
			return nil, err
		}
		counts[name] = len(strings.Split(strings.TrimSpace(out), "\n"))
		if strings.TrimSpace(out) == "" {
			counts[name] = 0
		}
	}
	for _, folder := range []string{"disks", "packages", "droplets", "stacks", "crashed", "logs"} {
		found, _ := filepath.Glob(filepath.Join(w.volume, folder, "*")) // the pattern is correct
		counts[folder] = len(found)
	}
	return counts, nil
}

// ctr runs a command of containerd's client.
func (w *World) ctr(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--address", filepath.Join(w.Run, "containerd", "containerd.sock"), "--namespace", w.Names.Namespace}, args...)
	out, err := exec.CommandContext(ctx, "ctr", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
