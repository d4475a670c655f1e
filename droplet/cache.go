package droplet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/store"
)

// buildCaches stores the files that buildpacks keep for the next staging of an app.
type buildCaches struct {
	cacheDir    string                // empty: no caches
	diskMB      int                   // limit of one cache
	generations *store.Bucket[string] // by app, and for all caches under generationKey
}

func (c *buildCaches) cacheFile(app string) string { return filepath.Join(c.cacheDir, app+".tar") }

func (c *buildCaches) hasCache(app string) bool {
	_, err := os.Stat(c.cacheFile(app))
	return err == nil
}

// storeCache stores the cache of an app after staging.
func (c *buildCaches) storeCache(ctx context.Context, app string, files Files) (err error) {
	if c.cacheDir == "" {
		return nil
	}
	if err := os.MkdirAll(c.cacheDir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(c.cacheDir, "cache-*"+archive.Unfinished)
	if err != nil {
		return err
	}
	defer func() {
		if e := os.Remove(f.Name()); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	p := Packing{Folders: []Folder{{From: "/tmp/cache"}}, MaxBytes: int64(c.diskMB) << 20, MaxFiles: maxStagedFiles}
	if err := errors.Join(files.Pack(ctx, f, p), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), c.cacheFile(app)) // a cache can be lost in a power failure
}

// generationKey is the key of the generation of all caches.
const generationKey = "generation"

// cacheGeneration returns a value that changes when all caches, or that of the app, are
// cleared. If it cannot be read, no later result is reused.
func (c *buildCaches) cacheGeneration(app string) string {
	all, _ := c.generations.Get(generationKey)
	own, _ := c.generations.Get(app)
	return all + own
}

// ClearCache deletes the build caches of all apps.
func (c *buildCaches) ClearCache() error {
	if c.cacheDir == "" {
		return nil
	}
	err := c.generations.Put(generationKey, uuid.NewString())
	all, gerr := filepath.Glob(c.cacheFile("*"))
	err = errors.Join(err, gerr)
	for _, name := range all {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		return fmt.Errorf("cannot clear the build cache: %w", err)
	}
	return nil
}

// ClearCacheOf deletes the build cache of one app.
func (c *buildCaches) ClearCacheOf(app string) error {
	if c.cacheDir == "" {
		return nil
	}
	if err := c.generations.Put(app, uuid.NewString()); err != nil {
		return fmt.Errorf("cannot clear the build cache: %w", err)
	}
	return c.removeCache(app)
}

// deleteCache deletes the cache of a deleted app and its generation.
func (c *buildCaches) deleteCache(app string) error {
	if c.cacheDir == "" {
		return nil
	}
	if err := c.generations.Delete(app); err != nil {
		return fmt.Errorf("cannot delete the build cache: %w", err)
	}
	return c.removeCache(app)
}

func (c *buildCaches) removeCache(app string) error {
	if err := os.Remove(c.cacheFile(app)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the build cache: %w", err)
	}
	return nil
}
