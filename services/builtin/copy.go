package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// copyTree copies a folder completely or not at all, and shares the data blocks if the
// file system supports it. The app user can own the folder, so copyTree follows no link
// out of it.
func copyTree(ctx context.Context, from, to string) error {
	part := to + newSuffix
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("cannot remove an unfinished copy: %w", err)
	}
	if err := errors.Join(copyAll(ctx, from, part), syncFS(filepath.Dir(part))); err != nil {
		return errors.Join(fmt.Errorf("cannot copy %s: %w", from, err), os.RemoveAll(part))
	}
	if err := os.Rename(part, to); err != nil {
		return fmt.Errorf("cannot rename the finished copy: %w", err)
	}
	return syncFS(filepath.Dir(to))
}

// copyAll copies everything in from to the new folder to.
func copyAll(ctx context.Context, from, to string) error {
	source, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // opened for reading only
	return fs.WalkDir(source.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		return copyOne(source, name, filepath.Join(to, name))
	})
}

// copyOne copies one file, folder or link with its owner and mode. It skips sockets and
// pipes, which have no meaning in a copy.
func copyOne(source *os.Root, name, to string) error {
	fi, err := source.Lstat(name)
	if err != nil {
		return err
	}
	switch fi.Mode().Type() {
	case fs.ModeDir:
		err = os.Mkdir(to, 0o700)
	case fs.ModeSymlink:
		var target string
		if target, err = source.Readlink(name); err == nil {
			err = os.Symlink(target, to)
		}
	case 0:
		err = copyFile(source, name, to)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	if fi.Mode().Type() == fs.ModeSymlink {
		return nil
	}
	return os.Chmod(to, fi.Mode().Perm())
}

// copyFile copies the content of a file. The kernel shares the blocks if it can.
func copyFile(source *os.Root, name, to string) error {
	in, err := source.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// syncFS makes all writes to the file system of path durable.
func syncFS(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot sync %s: %w", path, err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("cannot sync %s: %w", path, err)
	}
	return nil
}
