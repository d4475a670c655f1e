package wrapper

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/dewrun/dew/droplet/packing"
	"github.com/dewrun/dew/runtime/kubernetes/link"
)

// handleTree unpacks a tar into the folder of the query. The wrapper does it, because
// the files must belong to the user of the app.
func (w *wrapper) handleTree(rw http.ResponseWriter, r *http.Request) {
	dir := r.URL.Query().Get("dir")
	if dir == "" {
		dir = w.cfg.Home
	}
	if err := Unpack(dir, r.URL.Query().Get("strip"), r.Body); err != nil {
		link.Fail(rw, http.StatusConflict, fmt.Errorf("cannot unpack the files of the app: %w", err))
	}
}

// Unpack extracts a tar into a folder, without the leading folder strip of its names.
// Links in the tar cannot lead out of the folder.
func Unpack(dir, strip string, r io.Reader) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is buffered
	var dirs []*tar.Header              // their modes are set last: a folder can be read-only
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		h.Name = stripped(h.Name, strip)
		if h.Typeflag == tar.TypeLink {
			h.Linkname = stripped(h.Linkname, strip)
		}
		if h.Name == "" {
			continue
		}
		if err := unpackEntry(root, h, tr); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
		if h.Typeflag == tar.TypeDir {
			dirs = append(dirs, h)
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		// The folders of volumes belong to root, and have the right mode.
		if err := root.Chmod(dirs[i].Name, permissions(dirs[i])); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	_, err = io.Copy(io.Discard, r) // padding after the end
	return err
}

// stripped returns a clean relative name without a leading folder.
func stripped(name, folder string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if folder == "" || name == folder {
		return strings.TrimPrefix(name, folder)
	}
	return strings.TrimPrefix(name, folder+"/")
}

func permissions(h *tar.Header) fs.FileMode { return fs.FileMode(h.Mode) & fs.ModePerm }

func unpackEntry(root *os.Root, h *tar.Header, r io.Reader) error {
	if parent := path.Dir(h.Name); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(h.Name, 0o755)
	case tar.TypeSymlink:
		return errors.Join(removeFile(root, h.Name), root.Symlink(h.Linkname, h.Name))
	case tar.TypeLink:
		return errors.Join(removeFile(root, h.Name), root.Link(h.Linkname, h.Name))
	case tar.TypeReg:
		if err := removeFile(root, h.Name); err != nil {
			return err
		}
		f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, permissions(h)|0o200)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		// The mode again, because of the umask.
		err = errors.Join(err, f.Chmod(permissions(h)), f.Close())
		return errors.Join(err, root.Chtimes(h.Name, time.Time{}, h.ModTime))
	}
	return nil // devices, pipes and sockets are useless for an app
}

func removeFile(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// handlePack sends selected files as a tar, and how that ended.
func (w *wrapper) handlePack(rw http.ResponseWriter, r *http.Request) {
	var p packing.Packing
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		link.Fail(rw, http.StatusBadRequest, err)
		return
	}
	_, out := link.Answer(rw, r)
	frames := link.NewFrames(out)
	var end link.Packed
	root, err := os.OpenRoot("/")
	if err == nil {
		err = errors.Join(packing.Pack(r.Context(), root, frameWriter{frames}, p), root.Close())
	}
	if refused := (*packing.Refused)(nil); errors.As(err, &refused) {
		end.Refused = refused.Reason
	} else if err != nil {
		end.Error = err.Error()
	}
	_ = frames.JSON(link.KindPacked, end) // without it the other side knows that the tar is not complete
}

// frameWriter writes frames with output.
type frameWriter struct{ frames *link.Frames }

func (w frameWriter) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), 128<<10)
		if err := w.frames.Write(link.KindStdout, rest[:n]); err != nil {
			return len(b) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(b), nil
}

// handleFiles sends the folders of the app as a tar.
func (w *wrapper) handleFiles(rw http.ResponseWriter, _ *http.Request) {
	rw.WriteHeader(http.StatusOK)
	tw := tar.NewWriter(rw)
	for _, dir := range w.cfg.Folders {
		if err := packFolder(tw, dir); err != nil {
			// The tar has no end, so that the other side does not take it for complete.
			w.log.Warn("cannot send the files of the app", "folder", dir, "err", err)
			return
		}
	}
	if err := tw.Close(); err != nil {
		w.log.Warn("cannot send the files of the app", "err", err)
	}
}

// packFolder adds a folder to a tar, with its whole path as the name. It skips files that
// disappear, and everything that is neither a file, a folder nor a symbolic link.
func packFolder(tw *tar.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is buffered
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it disappeared, or is not readable
		}
		fi, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // it disappeared
		}
		return packEntry(tw, root, strings.TrimPrefix(filepath.Join(dir, name), "/"), name, fi)
	})
}

func packEntry(tw *tar.Writer, root *os.Root, as, name string, fi fs.FileInfo) error {
	h := &tar.Header{Name: as, Mode: int64(fi.Mode().Perm()), ModTime: fi.ModTime().Truncate(time.Second), Format: tar.FormatPAX}
	switch {
	case fi.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, as+"/"
		return tw.WriteHeader(h)
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		if err != nil {
			return nil //nolint:nilerr // it disappeared
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return tw.WriteHeader(h)
	case !fi.Mode().IsRegular():
		return nil
	}
	f, err := root.Open(name)
	if err != nil {
		return nil //nolint:nilerr // it disappeared, or is not readable
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, fi.Size()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(tw, io.LimitReader(f, h.Size))
	if err == nil && n < h.Size { // it became smaller
		_, err = io.CopyN(tw, zeros{}, h.Size-n)
	}
	return err
}

// zeros reads as zeros.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
