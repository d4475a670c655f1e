package droplet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

// The states of a buildpack, as in Cloud Foundry.
const (
	BuildpackAwaiting = "AWAITING_UPLOAD"
	BuildpackReady    = "READY"
)

// Errors that callers can check for.
var (
	ErrBuildpackTaken  = errors.New("a buildpack with this name and stack already exists")
	ErrBuildpackLocked = errors.New("the buildpack is locked: unlock it first")
	ErrBuildpackName   = errors.New("the buildpack is built in and cannot be renamed: disable it, and create a buildpack with another name")
	ErrBuildpackOwn    = errors.New("the buildpack is built in and cannot be deleted: disable it instead")
)

// CatalogOptions says where uploaded buildpacks are stored, and their size limits.
type CatalogOptions struct {
	Packages PackageOptions // Dir is used by the catalog alone
	// Stack refuses a stack that a buildpack cannot be for. Nil means stack.Check.
	Stack func(name string) error
	// Programs is a folder with the programs of built-in buildpacks: dew-static and
	// dew-buildpack. If one is missing, the buildpacks report that.
	Programs string
	Logger   *slog.Logger
}

// Catalog stores the built-in and the uploaded buildpacks. Apps can name them; for
// other apps, detection tries them in order. Many goroutines can use it.
type Catalog struct {
	o     PackageOptions
	tools archive.Programs
	pool  *pool.Pool
	db    *store.DB
	packs store.Bucket[Buildpack]
	stack func(name string) error
	mu    sync.Mutex // held while buildpacks change, because a change can move the others
}

// NewCatalog returns the buildpacks with files in o.Packages.Dir, and creates the
// folder if necessary. A folder must have only one Catalog.
func NewCatalog(db *store.DB, o CatalogOptions) (*Catalog, error) {
	c := &Catalog{o: o.Packages, tools: archive.Programs{Dir: o.Programs, Time: pool.Time}, db: db, packs: store.In(db, "buildpacks",
		store.Index("sha256", func(b Buildpack) string { return b.SHA256 }))}
	if c.stack = o.Stack; c.stack == nil {
		c.stack = stack.Check
	}
	c.o.MaxBytes = cmp.Or(c.o.MaxBytes, defaultMaxBytes)
	c.o.MaxFiles = cmp.Or(c.o.MaxFiles, defaultMaxFiles)
	c.o.MaxFileBytes = min(cmp.Or(c.o.MaxFileBytes, c.o.MaxBytes), c.o.MaxBytes)
	var err error
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if c.pool, err = pool.Open(db, c.o.Dir, log); err != nil {
		return nil, err
	}
	if err := c.Sweep(); err != nil {
		log.Warn("cannot update the built-in buildpacks", "err", err)
	}
	return c, nil
}

// Sweep adds the built-in buildpacks that are missing, and removes the files of deleted
// buildpacks. It returns an error for each that it cannot add or remove.
func (c *Catalog) Sweep() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.addBuiltIn(), c.pool.Sweep(c.named))
}

// addBuiltIn adds missing built-in buildpacks. The caller holds the lock.
func (c *Catalog) addBuiltIn() error {
	var errs []error
	for _, b := range Buildpacks() {
		_, err := c.packs.Get(b.GUID)
		if errors.Is(err, store.ErrNotFound) {
			_, err = c.place(b, 0)
		}
		if err != nil { // such as an uploaded buildpack with the same name
			errs = append(errs, fmt.Errorf("cannot store the built-in buildpack %s: %w", b.Name, err))
		}
	}
	return errors.Join(errs...)
}

// All returns the buildpacks by position.
func (c *Catalog) All() ([]Buildpack, error) {
	all, err := c.packs.All()
	if err != nil {
		return nil, fmt.Errorf("cannot read buildpacks: %w", err)
	}
	slices.SortFunc(all, func(a, b Buildpack) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.GUID, b.GUID))
	})
	return all, nil
}

// Get returns the buildpack with guid, or ErrNotFound.
func (c *Catalog) Get(guid string) (Buildpack, error) {
	b, err := c.packs.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return b, fmt.Errorf("buildpack %s: %w", guid, ErrNotFound)
	}
	if err != nil {
		return b, fmt.Errorf("cannot read buildpack %s: %w", guid, err)
	}
	return b, nil
}

// Create creates a buildpack without bits. Its position moves others back. Position 0,
// or one after the last, means the end.
func (c *Catalog) Create(b Buildpack) (Buildpack, error) {
	b = Buildpack{
		GUID: uuid.NewString(), Name: b.Name, Stack: b.Stack, Position: b.Position, Enabled: b.Enabled, Locked: b.Locked,
		State: BuildpackAwaiting, CreatedAt: time.Now().UTC(), Metadata: b.Metadata,
	}
	b.UpdatedAt = b.CreatedAt
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.place(b, b.Position)
}

// Update changes a buildpack. Changes of its identity and bits by fn are ignored.
func (c *Catalog) Update(guid string, fn func(b *Buildpack) error) (Buildpack, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, err := c.Get(guid)
	if err != nil {
		return old, err
	}
	b := old
	if err := fn(&b); err != nil {
		return old, err
	}
	if b.BuiltIn && b.Name != old.Name {
		return old, fmt.Errorf("buildpack '%s': %w", old.Name, ErrBuildpackName)
	}
	b.GUID, b.BuiltIn, b.SHA256, b.State, b.CreatedAt = old.GUID, old.BuiltIn, old.SHA256, old.State, old.CreatedAt
	b.UpdatedAt = time.Now().UTC()
	return c.place(b, b.Position)
}

// place stores b at a position and renumbers the others. The caller holds the lock.
func (c *Catalog) place(b Buildpack, position int) (Buildpack, error) {
	if err := c.checkBuildpack(b); err != nil {
		return b, err
	}
	all, err := c.All()
	if err != nil {
		return b, err
	}
	all = slices.DeleteFunc(all, func(o Buildpack) bool { return o.GUID == b.GUID })
	for _, o := range all {
		if o.Name == b.Name && o.Stack == b.Stack {
			return b, fmt.Errorf("buildpack '%s': %w", b.Name, ErrBuildpackTaken)
		}
	}
	if position <= 0 || position > len(all)+1 {
		position = len(all) + 1
	}
	all = slices.Insert(all, position-1, b)
	b.Position = position
	return b, c.number(all)
}

// number numbers the buildpacks from 1 and stores those that changed.
func (c *Catalog) number(all []Buildpack) error {
	return c.db.Update(func(tx *store.Tx) error {
		for i, b := range all {
			b.Position = i + 1
			if err := c.packs.With(tx).Put(b.GUID, b); err != nil {
				return fmt.Errorf("cannot store buildpack %s: %w", b.Name, err)
			}
		}
		return nil
	})
}

func (c *Catalog) checkBuildpack(b Buildpack) error {
	if b.Name == "" || len(b.Name) > pool.MaxName || strings.ContainsAny(b.Name, "/\\\n\r\t\x00") || strings.Contains(b.Name, "://") {
		return &app.Invalid{Key: "name", Message: fmt.Sprintf("must have 1 to %d characters, without slashes, tabs and line breaks, not %q", pool.MaxName, b.Name)}
	}
	if err := c.stack(b.Stack); err != nil {
		return &app.Invalid{Key: "stack", Message: err.Error()}
	}
	return b.Metadata.Validate()
}

// Upload sets the bits of a buildpack: a zip of size bytes. A refusal is a
// *PackageError. A locked buildpack keeps its bits.
func (c *Catalog) Upload(ctx context.Context, guid, filename string, zip io.ReaderAt, size int64) (Buildpack, error) {
	b, err := c.Get(guid)
	if err != nil {
		return b, err
	}
	if b.Locked {
		return b, fmt.Errorf("buildpack '%s': %w", b.Name, ErrBuildpackLocked)
	}
	bits, err := pool.ReadUpload(pool.Claim{}, zip, size, c.o.limits())
	if err != nil {
		return b, err
	}
	if err := checkScripts(bits); err != nil {
		return b, err
	}
	sha, done, err := c.pool.Add(ctx, bits)
	if err != nil {
		return b, fmt.Errorf("cannot store buildpack %s: %w", b.Name, err)
	}
	defer done()
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err = c.packs.Update(guid, func(b *Buildpack) error {
		b.SHA256, b.Filename, b.State, b.UpdatedAt = sha, filename, BuildpackReady, time.Now().UTC()
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return b, fmt.Errorf("buildpack %s: %w", guid, ErrNotFound) // deleted since
	}
	if err != nil {
		return b, fmt.Errorf("cannot store buildpack %s: %w", guid, err)
	}
	return b, c.pool.Collect(c.named)
}

// buildpackScript matches the scripts of which a buildpack needs at least one. They can
// be in one top folder.
var buildpackScript = regexp.MustCompile(`^([^/]+/)?bin/(detect|compile|supply|finalize)$`)

// checkScripts refuses an upload that cannot be a buildpack, before an app uses it.
func checkScripts(b *pool.Upload) error {
	for _, e := range b.Entries {
		if buildpackScript.MatchString(e.Path) {
			return nil
		}
	}
	return &pool.Error{Reason: "is not a buildpack: it has neither bin/detect, bin/supply, bin/finalize nor bin/compile"}
}

// Delete deletes a buildpack, and the following ones move up. For a built-in buildpack,
// it only deletes the uploaded version; the position stays.
func (c *Catalog) Delete(guid string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := c.Get(guid)
	switch {
	case err != nil:
		return err
	case b.BuiltIn && b.SHA256 == "":
		return fmt.Errorf("buildpack '%s': %w", b.Name, ErrBuildpackOwn)
	case b.BuiltIn:
		return c.restore(b)
	}
	if err := c.packs.Delete(guid); err != nil {
		return fmt.Errorf("cannot remove buildpack %s: %w", b.Name, err)
	}
	all, err := c.All()
	if err != nil {
		return err
	}
	return errors.Join(c.number(all), c.pool.Collect(c.named))
}

// restore restores the bits of a built-in buildpack. The caller holds the lock.
func (c *Catalog) restore(b Buildpack) error {
	b.SHA256, b.Filename, b.State, b.Locked, b.UpdatedAt = "", "", BuildpackReady, true, time.Now().UTC()
	if err := c.packs.Put(b.GUID, b); err != nil {
		return fmt.Errorf("cannot restore buildpack %s: %w", b.Name, err)
	}
	return c.pool.Collect(c.named)
}

// Check returns a *BuildpackError for the first name that no buildpack has.
func (c *Catalog) Check(names []string) error {
	all, err := c.All()
	if err != nil {
		return err
	}
	return CheckBuildpacks(names, all...)
}

// named reports whether a buildpack has the tree.
func (c *Catalog) named(sha string) (bool, error) {
	bs, err := c.packs.By("sha256", sha)
	return len(bs) > 0, err
}
