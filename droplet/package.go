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
	"github.com/dewrun/dew/store"
)

// What a caller may decide on.
var (
	ErrUploaded = errors.New("bits may be uploaded only once: create a new package to upload different bits")
	ErrNoSpace  = errors.New("the disk is nearly full")
)

// PackageState is how far a package has come.
type PackageState string

// The states of a package, as the platform names them.
const (
	PackageAwaiting   PackageState = "AWAITING_UPLOAD"
	PackageProcessing PackageState = "PROCESSING_UPLOAD"
	PackageReady      PackageState = "READY"
	PackageFailed     PackageState = "FAILED"
)

// PackageBits is the type of packages that are made of pushed files.
const PackageBits = "bits"

// Package is what was pushed.
type Package struct {
	GUID      string       `json:"guid"`
	App       string       `json:"app"` // guid
	Type      string       `json:"type"`
	State     PackageState `json:"state"`
	SHA256    string       `json:"sha256,omitempty"` // of its tree: equal files, equal sha256
	Size      int64        `json:"size,omitempty"`   // bytes of its files together
	Error     string       `json:"error,omitempty"`  // why it is FAILED
	CreatedAt time.Time    `json:"created_at"`
	UpdatedAt time.Time    `json:"updated_at"`
	Metadata  app.Metadata `json:"metadata,omitzero"`
	Image     *ImageSource `json:"image,omitempty"` // of PackageDocker
}

// Resource is a file that a client could send.
type Resource struct {
	Path string
	Mode string // octal text
	SHA1 string // hex
	Size int64
}

// PackageError says which entry of an upload cannot be had and why.
type PackageError struct {
	Entry  string // empty: the upload as a whole
	Reason string
}

func (e *PackageError) Error() string {
	if e.Entry == "" {
		return "package: " + e.Reason
	}
	return fmt.Sprintf("package entry %q %s", e.Entry, e.Reason)
}

// What an upload may be at most when PackageOptions does not say, and what the
// disk must have left.
const (
	defaultMaxBytes = 1 << 30
	defaultMaxFiles = 100_000
	defaultMinFree  = 1 << 30
)

// keepPackages is how many packages an app keeps.
const keepPackages = 5

// PackageOptions tells where packages are and how large they may be.
type PackageOptions struct {
	Dir          string // of the trees
	MaxBytes     int64  // of all files of a package, unpacked; 0: 1 GiB
	MaxFiles     int64  // entries of a package; 0: 100,000
	MaxFileBytes int64  // of one file, unpacked; 0: MaxBytes
	MinFree      int64  // free bytes that the disk must have for an upload or a build; 0: 1 GiB, below: any
	Logger       *slog.Logger
}

// Packages keeps what was pushed: packages in the store, their trees as files.
// It may be used by many goroutines.
type Packages struct {
	o        PackageOptions
	pool     *pool
	packages *store.Bucket[Package]
	folders  *store.Bucket[BuildpackFolder]

	mu   sync.Mutex
	busy map[string]bool // packages that are being uploaded; guarded by mu
}

// NewPackages returns the packages whose trees are in o.Dir, which it makes if
// need be. It removes what an upload that was cut off has left, so there is one
// per folder.
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
	if p.pool, err = openPool(db, o.Dir, o.Logger); err != nil {
		return nil, err
	}
	if err := p.Sweep(); err != nil {
		o.Logger.Warn("cannot remove old packages", "err", err)
	}
	return p, nil
}

// Sweep removes unfinished uploads and the trees of packages that are gone. It
// returns an error for each file that it cannot remove.
func (p *Packages) Sweep() error { return p.pool.sweep(p.named) }

// Create makes a package that waits for its bits. An app keeps its newest ones;
// older ones go.
func (p *Packages) Create(app string) (Package, error) {
	now := time.Now().UTC()
	k := Package{GUID: uuid.NewString(), App: app, Type: PackageBits, State: PackageAwaiting, CreatedAt: now, UpdatedAt: now}
	return k, p.keepNew(k)
}

// keepNew keeps a new package, and no more than an app may have.
func (p *Packages) keepNew(k Package) error {
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

// surplus returns those of an app's packages, newest first, that are not kept:
// uploads that failed or never came must not drive out what can be staged.
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

// now shows an upload that is under way. It is not stored: when the daemon is
// killed the package simply waits for its bits again.
func (p *Packages) now(k Package) Package {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[k.GUID] {
		k.State = PackageProcessing
	}
	return k
}

// Forget removes the packages of an app.
func (p *Packages) Forget(app string) error {
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
	return p.pool.collect(p.named)
}

// named tells whether a package, or a folder that is a buildpack, has the tree.
func (p *Packages) named(sha string) (bool, error) {
	ks, err := p.packages.By("sha256", sha)
	if err != nil || len(ks) > 0 {
		return true, err
	}
	fs, err := p.folders.By("sha256", sha)
	return len(fs) > 0, err
}

// Match returns those of the resources whose content is here already, so that a
// client need not send it. It stays for a while, also if its package goes.
func (p *Packages) Match(rs []Resource) ([]Resource, error) {
	want := map[content]place{}
	for _, r := range rs {
		if c, ok := contentOf(r); ok {
			want[c] = place{}
		}
	}
	if err := p.pool.find(want); err != nil {
		return nil, fmt.Errorf("cannot match resources: %w", err)
	}
	found := []Resource{}
	for _, r := range rs {
		if c, ok := contentOf(r); ok && want[c].tree != "" {
			found = append(found, r)
		}
	}
	return found, nil
}

// Upload gives a package its bits: the files of a zip, of size bytes, and those
// that Match had found; zip is nil when these are all. What is refused is a
// *PackageError; then nothing is kept, and the package is FAILED and says why.
// After any other error it waits for its bits as before.
func (p *Packages) Upload(ctx context.Context, guid string, matched []Resource, zip io.ReaderAt, size int64) (Package, error) {
	if err := p.begin(guid); err != nil {
		return Package{}, err
	}
	defer p.end(guid)
	if err := p.Space(); err != nil {
		return Package{}, fmt.Errorf("cannot take in package %s: %w", guid, err)
	}
	bits, err := readBits(matched, zip, size, p.o)
	if err != nil {
		return Package{}, p.refused(guid, err)
	}
	sha, done, err := p.pool.add(ctx, bits)
	if err != nil {
		return Package{}, p.refused(guid, err)
	}
	defer done() // not before the store names it: else it could be collected
	return p.change(guid, func(k *Package) {
		k.State, k.Error = PackageReady, ""
		k.SHA256, k.Size = sha, bits.size
	})
}

// begin reserves a package for one upload.
func (p *Packages) begin(guid string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Read under the lock: an upload that ends meanwhile would be missed.
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

// refused notes on the package why its bits were refused, and returns that.
func (p *Packages) refused(guid string, err error) error {
	var bad *PackageError
	if !errors.As(err, &bad) {
		return fmt.Errorf("cannot take in package %s: %w", guid, err)
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
		return k, fmt.Errorf("package %s: %w", guid, ErrNotFound) // removed meanwhile
	}
	if err != nil {
		return k, fmt.Errorf("cannot keep package %s: %w", guid, err)
	}
	return k, nil
}

// Space refuses to fill the disk: running apps need it to go on.
func (p *Packages) Space() error {
	var st unix.Statfs_t
	if err := unix.Statfs(p.o.Dir, &st); err != nil {
		return fmt.Errorf("cannot ask how full the disk is: %w", err)
	}
	free := int64(st.Bavail) * st.Bsize
	if free >= p.o.MinFree {
		return nil
	}
	return fmt.Errorf("%w: %s has %s free, pushes need %s: remove something there", ErrNoSpace, p.o.Dir, inBytes(free), inBytes(p.o.MinFree))
}

// open opens the tar of a tree for reading; it is not collected meanwhile.
func (p *Packages) open(sha string) (*os.File, func(), error) { return p.pool.open(sha) }

// inBytes writes a size as the platform's CLI does: 12.3M.
func inBytes(n int64) string {
	units := []string{"B", "K", "M", "G", "T"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if i == 0 || f == float64(int64(f)) {
		return fmt.Sprintf("%d%s", int64(f), units[i])
	}
	return fmt.Sprintf("%.1f%s", f, units[i])
}
