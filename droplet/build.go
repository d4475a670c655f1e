package droplet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/buildcache"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

// ErrNotReady is the error of a build whose package has no bits.
var ErrNotReady = errors.New("cannot stage package whose state is not ready")

// BuildState is the state of a build.
type BuildState string

// The states of a build, as in Cloud Foundry.
const (
	BuildStaging BuildState = "STAGING"
	BuildStaged  BuildState = "STAGED"
	BuildFailed  BuildState = "FAILED"
)

// How many builds and droplets an app keeps.
const (
	keepBuilds   = 20
	keepDroplets = 5
)

// BuildRequest requests a droplet from a package.
type BuildRequest struct {
	Package    string   // guid
	Stack      string   // empty: the default stack
	Buildpacks []string // names as in the manifest
	Fresh      bool     // stage again even if an earlier result could be used
	By         app.Actor
	Metadata   app.Metadata
}

// Build stages a package. Its result is a droplet.
type Build struct {
	GUID       string     `json:"guid"`
	App        string     `json:"app"`     // guid
	Package    string     `json:"package"` // guid
	Stack      string     `json:"stack,omitempty"`
	Buildpacks []string   `json:"buildpacks,omitempty"`
	Fresh      bool       `json:"fresh,omitempty"`
	State      BuildState `json:"state"`
	Error      string     `json:"error,omitempty"`   // reason why it is FAILED
	Droplet    string     `json:"droplet,omitempty"` // guid, if it is STAGED
	By         app.Actor  `json:"by,omitzero"`       // user who started the build
	CreatedAt  time.Time  `json:"created_at"`
	UpdatedAt  time.Time  `json:"updated_at"`

	Metadata app.Metadata `json:"metadata,omitzero"`
}

// BuildOptions are the dependencies and settings of builds.
type BuildOptions struct {
	Stacks func(name string) (stack.Stack, error)
	Say    func(app, line string) // gets the [STG/0] lines; nil: they are dropped
	// Printed returns the newest lines that the build of an app has printed to stderr
	// since then, oldest first. Nil means that they are not stored.
	Printed func(app string, since time.Time) []string
	// InUse returns the guids of droplets that apps run or will run, as seen by the
	// transaction. They are never collected. If it returns nil, the droplets in use are
	// not known and none is collected.
	InUse func(tx *store.Tx) map[string]bool
	// Built is called when the image of a new droplet can be opened, before it is on disk
	// and the droplet is stored. It must be quick, and can be nil.
	Built func(app, stack, image string)
	// Collected is called after images were removed. It must be quick, and can be nil.
	Collected func()
	// Ended is called after a build and its container are finished. It must be quick,
	// and can be nil.
	Ended  func()
	Logger *slog.Logger

	// Builder runs buildpacks. Without it, only the binary buildpack is available.
	Builder    Builder
	Catalog    *Catalog      // catalog of buildpacks, required with a Builder
	StackStore *stack.Stacks // has the images of image apps, and Run also runs it (nil: none)
	// Env returns the variables of an app for staging. Nil means none.
	Env func(app string) (map[string]string, error)
	// Buildpacks returns the names of the buildpacks of all apps. Uploaded folders that
	// are not among them are collected. Nil means that no folder is collected.
	Buildpacks func() ([]string, error)
	// Bindings returns the present service bindings of an app. A build stores them in
	// its droplet. Nil means none.
	Bindings func(app string) (Bindings, error)
	Version  string // of the built-in buildpacks
	CacheDir string // folder of the build caches (empty: no caches)
	// StartCaches lets new apps begin with a cache that dewd creates after the first
	// build in their language.
	StartCaches bool
	MemoryMB    int           // limit of a staging (0: DefaultStagingMemoryMB)
	DiskMB      int           // limit of a staging (0: DefaultStagingDiskMB)
	Timeout     time.Duration // limit of a staging (0: DefaultStagingTimeout)
	Parallel    int           // builds of different apps at the same time (0: 1)
}

// Builds creates droplets from packages. Many goroutines can use it.
type Builds struct {
	packages *Packages
	droplets *Droplets
	o        BuildOptions
	caches   *buildcache.Caches
	buildQueue

	record func(tx *store.Tx, w Build, d *Droplet) error
}

// NewBuilds returns the builds of p's packages. s stores the droplets; Run stages.
func NewBuilds(db *store.DB, p *Packages, s *Droplets, o BuildOptions) *Builds {
	if o.Say == nil {
		o.Say = func(string, string) {}
	}
	if o.Printed == nil {
		o.Printed = func(string, time.Time) []string { return nil }
	}
	if o.InUse == nil {
		o.InUse = func(*store.Tx) map[string]bool { return nil }
	}
	if o.Env == nil {
		o.Env = func(string) (map[string]string, error) { return nil, nil }
	}
	if o.Built == nil {
		o.Built = func(app, stack, image string) {}
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.MemoryMB, o.DiskMB = cmp.Or(o.MemoryMB, DefaultStagingMemoryMB), cmp.Or(o.DiskMB, DefaultStagingDiskMB)
	o.Timeout, o.Parallel = cmp.Or(o.Timeout, DefaultStagingTimeout), cmp.Or(o.Parallel, 1)
	return &Builds{
		packages: p, droplets: s, o: o,
		caches: buildcache.New(db, o.CacheDir, int64(o.DiskMB)<<20, maxStagedFiles),
		buildQueue: buildQueue{
			builds: store.In(db, "builds",
				store.Index("app", func(b Build) string { return b.App }),
				store.Index("state", func(b Build) string { return string(b.State) })),
			parallel: o.Parallel, ended: o.Ended, wake: make(chan struct{}, 1), starts: make(chan startWork, 1),
			running: map[string]runningBuild{}, tried: map[string]bool{},
		},
		record: func(*store.Tx, Build, *Droplet) error { return nil },
	}
}

// Caches returns the build caches.
func (b *Builds) Caches() *buildcache.Caches { return b.caches }

// Record sets the function that records builds. It is called for every new build, with
// a nil droplet, and for every new droplet, in the transaction that stores them. Call
// Record before Run and Create.
func (b *Builds) Record(fn func(tx *store.Tx, w Build, d *Droplet) error) { b.record = fn }

// Create creates a build. If the same bits were staged in the same way before, the
// build is STAGED at once. Otherwise it is stored, and Run stages it.
func (b *Builds) Create(ctx context.Context, r BuildRequest) (Build, error) {
	if err := errors.Join(ctx.Err(), b.checkNames(r.Buildpacks)); err != nil {
		return Build{}, err
	}
	k, err := b.packages.Get(r.Package)
	if err != nil {
		return Build{}, err
	}
	if k.State != PackageReady {
		return Build{}, fmt.Errorf("package %s is %s: %w", k.GUID, k.State, ErrNotReady)
	}
	now := time.Now().UTC()
	w := Build{
		GUID: uuid.NewString(), App: k.App, Package: k.GUID,
		Stack: r.Stack, Buildpacks: slices.Clone(r.Buildpacks), Fresh: r.Fresh,
		State: BuildStaging, By: r.By, CreatedAt: now, UpdatedAt: now, Metadata: r.Metadata,
	}
	if done, ok, err := b.reuse(w, k); err != nil || ok {
		return done, err
	}
	if err := b.droplets.db.Update(func(tx *store.Tx) error { return b.begin(tx, w) }); err != nil {
		return Build{}, fmt.Errorf("cannot create build: %w", err)
	}
	b.wakeRun()
	return w, nil
}

func (b *Builds) begin(tx *store.Tx, w Build) error {
	if err := b.builds.With(tx).Put(w.GUID, w); err != nil {
		return err
	}
	return b.record(tx, w, nil)
}

// reuse finishes a new build with the image of an earlier build, if there is one.
func (b *Builds) reuse(w Build, k Package) (Build, bool, error) {
	if w.Fresh || k.Type == PackageDocker {
		return w, false, nil // only the registry has the current image
	}
	st, err := b.o.Stacks(w.Stack)
	if err != nil {
		return w, false, nil // staging finds the same error and reports it
	}
	packs, err := b.choose(w, st)
	if err != nil {
		return w, false, nil // so does this one
	}
	g, err := b.stagingInput(w.App)
	if err != nil {
		return w, false, nil // and this one
	}
	old, ok, err := b.droplets.made(b.reuseKey(k, st, packs, g))
	if err != nil || !ok {
		return w, false, err
	}
	d := old
	d.GUID, d.App, d.Package, d.CreatedAt = uuid.NewString(), w.App, w.Package, time.Time{}
	d.UpdatedAt, d.Metadata, d.Bindings = time.Time{}, app.Metadata{}, g.bindings
	w.State, w.Droplet = BuildStaged, d.GUID
	err = b.droplets.storeIn(d, func(tx *store.Tx) error {
		if err := b.begin(tx, w); err != nil {
			return err
		}
		return b.record(tx, w, &d)
	})
	if errors.Is(err, ErrNoImage) {
		return w, false, nil // it is created again
	}
	if err != nil {
		return w, false, err
	}
	logStaging(b.o.Say, w, k, st)
	b.o.Say(w.App, fmt.Sprintf("Nothing has changed: using image %.12s again", d.Image))
	b.cleanUp(w.App)
	return w, true, nil
}

// Get returns the build with guid, or ErrNotFound.
func (b *Builds) Get(guid string) (Build, error) {
	w, err := b.builds.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return w, fmt.Errorf("build %s: %w", guid, ErrNotFound)
	}
	if err != nil {
		return w, fmt.Errorf("cannot read build %s: %w", guid, err)
	}
	return w, nil
}

// All returns the builds of all apps, newest first.
func (b *Builds) All() ([]Build, error) {
	all, err := b.builds.All()
	if err != nil {
		return nil, fmt.Errorf("cannot read builds: %w", err)
	}
	slices.SortFunc(all, func(a, b Build) int { return -oldestBuild(a, b) })
	return all, nil
}

// UpdateMetadata changes the metadata of a build.
func (b *Builds) UpdateMetadata(guid string, c app.MetadataChange) (Build, error) {
	return updateMetadata(b.builds, "build "+guid, guid, func(w *Build) *app.Metadata {
		w.UpdatedAt = time.Now().UTC()
		w.Metadata = w.Metadata.Merge(c)
		return &w.Metadata
	})
}

// OfApp returns the builds of an app, newest first.
func (b *Builds) OfApp(app string) ([]Build, error) {
	all, err := b.builds.By("app", app)
	if err != nil {
		return nil, fmt.Errorf("cannot read builds: %w", err)
	}
	slices.SortFunc(all, func(a, b Build) int { return -oldestBuild(a, b) })
	return all, nil
}

func oldestBuild(a, b Build) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.GUID, b.GUID))
}

// DeleteApp deletes the builds, droplets and packages of an app.
func (b *Builds) DeleteApp(app string) error {
	all, err := b.OfApp(app)
	if err != nil {
		return err
	}
	if err := b.remove(all); err != nil {
		return err
	}
	b.cancel(app)
	ds, err := b.droplets.OfApp(app)
	if err != nil {
		return err
	}
	if err := b.droplets.remove(ds); err != nil {
		return err
	}
	if err := errors.Join(b.packages.DeleteApp(app), b.caches.Delete(app)); err != nil {
		return err
	}
	return errors.Join(b.collectImages(), b.collectFolders())
}

func (b *Builds) remove(ws []Build) error {
	for _, w := range ws {
		if err := b.builds.Delete(w.GUID); err != nil {
			return fmt.Errorf("cannot remove build %s: %w", w.GUID, err)
		}
	}
	return nil
}

// built returns a function that reports the image of a new droplet.
func built(b *Builds, d Droplet) func(sha string) {
	return func(sha string) { b.o.Built(d.App, d.Stack, sha) }
}

// staged stores the droplet and the build in one transaction. From then on, the app can
// start with it.
func (b *Builds) staged(w Build, d Droplet) error {
	defer b.droplets.releaseImage(d.Image)
	err := b.droplets.storeIn(d, func(tx *store.Tx) error {
		_, err := b.builds.With(tx).Update(w.GUID, func(w *Build) error {
			w.State, w.Droplet, w.UpdatedAt = BuildStaged, d.GUID, time.Now().UTC()
			return nil
		})
		if err != nil {
			return err
		}
		return b.record(tx, w, &d)
	})
	if err == nil {
		b.o.Logger.Info("staged", "app", w.App, "build", w.GUID, "droplet", d.GUID, "image", d.Image)
	}
	return err
}

// storeRetry is the time between two attempts to store a failed build.
const storeRetry = 5 * time.Second

// failed stores why a build failed. While the store cannot be written, for example on a
// full disk, it tries again. If ctx ends before that, the next daemon stages again.
func (b *Builds) failed(ctx context.Context, w Build, why error) {
	b.o.Say(w.App, "Staging failed: "+why.Error())
	b.o.Logger.Warn("staging failed", "app", w.App, "build", w.GUID, "err", why)
	for {
		err := storeFailure(b, w, why)
		if err == nil || errors.Is(err, store.ErrNotFound) {
			return
		}
		b.o.Logger.Error("cannot store a failed build; dewd tries again", "build", w.GUID, "err", err)
		select {
		case <-time.After(storeRetry):
		case <-ctx.Done():
			return
		}
	}
}

func storeFailure(b *Builds, w Build, why error) error {
	return b.droplets.db.Update(func(tx *store.Tx) error {
		w, err := b.builds.With(tx).Update(w.GUID, func(w *Build) error {
			w.State, w.Error, w.UpdatedAt = BuildFailed, why.Error(), time.Now().UTC()
			return nil
		})
		if err != nil {
			return err
		}
		return b.record(tx, w, nil)
	})
}

// logStaging logs what is staged, and which stack replaces a missing one.
func logStaging(say func(app, line string), w Build, k Package, st stack.Stack) {
	say(w.App, fmt.Sprintf("Staging package %.12s (%s)", k.SHA256, archive.Size(k.Size)))
	if w.Stack != "" && w.Stack != st.Name {
		say(w.App, fmt.Sprintf("Stack '%s' does not exist here: using stack '%s'", w.Stack, st.Name))
	}
}

// cleanUp collects after a build. An error in it does not fail the build.
func (b *Builds) cleanUp(app string) {
	if err := b.collect(app); err != nil {
		b.o.Logger.Warn("cannot remove old droplets", "app", app, "err", err)
	}
}

// collect removes the surplus builds and droplets of an app.
func (b *Builds) collect(app string) error {
	all, err := b.OfApp(app)
	if err != nil {
		return err
	}
	var old []Build
	for i, w := range all {
		if i >= keepBuilds && w.State != BuildStaging {
			old = append(old, w)
		}
	}
	if err := b.remove(old); err != nil {
		return err
	}
	ds, err := b.droplets.OfApp(app)
	if err != nil {
		return err
	}
	if err := b.droplets.removeUnused(ds[min(keepDroplets, len(ds)):], b.o.InUse); err != nil {
		return err
	}
	return errors.Join(b.collectImages(), b.collectFolders())
}

func (b *Builds) collectImages() error {
	removed, err := b.droplets.Collect()
	for _, sha := range removed {
		b.o.Logger.Info("deleted unused image", "image", sha)
	}
	if len(removed) > 0 && b.o.Collected != nil {
		b.o.Collected()
	}
	if b.o.StackStore == nil || !b.o.StackStore.StoresImages() {
		return err
	}
	return errors.Join(err, b.o.StackStore.DropUnusedImages(b.droplets.stacks))
}
