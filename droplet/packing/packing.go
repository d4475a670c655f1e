// Package packing writes selected files of a container into a tar.
package packing

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
)

// Packing selects files of a container.
type Packing struct {
	Folders  []Folder
	Files    []File // additional files
	MaxBytes int64  // limit of all files together
	MaxFiles int64
}

// Folder is a folder of a container and its name in the tar. If As is empty, the
// content is at the top.
type Folder struct{ From, As string }

// File is a generated file.
type File struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"`
	Data string `json:"data"`
}

// Refused reports that files cannot be packed: they exceed a limit or are not allowed.
type Refused struct{ Reason string }

func (r *Refused) Error() string { return r.Reason }

// packer writes files of a container into a tar. The files can be malicious: it follows
// no links, counts holes with their full size, and has limits for everything.
type packer struct {
	ctx   context.Context
	root  *os.Root
	tar   *tar.Writer
	left  int64 // bytes
	files int64 // entries
	p     Packing
	seen  map[fileKey]string // files with several names, by the first name
	buf   []byte
}

// fileKey identifies a file independently of its name.
type fileKey struct{ dev, ino uint64 }

// maxPacked is the longest name that is packed. Longer names could not be unpacked
// elsewhere.
const maxPacked = 3072

// Pack writes a tar of the files below root that p selects.
func Pack(ctx context.Context, root *os.Root, w io.Writer, p Packing) error {
	out := bufio.NewWriterSize(w, 128<<10)
	k := &packer{
		ctx: ctx, root: root, tar: tar.NewWriter(out), p: p, left: p.MaxBytes, files: p.MaxFiles,
		seen: map[fileKey]string{}, buf: make([]byte, 128<<10),
	}
	for _, f := range p.Folders {
		if err := k.folder(f); err != nil {
			return err
		}
	}
	for _, f := range p.Files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: int64(f.Mode), Size: int64(len(f.Data)), ModTime: time.Unix(0, 0)}
		if err := k.tar.WriteHeader(h); err != nil {
			return fmt.Errorf("cannot pack %s: %w", f.Path, err)
		}
		if _, err := io.WriteString(k.tar, f.Data); err != nil {
			return fmt.Errorf("cannot pack %s: %w", f.Path, err)
		}
	}
	return errors.Join(k.tar.Close(), out.Flush())
}

// folder packs one folder. It packs a missing folder as an empty one.
func (k *packer) folder(f Folder) error {
	from := strings.TrimPrefix(f.From, "/")
	fi, err := k.root.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return k.head(&tar.Header{Typeflag: tar.TypeDir, Name: f.As, Mode: 0o755, ModTime: time.Unix(0, 0)})
	}
	if err != nil {
		return fmt.Errorf("cannot pack %s: %w", f.From, err)
	}
	if !fi.IsDir() {
		return refuse("%s is no longer a folder: the buildpack replaced it", f.From)
	}
	return k.dir(from, f.As)
}

// dir packs a folder and its content.
func (k *packer) dir(from, as string) error {
	fi, err := k.root.Lstat(from)
	if err != nil {
		return fmt.Errorf("cannot pack %s: %w", as, err)
	}
	if err := k.head(&tar.Header{Typeflag: tar.TypeDir, Name: as, Mode: permissions(fi) | 0o700, ModTime: modTime(fi)}); err != nil {
		return err
	}
	d, err := k.root.Open(from)
	if err != nil {
		return fmt.Errorf("cannot pack %s: %w", as, err)
	}
	defer d.Close()
	var below []string
	for {
		// In portions, because a folder can have a million files.
		entries, err := d.ReadDir(1024)
		for _, e := range entries {
			if e.IsDir() {
				below = append(below, e.Name())
				continue
			}
			if err := k.entry(path.Join(from, e.Name()), path.Join(as, e.Name())); err != nil {
				return err
			}
		}
		if int64(len(below)) > k.files {
			return k.tooMany()
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("cannot pack %s: %w", as, err)
		}
	}
	_ = d.Close() // only read; a deep tree must not hold one open file per level
	for _, name := range below {
		if err := k.dir(path.Join(from, name), path.Join(as, name)); err != nil {
			return err
		}
	}
	return nil
}

// entry packs a file that is not a folder. It skips sockets and pipes, which are
// useless without the programs that created them.
func (k *packer) entry(from, as string) error {
	fi, err := k.root.Lstat(from)
	if err != nil {
		return fmt.Errorf("cannot pack %s: %w", as, err)
	}
	switch {
	case fi.Mode().IsRegular():
		return k.file(from, as, fi)
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := k.root.Readlink(from)
		if err != nil {
			return fmt.Errorf("cannot pack %s: %w", as, err)
		}
		return k.head(&tar.Header{Typeflag: tar.TypeSymlink, Name: as, Linkname: target, Mode: 0o777, ModTime: modTime(fi)})
	}
	return nil
}

func (k *packer) file(from, as string, fi fs.FileInfo) error {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		key := fileKey{st.Dev, st.Ino}
		if first, ok := k.seen[key]; ok {
			return k.head(&tar.Header{Typeflag: tar.TypeLink, Name: as, Linkname: first, Mode: permissions(fi), ModTime: modTime(fi)})
		}
		k.seen[key] = as
	}
	if k.left -= fi.Size(); k.left < 0 {
		return refuse("the staged files are larger than %dM in total", k.p.MaxBytes>>20)
	}
	f, err := k.root.Open(from)
	if err != nil {
		return fmt.Errorf("cannot pack %s: %w", as, err)
	}
	defer f.Close()
	if err := k.head(&tar.Header{Typeflag: tar.TypeReg, Name: as, Mode: permissions(fi), Size: fi.Size(), ModTime: modTime(fi)}); err != nil {
		return err
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{k.tar}, f, k.buf); err != nil {
		return fmt.Errorf("cannot pack %s: %w", as, err)
	}
	return nil
}

func (k *packer) head(h *tar.Header) error {
	if err := k.ctx.Err(); err != nil {
		return err
	}
	if h.Name == "" || h.Name == "." {
		return nil // the top folder itself
	}
	if len(h.Name) > maxPacked {
		return refuse("the path %.60s… is too long", h.Name)
	}
	if k.files--; k.files < 0 {
		return k.tooMany()
	}
	h.Format = tar.FormatPAX
	if err := k.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("cannot pack %s: %w", h.Name, err)
	}
	return nil
}

func (k *packer) tooMany() error { return refuse("there are more than %d staged files", k.p.MaxFiles) }

// permissions returns the permission bits, without setuid and setgid.
func permissions(fi fs.FileInfo) int64 { return int64(fi.Mode().Perm()) }

func modTime(fi fs.FileInfo) time.Time { return fi.ModTime().Truncate(time.Second) }

func refuse(format string, args ...any) error {
	return &Refused{Reason: fmt.Sprintf(format, args...)}
}
