package stack

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/dewrun/dew/droplet/archive"
)

// The files that mark an archive as an image.
const (
	dockerManifest = "manifest.json"
	layoutMark     = "oci-layout"
	layoutIndex    = "index.json"
)

// readFile reads a file that a user added as a stack. It refuses a damaged file with an
// *archive.Error.
func (s *sources) readFile(ctx context.Context, f *os.File) (NewTree, error) {
	m, err := s.readArchive(ctx, f)
	if err == nil || ctx.Err() != nil || machineError(err) || s.o.Space() != nil {
		return m, err
	}
	if bad, ok := errors.AsType[*archive.Error](err); ok {
		return m, bad
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return m, &archive.Error{Reason: "is incomplete: upload it again"}
	}
	return m, &archive.Error{Reason: "cannot be read: " + err.Error()}
}

// machineError reports whether the machine is the cause of an error, not the content of a
// file. A part of an image that is missing is a matter of its content.
func machineError(err error) bool {
	_, ok := errors.AsType[syscall.Errno](err)
	return ok && !errors.Is(err, fs.ErrNotExist)
}

func (s *sources) readArchive(ctx context.Context, f *os.File) (NewTree, error) {
	kind, err := archiveKind(f)
	if err != nil {
		return NewTree{}, err
	}
	if kind != "" {
		if err := checkWhole(ctx, f); err != nil {
			return NewTree{}, err
		}
	}
	quiet := func(string) {}
	switch kind {
	case dockerManifest:
		image, err := tarball.Image(func() (io.ReadCloser, error) { return fromStart(f) }, nil)
		if err != nil {
			return NewTree{}, &archive.Error{Reason: "cannot be read as an image: " + err.Error()}
		}
		return s.storeImageFile(ctx, image, quiet)
	case layoutMark:
		return s.readLayout(ctx, f)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return NewTree{}, fmt.Errorf("cannot read the file: %w", err)
	}
	sha, facts, done, err := s.layers.add(ctx, f)
	if err != nil {
		return NewTree{}, err
	}
	return NewTree{Tree: []string{sha}, Size: facts.Size, kind: KindTarball, source: "sha256:" + sha, Done: done}, nil
}

// fromStart reads the file from its start and decompresses it. Several readers can be
// used at the same time.
func fromStart(f *os.File) (io.ReadCloser, error) {
	return decompress(io.NewSectionReader(f, 0, 1<<62))
}

// checkWhole reads a file up to the checksum of its compression. The files of an image are
// read one by one, and that does not reach the end.
func checkWhole(ctx context.Context, f *os.File) error {
	r, err := fromStart(f)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(archive.UntilDone(ctx, r), maxTreeBytes))
	return err
}

// archiveKind distinguishes images from root file systems by the files at the top.
func archiveKind(f *os.File) (string, error) {
	r, err := fromStart(f)
	if err != nil {
		return "", err
	}
	defer r.Close()
	kind := ""
	tr := tar.NewReader(io.LimitReader(r, maxTreeBytes))
	for files := 0; files < maxTreeFiles; files++ {
		h, err := tr.Next()
		if err != nil {
			return kind, nil // the code that reads the archive reports the error
		}
		switch path.Clean(h.Name) {
		case dockerManifest:
			return dockerManifest, nil // newer ones are also OCI layouts
		case layoutMark:
			kind = layoutMark
		case "etc", "usr", "bin":
			return "", nil
		}
	}
	return kind, nil
}

// storeImageFile stores the layers of an image from a file.
func (s *sources) storeImageFile(ctx context.Context, image v1.Image, say func(string)) (NewTree, error) {
	i, err := s.openImage(image)
	if bad := (*archive.Error)(nil); err != nil && !errors.As(err, &bad) {
		err = &archive.Error{Reason: "cannot be read as an image: " + err.Error()}
	}
	if err != nil {
		return NewTree{}, err
	}
	i.source = i.Digest.String()
	return s.storeImage(ctx, i, say)
}

// layoutFile matches the files of an OCI layout.
var layoutFile = regexp.MustCompile(`^(oci-layout|index\.json|blobs/sha256/[0-9a-f]{64})$`)

// maxLayoutFiles is far more than any image has.
const maxLayoutFiles = 4096

// readLayout unpacks an OCI layout next to the layers and stores its image.
func (s *sources) readLayout(ctx context.Context, f *os.File) (NewTree, error) {
	dir, err := os.MkdirTemp(s.o.Dir, "layout-*"+archive.Unfinished)
	if err != nil {
		return NewTree{}, fmt.Errorf("cannot read the image: %w", err)
	}
	defer s.layers.discard(dir)
	if err := s.unpackLayout(ctx, dir, f); err != nil {
		return NewTree{}, err
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return NewTree{}, &archive.Error{Reason: "cannot be read as an image: " + err.Error()}
	}
	image, err := imageIn(index, 0)
	if err != nil {
		return NewTree{}, err
	}
	return s.storeImageFile(ctx, image, func(string) {})
}

func (s *sources) unpackLayout(ctx context.Context, dir string, f *os.File) error {
	r, err := fromStart(f)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o700); err != nil {
		return fmt.Errorf("cannot read the image: %w", err)
	}
	spared := &spaceReader{r: archive.UntilDone(ctx, io.LimitReader(r, maxTreeBytes)), space: s.o.Space}
	tr := tar.NewReader(spared)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && n == maxLayoutFiles {
			err = &archive.Error{Reason: fmt.Sprintf("has more than %d files", maxLayoutFiles)}
		}
		if err != nil {
			return errors.Join(spared.err, err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if h.Typeflag != tar.TypeReg || !layoutFile.MatchString(name) {
			continue
		}
		err = copyTo(filepath.Join(dir, filepath.FromSlash(name)), tr)
		if errors.Is(err, fs.ErrExist) {
			return &archive.Error{Entry: name, Reason: "is in the archive more than once"}
		}
		if err != nil {
			return fmt.Errorf("cannot read the image: %w", err)
		}
	}
}

func copyTo(name string, r io.Reader) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// maxIndexDepth is the maximum depth of nested indexes.
const maxIndexDepth = 3

// imageIn finds the image for this machine in an index.
func imageIn(index v1.ImageIndex, depth int) (v1.Image, error) {
	m, err := index.IndexManifest()
	if err != nil {
		return nil, &archive.Error{Reason: "cannot be read as an image: " + err.Error()}
	}
	for _, d := range m.Manifests {
		fits := d.Platform == nil || d.Platform.OS == "linux" && d.Platform.Architecture == goruntime.GOARCH
		switch {
		case !fits:
		case d.MediaType.IsImage():
			return index.Image(d.Digest)
		case d.MediaType.IsIndex() && depth < maxIndexDepth:
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, &archive.Error{Reason: "cannot be read as an image: " + err.Error()}
			}
			if image, err := imageIn(inner, depth+1); err == nil {
				return image, nil
			}
		}
	}
	return nil, &archive.Error{Reason: "has no image for linux/" + goruntime.GOARCH}
}
