package push

import (
	"archive/zip"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// bits are the files of an app as they are pushed, by path.
type bits struct {
	files  []file
	close  func() error
	hashed func() error // nil: the checksums are not being computed
}

// file is one file, empty folder or link of an app.
type file struct {
	path string // below the app's folder, with slashes
	mode fs.FileMode
	size int64
	sha1 string
	open func() (io.ReadCloser, error) // a link's content is its target
}

// archiveMode is the mode of files from an archive: archives from other systems can lack
// the permission to execute.
const archiveMode fs.FileMode = 0o744

// gather lists the files at a path: a folder, or a zip, jar or war.
func gather(root string, out *console.Console) (*bits, error) {
	info, err := os.Stat(root)
	if err != nil {
		return nil, &console.Failure{
			Status: console.StatusFailed, Err: fmt.Errorf("cannot find the files: %w", err),
			Advice: "The path must be a folder, zip, jar or war",
		}
	}
	var b *bits
	if info.IsDir() {
		b, err = gatherFolder(root, out)
	} else {
		b, err = gatherArchive(root)
	}
	if err != nil {
		return nil, err
	}
	if len(b.files) == 0 {
		return nil, errors.Join(fmt.Errorf("nothing to upload in %s: it is empty, or %s excludes all files", root, ignoreFile), b.close())
	}
	slices.SortFunc(b.files, func(x, y file) int { return strings.Compare(x.path, y.path) })
	return b, nil
}

func gatherFolder(root string, out *console.Console) (*bits, error) {
	text, err := os.ReadFile(filepath.Join(root, ignoreFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read %s: %w", ignoreFile, err)
	}
	rules, err := parseIgnore(string(text))
	if err != nil {
		return nil, err
	}
	root, err = filepath.EvalSymlinks(root) // WalkDir does not follow links, not even at the root
	if err != nil {
		return nil, fmt.Errorf("cannot find the app's files: %w", err)
	}
	b := &bits{close: func() error { return nil }}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("cannot read the app's files: %w", err)
		}
		rel, err := filepath.Rel(root, name)
		if err != nil || rel == "." {
			return err
		}
		rel = filepath.ToSlash(rel)
		if rules.itself(rel, d.IsDir()) { // its parent folders are not ignored
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return b.add(name, rel, d, out)
	})
	b.dropFullFolders()
	return b, err
}

// add adds one entry of a folder.
func (b *bits) add(name, rel string, d fs.DirEntry, out *console.Console) error {
	info, err := d.Info()
	if err != nil {
		return fmt.Errorf("cannot read the app's files: %w", err)
	}
	f := file{path: rel, mode: info.Mode()}
	switch {
	case info.IsDir():
		f.mode = fs.ModeDir | 0o755
	case info.Mode()&fs.ModeSymlink != 0:
		f.open = func() (io.ReadCloser, error) {
			target, err := os.Readlink(name)
			return io.NopCloser(strings.NewReader(target)), err
		}
	case info.Mode().IsRegular():
		f.size = info.Size()
		f.open = func() (io.ReadCloser, error) { return os.Open(name) }
	default:
		out.Warn("skipped " + rel + ": it is not a file, folder or link")
		return nil
	}
	b.files = append(b.files, f)
	return nil
}

func gatherArchive(name string) (*bits, error) {
	z, err := zip.OpenReader(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s as a folder, zip, jar or war: %w", name, err)
	}
	rules, err := parseIgnore("")
	if err != nil {
		return nil, errors.Join(err, z.Close())
	}
	b := &bits{close: z.Close}
	for _, e := range z.File {
		rel := strings.TrimSuffix(e.Name, "/")
		info := e.FileInfo()
		if rel == "" || rules.ignored(rel, info.IsDir()) {
			continue
		}
		f := file{path: rel, mode: archiveMode, size: int64(e.UncompressedSize64), open: e.Open} //nolint:gosec // the daemon has limits far below
		if info.IsDir() {
			f.mode, f.size, f.open = fs.ModeDir|0o755, 0, nil
		} else if info.Mode()&fs.ModeSymlink != 0 {
			f.mode, f.size = info.Mode(), 0
		}
		b.files = append(b.files, f)
	}
	b.dropFullFolders()
	return b, nil
}

// dropFullFolders removes folders that are not empty: their files imply them.
func (b *bits) dropFullFolders() {
	full := map[string]bool{}
	for _, f := range b.files {
		full[path.Dir(f.path)] = true
	}
	b.files = slices.DeleteFunc(b.files, func(f file) bool { return f.mode.IsDir() && full[f.path] })
}

// named reports whether dewd can find the file by its checksum. That does not apply to
// empty files, folders and links.
func (f file) named() bool { return f.mode.IsRegular() && f.size > 0 }

func (f file) resource() v3.Resource {
	return v3.Resource{
		Path: f.path, Mode: strconv.FormatUint(uint64(f.mode.Perm()), 8),
		Checksum: v3.Checksum{Value: f.sha1}, Size: f.size,
	}
}

// startHash starts to compute the checksums while the caller does other work.
func (b *bits) startHash(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- b.hashAll(ctx) }()
	b.hashed = sync.OnceValue(func() error { return <-done })
	closeFiles := b.close
	b.close = func() error {
		cancel() // what still reads gets an error
		return closeFiles()
	}
}

// hash returns when the checksums of all files are computed.
func (b *bits) hash(ctx context.Context) error {
	if b.hashed != nil {
		return b.hashed()
	}
	return b.hashAll(ctx)
}

// hashAll computes the checksums of all files in parallel.
func (b *bits) hashAll(ctx context.Context) error {
	next := make(chan *file)
	var (
		workers sync.WaitGroup
		once    sync.Once
		failed  error
	)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			buf := make([]byte, copySize)
			for f := range next {
				if err := f.hash(buf); err != nil {
					once.Do(func() { failed = err })
					cancel()
				}
			}
		})
	}
	for i := range b.files {
		if !b.files[i].named() {
			continue
		}
		select {
		case next <- &b.files[i]:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	if failed != nil {
		return failed
	}
	return context.Cause(ctx)
}

// copySize is the size of the copy buffer. One buffer is used for many files, because
// most files are smaller than a new buffer.
const copySize = 64 << 10

func copyBuffer(dst io.Writer, src io.Reader, buf []byte) (int64, error) {
	return io.CopyBuffer(dst, struct{ io.Reader }{src}, buf) // hides WriterTo, which would not use the buffer
}

func (f *file) hash(buf []byte) error {
	r, err := f.open()
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", f.path, err)
	}
	defer r.Close()
	h := sha1.New() //nolint:gosec // see the import
	n, err := copyBuffer(h, r, buf)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", f.path, err)
	}
	f.size, f.sha1 = n, hex.EncodeToString(h.Sum(nil))
	return nil
}

// parts separates the files that the daemon has from those to upload.
func (b *bits) parts(matched []v3.Resource) (known []v3.Resource, unknown []file) {
	type content struct {
		sha1 string
		size int64
	}
	have := map[content]bool{}
	for _, r := range matched {
		have[content{r.Checksum.Value, r.Size}] = true
	}
	for _, f := range b.files {
		if f.named() && have[content{f.sha1, f.size}] {
			known = append(known, f.resource())
		} else {
			unknown = append(unknown, f)
		}
	}
	return known, unknown
}

// writeZip writes files as a zip without compression, which would only cost time over a
// local socket.
func writeZip(w io.Writer, files []file, progress io.Writer) error {
	z := zip.NewWriter(w)
	buf := make([]byte, copySize)
	for _, f := range files {
		if err := f.zipTo(z, progress, buf); err != nil {
			return err
		}
	}
	return z.Close()
}

func (f file) zipTo(z *zip.Writer, progress io.Writer, buf []byte) error {
	h := &zip.FileHeader{Name: f.path, Method: zip.Store}
	h.SetMode(f.mode)
	if f.mode.IsDir() {
		h.Name += "/"
	}
	w, err := z.CreateHeader(h)
	if err != nil || f.open == nil {
		return err
	}
	r, err := f.open()
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", f.path, err)
	}
	defer r.Close()
	if _, err := copyBuffer(io.MultiWriter(w, progress), r, buf); err != nil {
		return fmt.Errorf("cannot upload %s: %w", f.path, err)
	}
	return nil
}
