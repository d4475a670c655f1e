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

// buildCaches keeps what buildpacks want to find again when an app is next staged.
type buildCaches struct {
	cacheDir    string                // empty: none is kept
	diskMB      int                   // of one cache
	generations *store.Bucket[string] // by app, and of all under generationKey
}

func (c *buildCaches) cacheFile(app string) string { return filepath.Join(c.cacheDir, app+".tar") }

// keepCache keeps what buildpacks want to find again when the app is next staged.
func (c *buildCaches) keepCache(ctx context.Context, app string, files Files) (err error) {
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
	return os.Rename(f.Name(), c.cacheFile(app)) // a cache need not survive a power cut
}

// generationKey is where the store keeps the generation of the caches.
const generationKey = "generation"

// cacheGeneration changes when all caches, or that of the app, are cleared. One that
// cannot be read is like none: nothing that was made since is used again.
func (c *buildCaches) cacheGeneration(app string) string {
	all, _ := c.generations.Get(generationKey)
	own, _ := c.generations.Get(app)
	return all + own
}

// ClearCache forgets what buildpacks have kept for the next staging of any app.
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

// ClearCacheOf forgets what buildpacks have kept for the next staging of one app.
func (c *buildCaches) ClearCacheOf(app string) error {
	if c.cacheDir == "" {
		return nil
	}
	if err := c.generations.Put(app, uuid.NewString()); err != nil {
		return fmt.Errorf("cannot clear the build cache: %w", err)
	}
	return c.removeCache(app)
}

// forgetCache removes all of the cache of an app that is gone.
func (c *buildCaches) forgetCache(app string) error {
	if c.cacheDir == "" {
		return nil
	}
	if err := c.generations.Delete(app); err != nil {
		return fmt.Errorf("cannot forget the build cache: %w", err)
	}
	return c.removeCache(app)
}

func (c *buildCaches) removeCache(app string) error {
	if err := os.Remove(c.cacheFile(app)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the build cache: %w", err)
	}
	return nil
}
