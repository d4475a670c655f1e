package droplet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

// buildQueue holds the builds, and those that are being staged.
type buildQueue struct {
	builds   store.Bucket[Build]
	parallel int           // maximum number of builds at the same time
	ended    func()        // called after each build (nil: none)
	wake     chan struct{} // wakes Run, because there can be a build to stage
	starts   chan startWork

	mu      sync.Mutex
	running map[string]runningBuild // by build, guarded by mu
	tried   map[string]bool         // start caches by stack and version, guarded by mu
}

// wakeRun makes Run check for builds to stage.
func (q *buildQueue) wakeRun() {
	select {
	case q.wake <- struct{}{}:
	default: // Run is awake already
	}
}

// Run stages builds until ctx is done, first those that an earlier daemon did not
// finish. If ctx interrupts a build, the next daemon stages it again. Run returns an
// error only if the store cannot be read.
func (b *Builds) Run(ctx context.Context) error {
	if err := errors.Join(b.collectImages(), sweepCaches(b), b.collectFolders()); err != nil {
		b.o.Logger.Warn("cannot remove old images", "err", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	if b.o.StackStore != nil && b.o.StackStore.StoresImages() {
		g.Go(func() error { return b.o.StackStore.Run(ctx) })
	}
	for ctx.Err() == nil {
		if err := b.startAll(ctx, g); err != nil {
			g.Go(func() error { return err }) // stops the others
		}
		select {
		case <-b.wake:
		case w := <-b.starts:
			g.Go(func() error {
				createStartCache(ctx, b, w)
				return nil
			})
		case <-ctx.Done():
		}
	}
	return g.Wait()
}

// startAll starts every build that can be staged now.
func (b *Builds) startAll(ctx context.Context, g *errgroup.Group) error {
	for ctx.Err() == nil {
		w, own, err := b.next(ctx)
		if err != nil || own == nil {
			return err
		}
		g.Go(func() error {
			defer b.wakeRun()
			defer b.end(w.GUID)
			b.run(own, w)
			return nil
		})
	}
	return nil
}

// runningBuild is a build that is being staged.
type runningBuild struct {
	app    string
	aside  bool // it creates a start cache, and no build waits for it
	cancel context.CancelCauseFunc
}

// next returns the oldest build that can be staged now, with its own context. It
// returns an empty build if there is none. Builds of one app are staged one after the
// other, because they share a cache. next reads the store under the lock. Otherwise a
// build that finishes now would be neither running nor done, and would be staged twice.
func (q *buildQueue) next(ctx context.Context) (w Build, own context.Context, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	busy := map[string]bool{}
	for _, u := range q.running {
		if !u.aside {
			busy[u.app] = true
		}
	}
	if len(busy) >= q.parallel {
		return w, nil, nil
	}
	todo, err := q.builds.By("state", string(BuildStaging))
	if err != nil {
		return w, nil, fmt.Errorf("cannot read builds: %w", err)
	}
	todo = slices.DeleteFunc(todo, func(w Build) bool { return busy[w.App] })
	if len(todo) == 0 {
		return w, nil, nil
	}
	w = slices.MinFunc(todo, oldestBuild)
	own, cancel := context.WithCancelCause(ctx)
	q.running[w.GUID] = runningBuild{app: w.App, cancel: cancel}
	return w, own, nil
}

// aside registers the creation of a start cache. It returns a nil function if the same one
// is being created, or has failed before. The function gets whether it can be tried again.
func (q *buildQueue) aside(ctx context.Context, w startWork) (own context.Context, done func(again bool)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := w.stack.ID + " " + w.version
	if q.tried[key] || len(q.tried) >= maxTried {
		return nil, nil
	}
	q.tried[key] = true
	own, cancel := context.WithCancelCause(ctx)
	guid := uuid.NewString()
	q.running[guid] = runningBuild{app: w.app, aside: true, cancel: cancel}
	return own, func(again bool) {
		q.end(guid)
		if !again {
			return
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.tried, key)
	}
}

// maxTried limits how many start caches are tried. A build can report any version.
const maxTried = 100

func (q *buildQueue) end(guid string) {
	q.mu.Lock()
	q.running[guid].cancel(nil)
	delete(q.running, guid)
	q.mu.Unlock()
	if q.ended != nil {
		q.ended()
	}
}

// Apps returns the guids of apps that are being staged, even if they were deleted
// since.
func (q *buildQueue) Apps() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []string
	for _, u := range q.running {
		out = append(out, u.app)
	}
	return out
}

var errAppDeleted = errors.New("the app was deleted")

// cancel stops the staging of an app.
func (q *buildQueue) cancel(app string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, u := range q.running {
		if u.app == app {
			u.cancel(errAppDeleted)
		}
	}
}

// run stages one build and stores the result.
func (b *Builds) run(ctx context.Context, w Build) {
	if b.o.StackStore != nil {
		defer b.o.StackStore.ReleaseImage(w.GUID) // by then a droplet uses it, or none ever will
	}
	err := b.stage(ctx, w)
	gone := errors.Is(context.Cause(ctx), errAppDeleted)
	if err != nil && ctx.Err() != nil && !gone {
		b.o.Logger.Info("staging interrupted: dewd stages the app again after its next start", "app", w.App, "build", w.GUID)
		return
	}
	defer b.cleanUp(w.App)
	if gone || errors.Is(err, store.ErrNotFound) { // its app was deleted since
		if err := b.caches.Delete(w.App); err != nil {
			b.o.Logger.Warn("cannot delete the build cache of a deleted app", "app", w.App, "err", err)
		}
		return
	}
	if err != nil {
		b.failed(ctx, w, err)
	}
}

// stage creates and stores the droplet of a build.
func (b *Builds) stage(ctx context.Context, w Build) error {
	k, err := b.packages.Get(w.Package)
	if errors.Is(err, ErrNotFound) {
		return errors.New("the package was deleted: push the app again")
	}
	if err != nil {
		return err
	}
	if k.Type == PackageDocker {
		d, err := b.stageImage(ctx, w, k)
		if err != nil {
			return err
		}
		return b.staged(w, d)
	}
	st, err := b.o.Stacks(w.Stack)
	if err != nil {
		return err
	}
	packs, err := b.choose(w, st)
	if err != nil {
		return err
	}
	logStaging(b.o.Say, w, k, st)
	if err := b.packages.Space(); err != nil {
		return err
	}
	if onlyBinary(packs) {
		d, err := b.stageBinary(ctx, w, k, st)
		if err != nil {
			return err
		}
		return b.staged(w, d)
	}
	return b.stageWith(ctx, w, k, st, packs)
}

// StackStore returns the stacks of builds: at least the machine's own.
func (b *Builds) StackStore() *stack.Stacks {
	if b.o.StackStore == nil {
		return stack.New(stack.HostOptions{})
	}
	return b.o.StackStore
}

// Limits returns the limits of one staging, in MB.
func (b *Builds) Limits() (memory, disk int) { return b.o.MemoryMB, b.o.DiskMB }

// checkNames refuses invalid names of buildpacks, before a build starts.
func (b *Builds) checkNames(names []string) error {
	if b.o.Catalog == nil {
		return CheckBuildpacks(names)
	}
	return b.o.Catalog.Check(names)
}

// choose returns the buildpacks of a build.
func (b *Builds) choose(w Build, st stack.Stack) ([]chosen, error) {
	if b.o.Builder != nil {
		return b.o.Catalog.choose(w.Buildpacks, st, b.packages)
	}
	for _, name := range w.Buildpacks {
		if name != BinaryBuildpack && name != "binary" {
			return nil, &BuildpackError{Name: WithoutSecret(name), Reason: "this dewd does not run buildpacks"}
		}
	}
	return asPushed(), nil
}

// reuseKey returns a key that is the same for builds with the same result. It is empty
// if that is not known. The result of buildpacks also depends on the app: on its name,
// and on its cache, which its developers can fill. So the key is different for every
// app, and after the caches were cleared.
func (b *Builds) reuseKey(k Package, st stack.Stack, packs []chosen, g stagingInput) string {
	const rules = 4 // increased when staging gives a different result
	keys := keysOf(packs)
	if keys == "" {
		return ""
	}
	h := sha256.New()
	if onlyBinary(packs) {
		// The files do not depend on variables and services.
		fmt.Fprintf(h, "%d %s %q %q", rules, k.SHA256, st.ID, BinaryBuildpack)
		return hex.EncodeToString(h.Sum(nil))
	}
	fmt.Fprintf(h, "%d %s %q %q %q %q", rules, k.SHA256, st.ID, keys, k.App, b.caches.Generation(k.App))
	for _, name := range slices.Sorted(maps.Keys(g.env)) {
		fmt.Fprintf(h, " %q=%q", name, g.env[name])
	}
	fmt.Fprintf(h, " %q", g.bindings.Variable())
	return hex.EncodeToString(h.Sum(nil))
}
