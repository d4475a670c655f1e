package buildcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/packing"
	"github.com/dewrun/dew/store"
)

// Folder is the folder of the cache in the container of a build.
const Folder = "/tmp/cache"

// Caches stores build caches. Many goroutines can use it.
type Caches struct {
	dir         string // empty: no caches
	limit       packing.Packing
	generations store.Bucket[string] // by app, and for all caches under generationKey
}

// New returns the caches in a folder. Without a folder, nothing is stored. A cache has at
// most this many bytes and files.
func New(db *store.DB, dir string, maxBytes, maxFiles int64) *Caches {
	return &Caches{
		dir: dir, generations: store.In[string](db, "caches"),
		limit: packing.Packing{Folders: []packing.Folder{{From: Folder}}, MaxBytes: maxBytes, MaxFiles: maxFiles},
	}
}

// packer is the container of a build whose command has exited.
type packer interface {
	Pack(ctx context.Context, w io.Writer, p packing.Packing) error
}

const suffix = ".tar"

// File is the path of an app's cache.
func (c *Caches) File(app string) string { return filepath.Join(c.dir, app+suffix) }

// Has reports whether an app has a cache.
func (c *Caches) Has(app string) bool {
	_, err := os.Stat(c.File(app))
	return c.dir != "" && err == nil
}

// Store stores the cache of an app after a build.
func (c *Caches) Store(ctx context.Context, app string, files packer) error {
	return c.store(ctx, c.File(app), files)
}

func (c *Caches) store(ctx context.Context, path string, files packer) (err error) {
	if c.dir == "" {
		return nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(c.dir, "cache-*"+archive.Unfinished)
	if err != nil {
		return err
	}
	defer func() {
		if e := os.Remove(f.Name()); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	if err := errors.Join(files.Pack(ctx, f, c.limit), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path) // a cache can be lost in a power failure
}

// generationKey is the key of the generation of all caches.
const generationKey = "generation"

// Generation returns a value that changes when all caches, or that of the app, are
// cleared. If it cannot be read, no later result is reused.
func (c *Caches) Generation(app string) string {
	all, _ := c.generations.Get(generationKey)
	own, _ := c.generations.Get(app)
	return all + own
}

// Clear deletes the caches of all apps and stacks.
func (c *Caches) Clear() error {
	if c.dir == "" {
		return nil
	}
	err := c.generations.Put(generationKey, uuid.NewString())
	all, gerr := c.files("*")
	err = errors.Join(err, gerr)
	for _, name := range all {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		return fmt.Errorf("cannot clear the build cache: %w", err)
	}
	return nil
}

// ClearOf deletes the cache of one app.
func (c *Caches) ClearOf(app string) error {
	if c.dir == "" {
		return nil
	}
	if err := c.generations.Put(app, uuid.NewString()); err != nil {
		return fmt.Errorf("cannot clear the build cache: %w", err)
	}
	return c.remove(app)
}

// Delete deletes the cache of a deleted app and its generation.
func (c *Caches) Delete(app string) error {
	if c.dir == "" {
		return nil
	}
	if err := c.generations.Delete(app); err != nil {
		return fmt.Errorf("cannot delete the build cache: %w", err)
	}
	return c.remove(app)
}

func (c *Caches) remove(app string) error {
	if err := os.Remove(c.File(app)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the build cache: %w", err)
	}
	return nil
}

// files returns the paths of the caches whose names match a pattern.
func (c *Caches) files(pattern string) ([]string, error) {
	return filepath.Glob(filepath.Join(c.dir, pattern+suffix))
}

// Sweep removes incomplete caches of a killed daemon, caches of apps that are gone, and
// caches of stacks that no new app has used for a long time.
func (c *Caches) Sweep(isGone func(app string) (bool, error)) error {
	if c.dir == "" {
		return nil
	}
	left, err := filepath.Glob(filepath.Join(c.dir, "cache-*"+archive.Unfinished))
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	caches, gerr := c.files("*")
	err = errors.Join(err, gerr)
	for _, name := range caches {
		app := strings.TrimSuffix(filepath.Base(name), suffix)
		if strings.HasPrefix(app, startPrefix) {
			err = errors.Join(err, removeUnused(name))
			continue
		}
		gone, gerr := isGone(app)
		err = errors.Join(err, gerr)
		if gone && gerr == nil {
			err = errors.Join(err, c.Delete(app))
		}
	}
	return err
}
