package droplet

import (
	"archive/tar"
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/store"
)

// ErrNoFiles says that a package is an image and has no files.
var ErrNoFiles = errors.New("the package is a Docker image and has no files")

// Copy creates a package of another app with the same files, which are stored once.
func (p *Packages) Copy(source, app string) (Package, error) {
	from, err := p.Get(source)
	if err != nil {
		return Package{}, err
	}
	if from.State != PackageReady {
		return Package{}, fmt.Errorf("cannot copy package %s: %w", source, ErrNotReady)
	}
	now := time.Now().UTC()
	k := Package{
		GUID: uuid.NewString(), App: app, Type: from.Type, State: PackageReady, SHA256: from.SHA256, Size: from.Size,
		Image: from.Image, CreatedAt: now, UpdatedAt: now,
	}
	if from.SHA256 != "" {
		_, done, err := p.open(from.SHA256) // protect it from collection until the copy is stored
		if err != nil {
			return Package{}, fmt.Errorf("cannot copy package %s: %w", source, err)
		}
		defer done()
	}
	return k, p.storeNew(k)
}

// Remove deletes a package. Its droplets stay.
func (p *Packages) Remove(guid string) error {
	k, err := p.Get(guid)
	if err != nil {
		return err
	}
	return p.remove([]Package{k})
}

// Zip returns the files of a package as a zip. The caller must always close it.
func (p *Packages) Zip(ctx context.Context, guid string) (io.ReadCloser, error) {
	k, err := p.Get(guid)
	if err != nil {
		return nil, err
	}
	if k.Type != PackageBits {
		return nil, fmt.Errorf("package %s: %w", guid, ErrNoFiles)
	}
	if k.State != PackageReady {
		return nil, fmt.Errorf("package %s: %w", guid, ErrNotReady)
	}
	tree, done, err := p.open(k.SHA256)
	if err != nil {
		return nil, err
	}
	out, in := io.Pipe()
	go func() {
		defer done()
		in.CloseWithError(zipTree(in, archive.UntilDone(ctx, tree)))
	}()
	return out, nil
}

// zipTree turns the tar of a tree into a zip with the same names and modes.
func zipTree(to io.Writer, tree io.Reader) error {
	in, out := tar.NewReader(tree), zip.NewWriter(to)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return fmt.Errorf("cannot read package: %w", err)
		}
		if err := zipEntry(out, h, in); err != nil {
			return fmt.Errorf("cannot write the zip: %w", err)
		}
	}
}

func zipEntry(out *zip.Writer, h *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(h.Name, pool.Top+"/")
	if name == "" || name == pool.Top {
		return nil
	}
	z := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: h.ModTime}
	mode := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		mode |= fs.ModeDir
		z.Method = zip.Store
	case tar.TypeSymlink:
		mode |= fs.ModeSymlink
		content = strings.NewReader(h.Linkname)
	}
	z.SetMode(mode)
	w, err := out.CreateHeader(z)
	if err != nil || h.Typeflag == tar.TypeDir {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}

// Copy creates a droplet of another app with the same files. It was not staged for that
// app, so it gets the present service bindings of that app.
func (b *Builds) Copy(source, app string) (Droplet, error) {
	from, err := b.droplets.Get(source)
	if err != nil {
		return from, err
	}
	if from.State == DropletAwaiting {
		return from, fmt.Errorf("cannot copy droplet %s: %w", source, ErrNotReady)
	}
	d := Droplet{
		GUID: uuid.NewString(), App: app, Stack: from.Stack, Image: from.Image, Run: from.Run,
		Commands: maps.Clone(from.Commands), Sidecars: slices.Clone(from.Sidecars), Buildpacks: slices.Clone(from.Buildpacks),
		Java: from.Java, Custom: from.Custom, CreatedAt: time.Now().UTC(),
	}
	if d.Bindings, err = b.currentBindings(app); err != nil {
		return d, err
	}
	err = b.droplets.storeIn(d, func(tx *store.Tx) error {
		_, err := b.droplets.droplets.With(tx).Get(source) // its stack is deleted with the last droplet
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return d, fmt.Errorf("droplet %s: %w", source, ErrNotFound)
	}
	return d, err
}

// Remove deletes a droplet, if allow permits that in the same transaction.
func (b *Builds) Remove(guid string, allow func(tx *store.Tx) error) error {
	d, err := b.droplets.Get(guid)
	if err != nil {
		return err
	}
	err = b.droplets.db.Update(func(tx *store.Tx) error {
		if err := allow(tx); err != nil {
			return err
		}
		return b.droplets.droplets.With(tx).Delete(d.GUID)
	})
	if err != nil {
		return fmt.Errorf("cannot remove droplet %s: %w", guid, err)
	}
	return b.collectImages()
}
