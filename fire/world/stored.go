package world

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Stored lists what apps have in containerd and on the disk: containers, snapshots, images,
// disks, droplets, stacks, logs and files of crashes. It leaves out what dewd keeps for the
// next app: the stack of the machine, empty disks and the reserve of the logs. It keeps
// uploaded files for some minutes, so packages are not listed.
func Stored(ctx context.Context, w *World) ([]string, error) {
	var all []string
	for kind, args := range map[string][]string{
		"container": {"containers", "list", "-q"},
		"image":     {"images", "list", "-q"},
		"snapshot":  {"snapshots", "list"},
	} {
		out, err := ctr(ctx, w, args...)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(out) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if name != "" && name != "KEY" && !strings.HasPrefix(name, "dew-stack-") {
				all = append(all, kind+" "+name)
			}
		}
	}
	for _, folder := range []string{"disks", "droplets", "stacks", "crashed", "logs"} {
		found, _ := filepath.Glob(filepath.Join(w.volume, folder, "*")) // the pattern is correct
		for _, path := range found {
			if name := filepath.Base(path); !strings.HasPrefix(name, "template-") && name != "reserve" {
				all = append(all, folder+"/"+name)
			}
		}
	}
	return all, nil
}

// ctr runs a command of containerd's client.
func ctr(ctx context.Context, w *World, args ...string) (string, error) {
	args = append([]string{"--address", filepath.Join(w.Run, "containerd", "containerd.sock"), "--namespace", w.Names.Namespace}, args...)
	out, err := exec.CommandContext(ctx, "ctr", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
