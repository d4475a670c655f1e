package droplet

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/store"
)

// Droplets stores images as files named after their content, and droplets in the store.
// Many goroutines can use it.
type Droplets struct {
	dir      string
	db       *store.DB
	droplets store.Bucket[Droplet]

	// mu is held while an image is renamed or removed. It is also held from finding an
	// image until a droplet with it is stored, so nothing is collected in between.
	mu    sync.Mutex
	fresh map[string]int // number of callers that added an image and have not released it yet; guarded by mu

	unsynced sync.Map // files of images that are complete, but perhaps not on disk yet, by sha

	unfinished archive.Leftovers
}

// NewDroplets returns the droplets with images in dir, and creates dir if necessary. It
// removes incomplete images, so only one Droplets can use a dir.
func NewDroplets(db *store.DB, dir string) (*Droplets, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the folder for images: %w", err)
	}
	s := &Droplets{dir: dir, db: db, fresh: map[string]int{}, droplets: store.In(db, "droplets",
		store.Index("app", func(d Droplet) string { return d.App }),
		store.Index("image", func(d Droplet) string { return d.Image }),
		store.Index("reuse", func(d Droplet) string { return d.Reuse }))}
	err := s.unfinished.Find(dir, os.Remove)
	return s, err
}

// Sweep tries again to remove unfinished images. It returns an error for each that it
// cannot remove.
func (s *Droplets) Sweep() error { return s.unfinished.Retry() }

// AddImage reads a tar with the layout of Cloud Foundry (app/, deps/, profile.d/,
// logs/, tmp/, staging_info.yml) to its end. It checks the tar, and stores it under the
// sha256 of its bytes. Adding an image twice is not an error. A refusal is an
// *archive.Error.
func (s *Droplets) AddImage(r io.Reader) (sha string, err error) {
	return s.addImage(r, func(string) {})
}

// addImage is AddImage, and calls complete when the image can be opened. The image is not
// on disk then, and can still be lost.
func (s *Droplets) addImage(r io.Reader, complete func(sha string)) (sha string, err error) {
	return s.add(func(f *os.File) (string, error) { return fill(f, r) }, complete)
}

// namedImage is an image whose name is known before its bytes are read.
type namedImage struct {
	name  string
	size  int64
	bytes io.Reader
	fresh bool // write it even if it exists
}

// addNamed is addImage for an image whose name is known. If the image exists, its bytes are
// not read.
func (s *Droplets) addNamed(i namedImage, complete func(sha string)) error {
	sha := i.name
	if !i.fresh && s.hold(sha, i.size) {
		complete(sha)
		if err := s.db.SyncDir(s.dir); err != nil { // its name can be new
			s.releaseImage(sha)
			return fmt.Errorf("cannot add image: %w", err)
		}
		return nil
	}
	_, err := s.add(func(f *os.File) (string, error) { return sha, copyChecked(f, i.bytes) }, complete)
	return err
}

// hold keeps an image, if it exists with this size, until the caller releases it.
func (s *Droplets) hold(sha string, size int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fi, err := os.Stat(s.path(sha)); err != nil || fi.Size() != size {
		return false
	}
	s.fresh[sha]++
	return true
}

// add writes an image to a file, and gives the file the name that write returns.
func (s *Droplets) add(write func(f *os.File) (sha string, err error), complete func(sha string)) (sha string, err error) {
	f, err := os.CreateTemp(s.dir, "image-*"+archive.Unfinished)
	if err != nil {
		return "", fmt.Errorf("cannot add image: %w", err)
	}
	if sha, err = write(f); err == nil {
		s.unsynced.Store(sha, f.Name())
		defer s.unsynced.CompareAndDelete(sha, f.Name())
		complete(sha)
		err = s.db.SyncFile(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = s.name(f.Name(), sha)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("cannot add image: %w", err), os.Remove(f.Name()))
	}
	if err := s.db.SyncDir(s.dir); err != nil {
		return "", fmt.Errorf("cannot add image: %w", err)
	}
	return sha, nil
}

// name gives an image its final name. The image is on disk before that, so a file with a
// final name is always complete. It stays until the caller releases it, or the daemon stops.
func (s *Droplets) name(file, sha string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Rename(file, s.path(sha)); err != nil {
		return err
	}
	s.fresh[sha]++
	return nil
}

// fill copies a checked image into f, and returns its checksum.
func fill(f *os.File, r io.Reader) (sha string, err error) {
	sum := archive.NewChecksum()
	err = copyChecked(io.MultiWriter(f, sum), r)
	result := sum.Close()
	return hex.EncodeToString(result[:]), err
}

// copyChecked copies an image, and checks it.
func copyChecked(to io.Writer, r io.Reader) error {
	// Buffers on both sides, because a tar is checked in pieces of 512 bytes.
	w := bufio.NewWriterSize(to, 128<<10)
	if err := archive.CheckImage(io.TeeReader(bufio.NewReaderSize(r, 128<<10), w)); err != nil {
		return err
	}
	return w.Flush()
}

// OpenImage opens the tar of an image, or returns ErrNoImage.
func (s *Droplets) OpenImage(sha string) (io.ReadCloser, error) {
	if !archive.ValidSHA.MatchString(sha) {
		return nil, fmt.Errorf("%w: %q is not a valid SHA-256 checksum", ErrNoImage, sha)
	}
	f, err := s.openImage(sha)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is not in %s: push or restage the app to create it again", ErrNoImage, sha, s.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open image: %w", err)
	}
	return f, nil
}

func (s *Droplets) openImage(sha string) (*os.File, error) {
	f, err := os.Open(s.path(sha))
	if name, ok := s.unsynced.Load(sha); ok && errors.Is(err, fs.ErrNotExist) {
		name, _ := name.(string) // nothing else is stored
		if f, err = os.Open(name); errors.Is(err, fs.ErrNotExist) {
			return os.Open(s.path(sha)) // it got its final name in the meantime
		}
	}
	return f, err
}

// Put stores a droplet, whose image must exist, and releases the image.
func (s *Droplets) Put(d Droplet) error {
	if err := s.storeIn(d, func(*store.Tx) error { return nil }); err != nil {
		return err
	}
	s.releaseImage(d.Image)
	return nil
}

// storeIn stores a droplet, and calls also in the same transaction.
func (s *Droplets) storeIn(d Droplet, also func(tx *store.Tx) error) error {
	if d.GUID == "" {
		return errors.New("cannot store droplet: the droplet has no guid")
	}
	if d.CreatedAt.IsZero() {
		d.CreatedAt = time.Now().UTC()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Image != "" {
		f, err := s.OpenImage(d.Image)
		if err != nil {
			return fmt.Errorf("cannot store droplet %s: %w", d.GUID, err)
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("cannot store droplet %s: %w", d.GUID, err)
		}
	}
	err := s.db.Update(func(tx *store.Tx) error {
		if err := also(tx); err != nil {
			return err
		}
		return s.droplets.With(tx).Put(d.GUID, d)
	})
	if err != nil {
		return fmt.Errorf("cannot store droplet %s: %w", d.GUID, err)
	}
	return nil
}

// Get returns the droplet with guid, or ErrNotFound.
func (s *Droplets) Get(guid string) (Droplet, error) { return s.get(s.droplets, guid) }

// GetIn is Get in a transaction. So the transaction cannot refer to a droplet that was
// deleted in between.
func (s *Droplets) GetIn(tx *store.Tx, guid string) (Droplet, error) {
	return s.get(s.droplets.With(tx), guid)
}

func (*Droplets) get(droplets store.Bucket[Droplet], guid string) (Droplet, error) {
	d, err := droplets.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return d, fmt.Errorf("droplet %s: %w", guid, ErrNotFound)
	}
	if err != nil {
		return d, fmt.Errorf("cannot read droplet %s: %w", guid, err)
	}
	return d, nil
}

// All returns the droplets of all apps, newest first.
func (s *Droplets) All() ([]Droplet, error) {
	all, err := s.droplets.All()
	if err != nil {
		return nil, fmt.Errorf("cannot read droplets: %w", err)
	}
	slices.SortFunc(all, newestDroplet)
	return all, nil
}

// UpdateMetadata changes the metadata of a droplet.
func (s *Droplets) UpdateMetadata(guid string, c app.MetadataChange) (Droplet, error) {
	return updateMetadata(s.droplets, "droplet "+guid, guid, func(d *Droplet) *app.Metadata {
		d.UpdatedAt = time.Now().UTC()
		d.Metadata = d.Metadata.Merge(c)
		return &d.Metadata
	})
}

// releaseImage leaves an added image to Collect, unless a droplet has it or another
// caller has added the same image. Every caller that adds an image releases it once.
func (s *Droplets) releaseImage(sha string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh[sha]--; s.fresh[sha] <= 0 {
		delete(s.fresh, sha)
	}
}

// OfApp returns the droplets of an app, newest first.
func (s *Droplets) OfApp(app string) ([]Droplet, error) {
	all, err := s.droplets.By("app", app)
	if err != nil {
		return nil, fmt.Errorf("cannot read droplets: %w", err)
	}
	slices.SortFunc(all, newestDroplet)
	return all, nil
}

func newestDroplet(a, b Droplet) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.GUID, a.GUID))
}

// stacks returns the stacks that droplets use.
func (s *Droplets) stacks() (map[string]bool, error) {
	all, err := s.droplets.All()
	if err != nil {
		return nil, fmt.Errorf("cannot read droplets: %w", err)
	}
	out := map[string]bool{}
	for _, d := range all {
		out[d.Stack] = true
	}
	return out, nil
}

// made returns the newest droplet with a reuse key.
func (s *Droplets) made(reuse string) (d Droplet, ok bool, err error) {
	if reuse == "" {
		return d, false, nil
	}
	all, err := s.droplets.By("reuse", reuse)
	if err != nil {
		return d, false, fmt.Errorf("cannot read droplets: %w", err)
	}
	if len(all) == 0 {
		return d, false, nil
	}
	return slices.MinFunc(all, newestDroplet), true, nil
}

// remove deletes droplets.
func (s *Droplets) remove(ds []Droplet) error {
	return s.removeUnused(ds, func(*store.Tx) map[string]bool { return map[string]bool{} })
}

// removeUnused deletes those droplets that are not in use, as seen by its transaction.
// If inUse returns nil, it deletes none. Collect removes their images.
func (s *Droplets) removeUnused(ds []Droplet, inUse func(tx *store.Tx) map[string]bool) error {
	if len(ds) == 0 {
		return nil
	}
	return s.db.Update(func(tx *store.Tx) error {
		used := inUse(tx)
		if used == nil {
			return nil
		}
		for _, d := range ds {
			if used[d.GUID] {
				continue
			}
			if err := s.droplets.With(tx).Delete(d.GUID); err != nil {
				return fmt.Errorf("cannot remove droplet %s: %w", d.GUID, err)
			}
		}
		return nil
	})
}

// Collect removes the images without droplets, and returns them. A new image stays
// until it is released.
func (s *Droplets) Collect() (removed []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot delete unused images: %w", err)
	}
	for _, e := range entries {
		sha, ok := strings.CutSuffix(e.Name(), ".tar")
		if !ok || !archive.ValidSHA.MatchString(sha) || s.fresh[sha] > 0 {
			continue
		}
		ds, err := s.droplets.By("image", sha)
		if err != nil {
			return removed, fmt.Errorf("cannot delete unused images: %w", err)
		}
		if len(ds) > 0 {
			continue
		}
		if err := os.Remove(s.path(sha)); err != nil {
			return removed, fmt.Errorf("cannot delete unused images: %w", err)
		}
		removed = append(removed, sha)
	}
	return removed, nil
}

func (s *Droplets) path(sha string) string { return filepath.Join(s.dir, sha+".tar") }
