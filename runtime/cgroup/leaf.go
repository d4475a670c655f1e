package cgroup

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

// LastController returns the controller of the last hierarchy that Place writes to,
// empty for the unified one. A process that is in its leaf there is in its leaf
// everywhere.
func (c *Hierarchies) LastController() string {
	if c.Unified != "" {
		return ""
	}
	return "pids"
}

// Freezer has the file that freezes a leaf, and the values to write.
type Freezer struct {
	Dir, File    string
	Freeze, Thaw string
}

// Freezer returns the freezer of a leaf.
func (c *Hierarchies) Freezer(id runtime.InstanceID, leaf string) Freezer {
	if c.IsV2() {
		return Freezer{Dir: c.path(c.Unified, id, leaf), File: "cgroup.freeze", Freeze: "1", Thaw: "0"}
	}
	return Freezer{Dir: c.path(c.V1["freezer"], id, leaf), File: "freezer.state", Freeze: "FROZEN", Thaw: "THAWED"}
}

// CreateFreezer creates the leaf of a process only in the hierarchy of the freezer. A
// container that mounts the freezer file needs it before the others.
func (c *Hierarchies) CreateFreezer(id runtime.InstanceID, leaf string) error {
	if err := os.MkdirAll(c.Freezer(id, leaf).Dir, 0o755); err != nil {
		return fmt.Errorf("cannot create cgroup leaf: %w", err)
	}
	return nil
}

// Freeze stops or continues all processes of a leaf. It ignores a missing leaf.
func (c *Hierarchies) Freeze(id runtime.InstanceID, leaf string, frozen bool) error {
	f := c.Freezer(id, leaf)
	word := f.Thaw
	if frozen {
		word = f.Freeze
	}
	return writeIfThere(f.Dir, f.File, word)
}

// Frozen reports whether a leaf is frozen, or about to be.
func (c *Hierarchies) Frozen(id runtime.InstanceID, leaf string) bool {
	f := c.Freezer(id, leaf)
	b, err := os.ReadFile(filepath.Join(f.Dir, f.File))
	return err == nil && strings.TrimSpace(string(b)) != f.Thaw // v1 shows FREEZING before FROZEN
}

// Leaves lists the leaves of an instance.
func (c *Hierarchies) Leaves(id runtime.InstanceID) ([]string, error) {
	entries, err := os.ReadDir(c.Memory(id, ""))
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

// RemoveLeaf removes one leaf from every hierarchy.
func (c *Hierarchies) RemoveLeaf(ctx context.Context, id runtime.InstanceID, leaf string) error {
	var errs error
	for _, m := range c.leafMounts() {
		errs = errors.Join(errs, removeTree(ctx, c.path(m, id, leaf)))
	}
	return errs
}
