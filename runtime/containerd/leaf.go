package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/dewrun/dew/runtime"
)

// lastController is that of the hierarchy that place comes to last; empty: the
// unified one. A process that stands in its leaf there stands in it everywhere.
func (c *cgroups) lastController() string {
	if c.unified != "" {
		return ""
	}
	return "pids"
}

// leaves lists the leaves of an instance.
func (c *cgroups) leaves(id runtime.InstanceID) ([]string, error) {
	entries, err := os.ReadDir(c.memory(id, ""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list cgroup leaves: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// removeLeaf takes one leaf out of every hierarchy.
func (c *cgroups) removeLeaf(ctx context.Context, id runtime.InstanceID, leaf string) error {
	var errs error
	for _, m := range c.leafMounts() {
		errs = errors.Join(errs, removeTree(ctx, c.path(m, id, leaf)))
	}
	return errs
}
