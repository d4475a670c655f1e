package containerd

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/archive"
	rootfs "github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/droplet"
)

// maxLinesFile bounds a file of a tree to which lines are added.
const maxLinesFile = 1 << 20

// fillStack makes what a stack says in an empty root.
func fillStack(ctx context.Context, root string, s droplet.Stack) error {
	if len(s.Tree) == 0 {
		return fill(root, s)
	}
	for _, t := range s.Tree {
		if err := unpackTree(ctx, root, t); err != nil {
			return err
		}
	}
	// Whatever the archive says of its own folder: everybody must come in.
	if err := os.Chmod(root, 0o755); err != nil {
		return fmt.Errorf("cannot open the root: %w", err)
	}
	return overlay(root, s)
}

func unpackTree(ctx context.Context, root string, t droplet.Tree) error {
	r, err := t.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	keep := func(h *tar.Header) (bool, error) { return sanitize(h), nil }
	if _, err := archive.Apply(ctx, root, r, archive.WithFilter(keep)); err != nil {
		return fmt.Errorf("cannot unpack layer %.12s: %w", t.SHA256, err)
	}
	return nil
}

// sanitize takes from an entry what nothing in a container may have: devices, the bits
// by which a program runs as somebody else, and attributes that mean something to
// the kernel or to the file system below. It tells whether anything is left.
func sanitize(h *tar.Header) bool {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
	case tar.TypeGNUSparse:
		h.Typeflag = tar.TypeReg // its holes are read as zeros
	default:
		return false
	}
	h.Mode &^= unix.S_ISUID | unix.S_ISGID
	const xattr = "SCHILY.xattr."
	maps.DeleteFunc(h.PAXRecords, func(key, _ string) bool {
		return strings.HasPrefix(key, xattr) && !strings.HasPrefix(key, xattr+"user.")
	})
	return true
}

// overlay adds what is generated to a tree of somebody else. Every path is
// resolved as the container will: a link must not lead out of the root.
func overlay(root string, s droplet.Stack) error {
	for _, d := range s.Dirs {
		if err := overlayDir(root, d); err != nil {
			return fmt.Errorf("cannot make folder %s: %w", d.Path, err)
		}
	}
	for _, f := range s.Files {
		if err := overlayFile(root, f); err != nil {
			return fmt.Errorf("cannot make file %s: %w", f.Path, err)
		}
	}
	for _, l := range s.Lines {
		if err := overlayLine(root, l); err != nil {
			return fmt.Errorf("cannot change %s: %w", l.Path, err)
		}
	}
	return nil
}

// overlayDir makes a folder that is missing. One that is there is left as it is,
// unless it must have an owner.
func overlayDir(root string, d droplet.Dir) error {
	p, err := rootfs.RootPath(root, d.Path)
	if err != nil {
		return err
	}
	fi, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(p, 0o755); err != nil {
			return err
		}
		return errors.Join(os.Chown(p, d.UID, d.GID), os.Chmod(p, fs.FileMode(d.Mode&0o777)|sticky(d.Mode)))
	}
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return errors.New("something else has its name in the stack")
	}
	if d.UID == 0 {
		return nil
	}
	return errors.Join(os.Chown(p, d.UID, d.GID), os.Chmod(p, fs.FileMode(d.Mode&0o777)))
}

// overlayFile puts a file in the place of whatever has its name.
func overlayFile(root string, f droplet.File) error {
	dir, err := rootfs.RootPath(root, path.Dir(f.Path))
	if err != nil {
		return err
	}
	p := filepath.Join(dir, path.Base(f.Path))
	if err := errors.Join(os.RemoveAll(p), os.RemoveAll(p+".new")); err != nil {
		return err
	}
	return writeFile(p, f.Data, fs.FileMode(f.Mode))
}

// overlayLine adds a line to a file in the place of the one with its name.
func overlayLine(root string, l droplet.Line) error {
	p, err := rootfs.RootPath(root, l.Path)
	if err != nil {
		return err
	}
	old, err := readSome(p)
	if err != nil {
		return err
	}
	var b strings.Builder
	for line := range strings.Lines(old) {
		if !strings.HasPrefix(line, l.Name+":") {
			b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	b.WriteString(l.Text + "\n")
	if err := os.RemoveAll(p + ".new"); err != nil {
		return err
	}
	return writeFile(p, b.String(), 0o644)
}

// readSome reads a plain file of a tree; one that is not there is empty.
func readSome(p string) (string, error) {
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxLinesFile+1))
	if err == nil && len(raw) > maxLinesFile {
		err = fmt.Errorf("it is larger than %d bytes", maxLinesFile)
	}
	return string(raw), err
}

// PruneStacks removes the snapshots of stacks that nobody has any more. One that
// an image or an instance still stands on stays until that is gone.
func (e *Engine) PruneStacks(ctx context.Context, keep func(id string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	sn := e.images.snapshotter()
	var old []string
	err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		id, isStack := strings.CutPrefix(info.Name, stackPrefix)
		if isStack && info.Kind == snapshots.KindCommitted && !keep(id) {
			old = append(old, info.Name)
		}
		return nil
	})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot list snapshots: %w", err)
	}
	for _, name := range old {
		err := sn.Remove(ctx, name)
		if errdefs.IsFailedPrecondition(err) || errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot remove snapshot %s: %w", name, err)
		}
		e.log.Info("removed the snapshot of a stack that is gone", "snapshot", name)
	}
	return nil
}
