package rootfs

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

	"github.com/containerd/containerd/v2/pkg/archive"
	rootfs "github.com/containerd/continuity/fs"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime/containerd/runfile"
)

// maxLinesFile is the maximum size of a file in a tree to which lines are added.
const maxLinesFile = 1 << 20

// FillStack creates the files of a stack in an empty root.
func FillStack(ctx context.Context, root string, s stack.Stack) error {
	if len(s.Tree) == 0 {
		return fill(root, s)
	}
	for _, t := range s.Tree {
		if err := unpackTree(ctx, root, t); err != nil {
			return err
		}
	}
	// Whatever mode the archive sets for its own folder, every user must have access.
	if err := os.Chmod(root, 0o755); err != nil {
		return fmt.Errorf("cannot set the mode of the root folder: %w", err)
	}
	return overlay(root, s)
}

// fill creates the files of a stack in an empty root.
func fill(root string, s stack.Stack) error {
	for _, d := range s.Dirs {
		p := filepath.Join(root, d.Path)
		if err := os.MkdirAll(p, 0o755); err != nil {
			return fmt.Errorf("cannot create folder: %w", err)
		}
		// Both after the creation, so that they do not depend on the umask or the
		// parent.
		if err := errors.Join(os.Chown(p, d.UID, d.GID), os.Chmod(p, fs.FileMode(d.Mode&0o777)|sticky(d.Mode))); err != nil {
			return fmt.Errorf("cannot set owner and mode of %s: %w", d.Path, err)
		}
	}
	for _, f := range s.Files {
		if err := runfile.Write(filepath.Join(root, f.Path), f.Data, fs.FileMode(f.Mode)); err != nil {
			return err
		}
	}
	for _, l := range s.Links {
		if err := os.Symlink(l.Target, filepath.Join(root, l.Path)); err != nil {
			return fmt.Errorf("cannot create link: %w", err)
		}
	}
	return nil
}

// sticky converts the bit that fs.FileMode stores elsewhere.
func sticky(mode uint32) fs.FileMode {
	if mode&unix.S_ISVTX != 0 {
		return fs.ModeSticky
	}
	return 0
}

func unpackTree(ctx context.Context, root string, t stack.Tree) error {
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

// sanitize removes from an entry everything that a container must not have. These are
// devices, setuid and setgid bits, and attributes with a meaning for the kernel or the
// file system below. It returns false if nothing is left.
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

// overlay adds the generated files to a foreign tree. Every path is resolved as in the
// container: a link must not lead out of the root.
func overlay(root string, s stack.Stack) error {
	for _, d := range s.Dirs {
		if err := overlayDir(root, d); err != nil {
			return fmt.Errorf("cannot create folder %s: %w", d.Path, err)
		}
	}
	for _, f := range s.Files {
		if err := overlayFile(root, f); err != nil {
			return fmt.Errorf("cannot create file %s: %w", f.Path, err)
		}
	}
	for _, l := range s.Lines {
		if err := overlayLine(root, l); err != nil {
			return fmt.Errorf("cannot change %s: %w", l.Path, err)
		}
	}
	return nil
}

// overlayDir creates a missing folder. It does not change an existing one, unless the
// folder must have an owner.
func overlayDir(root string, d stack.Dir) error {
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
		return errors.New("the stack has a file with that name")
	}
	if d.UID == 0 {
		return nil
	}
	return errors.Join(os.Chown(p, d.UID, d.GID), os.Chmod(p, fs.FileMode(d.Mode&0o777)))
}

// overlayFile writes a file and replaces any file of the same name.
func overlayFile(root string, f stack.File) error {
	dir, err := rootfs.RootPath(root, path.Dir(f.Path))
	if err != nil {
		return err
	}
	p := filepath.Join(dir, path.Base(f.Path))
	if err := errors.Join(os.RemoveAll(p), os.RemoveAll(p+".new")); err != nil {
		return err
	}
	return runfile.Write(p, f.Data, fs.FileMode(f.Mode))
}

// overlayLine adds a line to a file and replaces the line with the same name.
func overlayLine(root string, l stack.Line) error {
	p, err := rootfs.RootPath(root, l.Path)
	if err != nil {
		return err
	}
	old, err := readSmallFile(p)
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
	return runfile.Write(p, b.String(), 0o644)
}

// readSmallFile reads a plain file of a tree. A missing file counts as empty.
func readSmallFile(p string) (string, error) {
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
		err = fmt.Errorf("the file is larger than %d bytes", maxLinesFile)
	}
	return string(raw), err
}
