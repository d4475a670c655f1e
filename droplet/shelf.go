package droplet

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/dewrun/dew/store"
)

// Shelf keeps images as files named after their content, and droplets in the
// store. It may be used by many goroutines.
type Shelf struct {
	dir      string
	droplets *store.Bucket[Droplet]
}

// half is the end of the name of an image that is not complete yet.
const half = ".half"

// NewShelf returns the shelf with images in dir, which it makes if need be. It
// removes images that were never completed, so there is one shelf per dir.
func NewShelf(db *store.DB, dir string) (*Shelf, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder for images: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the folder of images: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), half) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return nil, fmt.Errorf("cannot remove an unfinished image: %w", err)
		}
	}
	return &Shelf{dir: dir, droplets: store.In[Droplet](db, "droplets")}, nil
}

// AddImage reads a tar of the platform's layout (app/, deps/, profile.d/, logs/,
// tmp/, staging_info.yml) to its end, checks it, and keeps it under the sha256 of
// its bytes. Adding an image twice is no error. An image that is refused is an
// *ImageError.
func (s *Shelf) AddImage(r io.Reader) (sha string, err error) {
	f, err := os.CreateTemp(s.dir, "image-*"+half)
	if err != nil {
		return "", fmt.Errorf("cannot add image: %w", err)
	}
	sha, err = fill(f, r)
	if err == nil {
		err = os.Rename(f.Name(), s.path(sha))
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("cannot add image: %w", err), os.Remove(f.Name()))
	}
	if err := syncDir(s.dir); err != nil {
		return "", fmt.Errorf("cannot add image: %w", err)
	}
	return sha, nil
}

// fill copies a checked image into f and closes it. It is on disk before it gets
// its name: a name always means a whole image.
func fill(f *os.File, r io.Reader) (sha string, err error) {
	sum := sha256.New()
	if err := checkImage(io.TeeReader(r, io.MultiWriter(f, sum))); err != nil {
		return "", errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return "", errors.Join(err, f.Close())
	}
	return hex.EncodeToString(sum.Sum(nil)), f.Close()
}

// OpenImage opens the tar of an image, or returns ErrNoImage.
func (s *Shelf) OpenImage(sha string) (io.ReadCloser, error) {
	if !validSHA.MatchString(sha) {
		return nil, fmt.Errorf("%w: %q is not a sha256", ErrNoImage, sha)
	}
	f, err := os.Open(s.path(sha))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is not in %s: push or restage the app to make it anew", ErrNoImage, sha, s.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open image: %w", err)
	}
	return f, nil
}

// Put keeps a droplet. Its image must be on the shelf.
func (s *Shelf) Put(d Droplet) error {
	if d.GUID == "" {
		return errors.New("cannot keep droplet: it has no guid")
	}
	if d.Image != "" {
		f, err := s.OpenImage(d.Image)
		if err != nil {
			return fmt.Errorf("cannot keep droplet %s: %w", d.GUID, err)
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("cannot keep droplet %s: %w", d.GUID, err)
		}
	}
	if d.CreatedAt.IsZero() {
		d.CreatedAt = time.Now().UTC()
	}
	if err := s.droplets.Put(d.GUID, d); err != nil {
		return fmt.Errorf("cannot keep droplet %s: %w", d.GUID, err)
	}
	return nil
}

// Get returns the droplet with guid, or ErrNotFound.
func (s *Shelf) Get(guid string) (Droplet, error) {
	d, err := s.droplets.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return d, fmt.Errorf("droplet %s: %w", guid, ErrNotFound)
	}
	if err != nil {
		return d, fmt.Errorf("cannot read droplet %s: %w", guid, err)
	}
	return d, nil
}

var validSHA = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (s *Shelf) path(sha string) string { return filepath.Join(s.dir, sha+".tar") }

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot sync %s: %w", dir, err)
	}
	if err := d.Sync(); err != nil {
		return errors.Join(fmt.Errorf("cannot sync %s: %w", dir, err), d.Close())
	}
	return d.Close()
}
