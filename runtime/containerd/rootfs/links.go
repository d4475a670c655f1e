package rootfs

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// compareSize is the number of bytes that are compared at once.
const compareSize = 64 << 10

// home is the folder of a droplet in a stack.
const home = "home/vcap"

// Links are the files of a droplet that are the same in an earlier droplet of the app.
// A hard link takes a fraction of the time of a new file. No container can change the file
// of a droplet, only its own copy.
type Links struct {
	old   *folder     // the earlier droplet
	same  []string    // paths
	other [][2]string // hard links in the droplet itself: path and target
	a, b  []byte      // buffers of compareSize
}

// UnpackChanged is like UnpackDroplet, but leaves out the files that are the same in old,
// the root of an earlier droplet. Create adds them.
func UnpackChanged(ctx context.Context, root string, tree io.Reader, o Owner, old string) (_ *Links, err error) {
	l := &Links{a: make([]byte, compareSize), b: make([]byte, compareSize)}
	if l.old, err = openFolder(filepath.Join(old, home)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(l.filter(tree, w, o))
	}()
	err = UnpackDroplet(ctx, root, r, o)
	r.CloseWithError(errors.New("the droplet was not unpacked"))
	<-done
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Close releases the folder of the earlier droplet.
func (l *Links) Close() error { return l.old.close() }

// filter copies the entries of a tar that are not in the earlier droplet.
func (l *Links) filter(tree io.Reader, out io.Writer, o Owner) error {
	r, w := tar.NewReader(tree), tar.NewWriter(out)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			// Apply does not read what follows the last entry.
			_, err := io.Copy(io.Discard, tree)
			return errors.Join(err, w.Close())
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeLink { // its target can be one of the files that are left out
			l.other = append(l.other, [2]string{h.Name, h.Linkname})
			continue
		}
		if err := l.entry(h, r, w, o); err != nil {
			return err
		}
	}
}

// entry copies an entry, unless it is a file that is the same in the earlier droplet.
func (l *Links) entry(h *tar.Header, r io.Reader, w *tar.Writer, o Owner) error {
	f, err := l.candidate(h, o)
	if err != nil {
		return err
	}
	var equal int64 // bytes at the start that are the same
	n := 0          // bytes in l.a that are different
	if f != nil {
		defer f.Close()
		if equal, n, err = l.compare(r, f, h.Size); err != nil {
			return err
		}
		if equal == h.Size {
			l.same = append(l.same, path.Clean(h.Name))
			return nil
		}
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if equal > 0 {
		if _, err := io.Copy(w, io.NewSectionReader(f, 0, equal)); err != nil {
			return err
		}
	}
	if _, err := w.Write(l.a[:n]); err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return err
}

// compare reads from r until there is a difference from the file. It returns the number
// of equal bytes, and that of further bytes, which are in l.a.
func (l *Links) compare(r io.Reader, f *os.File, size int64) (equal int64, n int, err error) {
	for equal < size {
		part := l.a[:min(compareSize, size-equal)]
		if _, err := io.ReadFull(r, part); err != nil {
			return 0, 0, err
		}
		_, err := io.ReadFull(f, l.b[:len(part)])
		if err != nil || !bytes.Equal(part, l.b[:len(part)]) {
			return equal, len(part), nil
		}
		equal += int64(len(part))
	}
	return equal, 0, nil
}

// candidate opens the file of the earlier droplet that has the name and the attributes of
// an entry. It returns nil if there is none.
func (l *Links) candidate(h *tar.Header, o Owner) (*os.File, error) {
	name := path.Clean(h.Name)
	if h.Typeflag != tar.TypeReg || !filepath.IsLocal(name) || strings.HasPrefix(path.Base(name), ".wh.") || hasAttributes(h) {
		return nil, nil
	}
	dir, err := l.old.open(path.Dir(name))
	if err != nil || dir < 0 {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, nil //nolint:nilerr // there is none
	}
	if st.Mode != unix.S_IFREG|uint32(h.Mode&0o7777) || st.Size != h.Size || int(st.Uid) != o.UID || int(st.Gid) != o.GID ||
		st.Mtim.Sec != h.ModTime.Unix() || st.Mtim.Nsec != int64(h.ModTime.Nanosecond()) {
		return nil, nil
	}
	fd, err := unix.Openat(dir, path.Base(name), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s of the last droplet: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if n, err := unix.Flistxattr(fd, nil); err == nil && n > 0 {
		return nil, f.Close() // overlayfs marks files that way
	}
	return f, nil
}

// hasAttributes reports whether an entry has more than a name, a size and times.
func hasAttributes(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if !slices.Contains([]string{"path", "size", "mtime", "atime", "ctime"}, key) {
			return true
		}
	}
	return false
}

// Create adds the files that UnpackChanged left out to a root, which must not be mounted.
func (l *Links) Create(root string) (err error) {
	to, err := openFolder(filepath.Join(root, home))
	if err != nil {
		return err
	}
	to.restore = true
	defer func() { err = errors.Join(err, to.close()) }()
	for _, name := range l.same {
		if err := link(l.old, name, to, name); err != nil {
			return err
		}
	}
	own, err := openFolder(filepath.Join(root, home))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	for _, o := range l.other {
		if err := link(own, path.Clean(o[1]), to, path.Clean(o[0])); err != nil {
			return err
		}
	}
	return nil
}

// link creates a hard link. The time of its folder stays the same.
func link(from *folder, name string, to *folder, as string) error {
	source, err := from.open(path.Dir(name))
	if err != nil {
		return err
	}
	target, err := to.open(path.Dir(as))
	if err != nil {
		return err
	}
	if source < 0 || target < 0 {
		return fmt.Errorf("cannot link %s to %s: a folder is missing", as, name)
	}
	if err := unix.Linkat(source, path.Base(name), target, path.Base(as), 0); err != nil {
		return fmt.Errorf("cannot link %s to %s: %w", as, name, err)
	}
	return nil
}

// folder opens the folders below a folder. It keeps the last one open, because the files
// of a tar are in the order of their folders. It does not follow links.
type folder struct {
	fd      int
	name    string // of the last one
	last    int    // -1 for none
	times   [2]unix.Timespec
	restore bool // the times, after changes
}

func openFolder(dir string) (*folder, error) {
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", dir, err)
	}
	return &folder{fd: fd, last: -1}, nil
}

// open returns the descriptor of a folder until the next call, or -1 if there is none.
func (f *folder) open(name string) (int, error) {
	if f.last >= 0 && f.name == name {
		return f.last, nil
	}
	if err := f.leave(); err != nil {
		return -1, err
	}
	fd, err := unix.Openat2(f.fd, name, &unix.OpenHow{Flags: unix.O_DIRECTORY | unix.O_RDONLY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return -1, nil //nolint:nilerr // there is none
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, errors.Join(fmt.Errorf("cannot read the attributes of %s: %w", name, err), unix.Close(fd))
	}
	f.name, f.last, f.times = name, fd, [2]unix.Timespec{st.Atim, st.Mtim}
	return fd, nil
}

// leave closes the last folder. With restore, it sets its times as they were.
func (f *folder) leave() error {
	if f.last < 0 {
		return nil
	}
	fd := f.last
	f.last = -1
	err := unix.Close(fd)
	if f.restore {
		err = errors.Join(err, unix.UtimesNanoAt(f.fd, f.name, f.times[:], unix.AT_SYMLINK_NOFOLLOW))
	}
	return err
}

func (f *folder) close() error { return errors.Join(f.leave(), unix.Close(f.fd)) }
