package droplet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

// Errors that callers can check for.
var (
	ErrUploaded = errors.New("bits may be uploaded only once: create a new package to upload different bits")
	ErrNoSpace  = errors.New("the disk is nearly full")
)

// PackageState is the state of a package.
type PackageState string

// The states of a package, as in Cloud Foundry.
const (
	PackageAwaiting   PackageState = "AWAITING_UPLOAD"
	PackageProcessing PackageState = "PROCESSING_UPLOAD"
	PackageReady      PackageState = "READY"
	PackageFailed     PackageState = "FAILED"
)

// PackageBits is the type of packages that consist of pushed files.
const PackageBits = "bits"

// Package is a set of pushed files, or an image.
type Package struct {
	GUID      string             `json:"guid"`
	App       string             `json:"app"` // guid
	Type      string             `json:"type"`
	State     PackageState       `json:"state"`
	SHA256    string             `json:"sha256,omitempty"` // name of its tree: equal files, equal name
	Size      int64              `json:"size,omitempty"`   // bytes of its files together
	Error     string             `json:"error,omitempty"`  // reason why it is FAILED
	CreatedAt time.Time          `json:"created_at"`
	UpdatedAt time.Time          `json:"updated_at"`
	Metadata  app.Metadata       `json:"metadata,omitzero"`
	Image     *stack.ImageSource `json:"image,omitempty"` // only of PackageDocker
}

// Default limits of PackageOptions: the size of an upload, and the free disk space.
const (
	defaultMaxBytes = 1 << 30
	defaultMaxFiles = 100_000
	defaultMinFree  = 1 << 30
)

// keepPackages is the number of packages that an app keeps.
const keepPackages = 5

// PackageOptions says where packages are stored, and their size limits.
type PackageOptions struct {
	Dir          string // folder of the trees
	MaxBytes     int64  // bytes of all files of a package, unpacked (0: 1 GiB)
	MaxFiles     int64  // entries of a package (0: 100,000)
	MaxFileBytes int64  // bytes of one file, unpacked (0: MaxBytes)
	MinFree      int64  // free bytes that the disk must have for an upload or a build (0: 1 GiB, negative: no limit)
	Logger       *slog.Logger
}

func (o PackageOptions) limits() pool.Limits {
	return pool.Limits{MaxBytes: o.MaxBytes, MaxFiles: o.MaxFiles, MaxFileBytes: o.MaxFileBytes}
}

// Packages stores packages: their records in the store, their trees as files. Many
// goroutines can use it.
type Packages struct {
	o        PackageOptions
	pool     *pool.Pool
	packages store.Bucket[Package]
	folders  store.Bucket[BuildpackFolder]

	mu   sync.Mutex
	busy map[string]bool // packages that are being uploaded; guarded by mu
}

// NewPackages returns the packages with trees in o.Dir, and creates the folder if
// necessary. It removes the files of interrupted uploads, so a folder must have only
// one Packages.
func NewPackages(db *store.DB, o PackageOptions) (*Packages, error) {
	o.MaxBytes = cmp.Or(o.MaxBytes, defaultMaxBytes)
	o.MaxFiles = cmp.Or(o.MaxFiles, defaultMaxFiles)
	o.MaxFileBytes = min(cmp.Or(o.MaxFileBytes, o.MaxBytes), o.MaxBytes)
	o.MinFree = cmp.Or(o.MinFree, defaultMinFree)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	p := &Packages{
		o:    o,
		busy: map[string]bool{},
		packages: store.In(db, "packages",
			store.Index("app", func(p Package) string { return p.App }),
			store.Index("sha256", func(p Package) string { return p.SHA256 })),
		folders: store.In(db, "buildpack_folders",
			store.Index("name", func(f BuildpackFolder) string { return f.Name }),
			store.Index("sha256", func(f BuildpackFolder) string { return f.SHA256 })),
	}
	var err error
	if p.pool, err = pool.Open(db, o.Dir, o.Logger); err != nil {
		return nil, err
	}
	if err := p.Sweep(); err != nil {
		o.Logger.Warn("cannot remove old packages", "err", err)
	}
	return p, nil
}

// Sweep removes unfinished uploads and the trees of deleted packages. It returns an
// error for each file that it cannot remove.
func (p *Packages) Sweep() error { return p.pool.Sweep(p.named) }

// Create creates a package without bits. It deletes surplus packages of the app.
func (p *Packages) Create(app string) (Package, error) {
	now := time.Now().UTC()
	k := Package{GUID: uuid.NewString(), App: app, Type: PackageBits, State: PackageAwaiting, CreatedAt: now, UpdatedAt: now}
	return k, p.storeNew(k)
}

// storeNew stores a new package, and deletes surplus packages of the app.
func (p *Packages) storeNew(k Package) error {
	if err := p.packages.Put(k.GUID, k); err != nil {
		return fmt.Errorf("cannot create package: %w", err)
	}
	if err := p.prune(k.App); err != nil {
		p.o.Logger.Warn("cannot remove old packages", "app", k.App, "err", err)
	}
	return nil
}

func (p *Packages) prune(app string) error {
	all, err := p.OfApp(app)
	if err != nil {
		return err
	}
	return p.remove(surplus(all))
}

// surplus returns the packages of an app to delete; all is newest first. Failed or
// unfinished uploads must not displace packages that can be staged.
func surplus(all []Package) (old []Package) {
	ready := 0
	for i, k := range all {
		if k.State == PackageReady {
			ready++
		}
		keep := i < keepPackages || k.State == PackageProcessing || k.State == PackageReady && ready <= keepPackages
		if !keep {
			old = append(old, k)
		}
	}
	return old
}

// Get returns the package with guid, or ErrNotFound.
func (p *Packages) Get(guid string) (Package, error) {
	k, err := p.packages.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return k, fmt.Errorf("package %s: %w", guid, ErrNotFound)
	}
	if err != nil {
		return k, fmt.Errorf("cannot read package %s: %w", guid, err)
	}
	return p.now(k), nil
}

// OfApp returns the packages of an app, newest first.
func (p *Packages) OfApp(app string) ([]Package, error) {
	all, err := p.packages.By("app", app)
	if err != nil {
		return nil, fmt.Errorf("cannot read packages: %w", err)
	}
	for i := range all {
		all[i] = p.now(all[i])
	}
	slices.SortFunc(all, newestPackage)
	return all, nil
}

// All returns the packages of all apps, newest first.
func (p *Packages) All() ([]Package, error) {
	all, err := p.packages.All()
	if err != nil {
		return nil, fmt.Errorf("cannot read packages: %w", err)
	}
	for i := range all {
		all[i] = p.now(all[i])
	}
	slices.SortFunc(all, newestPackage)
	return all, nil
}

func newestPackage(a, b Package) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.GUID, a.GUID))
}

// UpdateMetadata changes the metadata of a package.
func (p *Packages) UpdateMetadata(guid string, c app.MetadataChange) (Package, error) {
	k, err := updateMetadata(p.packages, "package "+guid, guid, func(k *Package) *app.Metadata {
		k.UpdatedAt = time.Now().UTC()
		k.Metadata = k.Metadata.Merge(c)
		return &k.Metadata
	})
	return p.now(k), err
}

// now returns the package with the state of an upload in progress. That state is not
// stored: if the daemon is killed, the package waits for its bits again.
func (p *Packages) now(k Package) Package {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[k.GUID] {
		k.State = PackageProcessing
	}
	return k
}

// DeleteApp deletes the packages of an app.
func (p *Packages) DeleteApp(app string) error {
	all, err := p.OfApp(app)
	if err != nil {
		return err
	}
	return p.remove(all)
}

func (p *Packages) remove(old []Package) error {
	for _, k := range old {
		if err := p.packages.Delete(k.GUID); err != nil {
			return fmt.Errorf("cannot remove package %s: %w", k.GUID, err)
		}
	}
	return p.pool.Collect(p.named)
}

// named reports whether a package or a buildpack folder has the tree.
func (p *Packages) named(sha string) (bool, error) {
	ks, err := p.packages.By("sha256", sha)
	if err != nil || len(ks) > 0 {
		return true, err
	}
	fs, err := p.folders.By("sha256", sha)
	return len(fs) > 0, err
}

// Match returns the resources whose content is already stored where the user can read
// it, so that a client need not send it. The content stays for a while, even if its
// package is deleted.
func (p *Packages) Match(claim pool.Claim) ([]pool.Resource, error) {
	want := map[pool.Content]pool.Place{}
	for _, r := range claim.Resources {
		if c, ok := pool.ContentOf(r); ok {
			want[c] = pool.Place{}
		}
	}
	if err := p.pool.Find(want, claim.By); err != nil {
		return nil, fmt.Errorf("cannot match resources: %w", err)
	}
	found := []pool.Resource{}
	for _, r := range claim.Resources {
		if c, ok := pool.ContentOf(r); ok && want[c].Tree != "" {
			found = append(found, r)
		}
	}
	return found, nil
}

// Readable returns a function that reports whether a tree belongs to a package of an app,
// or to a buildpack folder of a space, that a user can read.
func (p *Packages) Readable(app, space func(guid string) bool) func(tree string) (bool, error) {
	return func(tree string) (bool, error) {
		packages, err := p.packages.By("sha256", tree)
		if err != nil {
			return false, fmt.Errorf("cannot read packages: %w", err)
		}
		if slices.ContainsFunc(packages, func(k Package) bool { return app(k.App) }) {
			return true, nil
		}
		folders, err := p.folders.By("sha256", tree)
		if err != nil {
			return false, fmt.Errorf("cannot read buildpack folders: %w", err)
		}
		return slices.ContainsFunc(folders, func(f BuildpackFolder) bool { return space(f.Space) }), nil
	}
}

// Upload sets the bits of a package: the files of a zip of size bytes, and the files
// that Match had found. zip is nil if there are no others. A refusal is a
// *PackageError; then nothing is stored, and the package is FAILED with the reason.
// After any other error, the package waits for its bits as before.
func (p *Packages) Upload(ctx context.Context, guid string, matched pool.Claim, zip io.ReaderAt, size int64) (Package, error) {
	if err := p.begin(guid); err != nil {
		return Package{}, err
	}
	defer p.end(guid)
	if err := p.Space(); err != nil {
		return Package{}, fmt.Errorf("cannot store package %s: %w", guid, err)
	}
	bits, err := pool.ReadUpload(matched, zip, size, p.o.limits())
	if err != nil {
		return Package{}, p.refused(guid, err)
	}
	sha, done, err := p.pool.Add(ctx, bits)
	if err != nil {
		return Package{}, p.refused(guid, err)
	}
	defer done() // not before the record is stored, otherwise the tree could be collected
	return p.change(guid, func(k *Package) {
		k.State, k.Error = PackageReady, ""
		k.SHA256, k.Size = sha, bits.Size
	})
}

// begin reserves a package for one upload.
func (p *Packages) begin(guid string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Read under the lock. Otherwise an upload that finishes now would be missed.
	k, err := p.packages.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("package %s: %w", guid, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("cannot read package %s: %w", guid, err)
	}
	if k.State == PackageReady || p.busy[guid] {
		return fmt.Errorf("package %s: %w", guid, ErrUploaded)
	}
	p.busy[guid] = true
	return nil
}

func (p *Packages) end(guid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, guid)
}

// refused stores the reason for a refusal in the package, and returns it.
func (p *Packages) refused(guid string, err error) error {
	var bad *pool.Error
	if !errors.As(err, &bad) {
		return fmt.Errorf("cannot store package %s: %w", guid, err)
	}
	_, storing := p.change(guid, func(k *Package) { k.State, k.Error = PackageFailed, bad.Error() })
	return errors.Join(err, storing)
}

func (p *Packages) change(guid string, fn func(k *Package)) (Package, error) {
	k, err := p.packages.Update(guid, func(k *Package) error {
		fn(k)
		k.UpdatedAt = time.Now().UTC()
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return k, fmt.Errorf("package %s: %w", guid, ErrNotFound) // deleted since
	}
	if err != nil {
		return k, fmt.Errorf("cannot store package %s: %w", guid, err)
	}
	return k, nil
}

// Space refuses to fill the disk, because running apps need free space.
func (p *Packages) Space() error {
	var st unix.Statfs_t
	if err := unix.Statfs(p.o.Dir, &st); err != nil {
		return fmt.Errorf("cannot read the free disk space: %w", err)
	}
	free := int64(st.Bavail) * st.Bsize
	if free >= p.o.MinFree {
		return nil
	}
	return fmt.Errorf("%w: %s has %s free, but a push needs %s: free disk space", ErrNoSpace, p.o.Dir, archive.Size(free), archive.Size(p.o.MinFree))
}

// open opens the tar of a tree for reading, and protects it from collection.
func (p *Packages) open(sha string) (*os.File, func(), error) { return p.pool.Open(sha) }
