package buildcache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"
)

// startPrefix is the beginning of the names of start caches.
const startPrefix = "start-"

// maxUnused is how long a start cache is kept that no app begins with.
const maxUnused = 30 * 24 * time.Hour

// startName is the name of a start cache. An ID of a stack can have characters that a
// file name cannot.
func startName(language, stack string) string {
	sum := sha256.Sum256([]byte(stack))
	return startPrefix + language + "-" + hex.EncodeToString(sum[:8])
}

// Start returns the file of the cache that a new app in this language begins with, and
// whether it exists. Only dewd fills it: no app can change what another app builds.
func (c *Caches) Start(language, stack string) (string, bool) {
	name := startName(language, stack)
	if !c.Has(name) {
		return "", false
	}
	now := time.Now()
	_ = os.Chtimes(c.File(name), now, now) // at worst it is created again after 30 days
	return c.File(name), true
}

// NeedsStart reports whether there is no start cache for this version of the language.
func (c *Caches) NeedsStart(language, stack, version string) bool {
	name := startName(language, stack)
	stored, err := c.generations.Get(name)
	return c.dir != "" && (err != nil || stored != version || !c.Has(name))
}

// StoreStart stores the cache for new apps in this language.
func (c *Caches) StoreStart(ctx context.Context, language, stack, version string, files packer) error {
	name := startName(language, stack)
	if err := c.store(ctx, c.File(name), files); err != nil {
		return err
	}
	if err := c.generations.Put(name, version); err != nil {
		return fmt.Errorf("cannot store the version of the build cache: %w", err)
	}
	return nil
}

func removeUnused(name string) error {
	st, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) || err == nil && time.Since(st.ModTime()) < maxUnused {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(name)
}
