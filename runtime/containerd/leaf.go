package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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

// freezer is where a leaf is frozen, and what is written there.
type freezer struct {
	dir, file    string
	freeze, thaw string
}

func (c *cgroups) freezer(id runtime.InstanceID, leaf string) freezer {
	if c.isV2() {
		return freezer{dir: c.path(c.unified, id, leaf), file: "cgroup.freeze", freeze: "1", thaw: "0"}
	}
	return freezer{dir: c.path(c.v1["freezer"], id, leaf), file: "freezer.state", freeze: "FROZEN", thaw: "THAWED"}
}

// createFreezer makes the leaf of a process in the hierarchy of the freezer alone:
// a container that mounts its file needs it before the others.
func (c *cgroups) createFreezer(id runtime.InstanceID, leaf string) error {
	if err := os.MkdirAll(c.freezer(id, leaf).dir, 0o755); err != nil {
		return fmt.Errorf("cannot make cgroup leaf: %w", err)
	}
	return nil
}

// freeze stops or continues all processes of a leaf. A leaf that is gone is fine.
func (c *cgroups) freeze(id runtime.InstanceID, leaf string, frozen bool) error {
	f := c.freezer(id, leaf)
	word := f.thaw
	if frozen {
		word = f.freeze
	}
	return writeIfThere(f.dir, f.file, word)
}

// frozen tells whether a leaf is frozen, or about to be.
func (c *cgroups) frozen(id runtime.InstanceID, leaf string) bool {
	f := c.freezer(id, leaf)
	b, err := os.ReadFile(filepath.Join(f.dir, f.file))
	return err == nil && strings.TrimSpace(string(b)) != f.thaw // v1 says FREEZING before FROZEN
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
