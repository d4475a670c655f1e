package droplet

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/dewrun/dew/store"
)

// What the tree of a stack may be at most.
const (
	maxTreeBytes = 16 << 30
	maxTreeFiles = 2_000_000
	// maxUserFile bounds /etc/passwd and /etc/group, which are kept.
	maxUserFile = 256 << 10
	// spaceEvery is how much may come between two looks at how full the disk is.
	spaceEvery = 64 << 20
	// maxWindow bounds what undoing the compression takes of memory.
	maxWindow = 128 << 20
)

// layers keeps the trees of stacks and images as files named after their content,
// compressed or not as they came.
type layers struct {
	dir   string
	db    *store.DB
	space func() error
	facts *store.Bucket[layerFacts]

	// mu is held while a layer gets or loses its name.
	mu   sync.Mutex
	pins map[string]int // layers that nobody may remove yet; guarded by mu

	unfinished leftovers
}

// discard removes the folder of a build that has ended.
func (l *layers) discard(dir string) { l.unfinished.remove(dir, clearTree) }

// layerFacts is what was seen in a layer when it came.
type layerFacts struct {
	Size   int64   `json:"size"`             // of its files
	Passwd *string `json:"passwd,omitempty"` // its /etc/passwd; "": it removes the one before
	Group  *string `json:"group,omitempty"`
}

func openLayers(db *store.DB, o StackOptions) (*layers, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder for stacks: %w", err)
	}
	l := &layers{dir: o.Dir, db: db, space: o.Space, facts: store.In[layerFacts](db, "layers"), pins: map[string]int{}}
	err := l.unfinished.find(o.Dir, clearTree)
	return l, err
}

func (l *layers) path(sha string) string { return filepath.Join(l.dir, sha+".layer") }

// open opens a layer, its compression undone.
func (l *layers) open(sha string) (io.ReadCloser, error) {
	f, err := os.Open(l.path(sha))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: layer %.12s is not in %s: add the stack or push the app again", ErrNoImage, sha, l.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open layer: %w", err)
	}
	r, err := plain(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &decompressedFile{r, f}, nil
}

// decompressedFile closes what was decompressed and its file.
type decompressedFile struct {
	io.ReadCloser
	file io.Closer
}

func (b *decompressedFile) Close() error { return errors.Join(b.ReadCloser.Close(), b.file.Close()) }

// plain undoes gzip and zstd, whose first bytes tell them.
func plain(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 128<<10)
	head, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, &ImageError{Reason: "cannot be decompressed: " + err.Error()}
		}
		return z, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderMaxMemory(maxTreeBytes), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, &ImageError{Reason: "cannot be decompressed: " + err.Error()}
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}

// pin keeps a layer from being collected until the function is called.
func (l *layers) pin(sha string) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pins[sha]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.pins[sha]--; l.pins[sha] == 0 {
			delete(l.pins, sha)
		}
	}
}

// has tells what is known of a layer that is here.
func (l *layers) has(sha string) (layerFacts, bool) {
	if _, err := os.Stat(l.path(sha)); err != nil {
		return layerFacts{}, false
	}
	facts, err := l.facts.Get(sha)
	return facts, err == nil
}

// add takes a layer in: it is checked while it comes, and on disk before it gets
// its name. The layer is pinned until done is called.
func (l *layers) add(ctx context.Context, r io.Reader) (sha string, facts layerFacts, done func(), err error) {
	f, err := os.CreateTemp(l.dir, "layer-*"+half)
	if err != nil {
		return "", facts, nil, fmt.Errorf("cannot add layer: %w", err)
	}
	sum := sha256.New()
	raw := &spaceReader{r: &untilDone{ctx: ctx, r: r}, space: l.space}
	in := io.TeeReader(raw, io.MultiWriter(f, sum))
	facts, err = scanLayer(in)
	if err == nil {
		_, err = io.Copy(io.Discard, in) // what follows the archive belongs to its digest
	}
	if raw.err != nil {
		err = raw.err // what came of it is only a consequence
	}
	err = errors.Join(err, l.db.SyncFile(f), f.Close())
	if err != nil {
		return "", facts, nil, errors.Join(err, os.Remove(f.Name()))
	}
	sha = hex.EncodeToString(sum.Sum(nil))
	done = l.pin(sha)
	err = errors.Join(l.facts.Put(sha, facts), os.Rename(f.Name(), l.path(sha)), l.db.SyncDir(l.dir))
	if err != nil {
		done()
		return "", facts, nil, fmt.Errorf("cannot add layer: %w", err)
	}
	return sha, facts, done, nil
}

// spaceReader looks now and then how full the disk is, and remembers the error
// that ended it.
type spaceReader struct {
	r     io.Reader
	space func() error
	since int64
	err   error
}

func (s *spaceReader) Read(p []byte) (int, error) {
	if s.since == 0 || s.since >= spaceEvery {
		s.since = 0
		if s.err = s.space(); s.err != nil {
			return 0, s.err
		}
	}
	n, err := s.r.Read(p)
	s.since += int64(n) + 1
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// scanLayer reads a tar to its end and refuses what does not belong into a stack.
func scanLayer(r io.Reader) (layerFacts, error) {
	var facts layerFacts
	p, err := plain(r)
	if err != nil {
		return facts, err
	}
	defer p.Close()
	tr := tar.NewReader(p)
	for files := 0; ; files++ {
		h, err := tr.Next()
		switch {
		case errors.Is(err, io.EOF) && files == 0:
			return facts, &ImageError{Reason: "is an empty archive"}
		case errors.Is(err, io.EOF):
			_, err := io.Copy(io.Discard, io.LimitReader(p, maxTreeBytes)) // the checksum of the compression
			return facts, err
		case errors.Is(err, io.ErrUnexpectedEOF) && files > 0:
			return facts, &ImageError{Reason: "is cut off: send it again"}
		case err != nil:
			return facts, &ImageError{Reason: "is not a tar archive, nor one compressed with gzip or zstd: " + err.Error()}
		case files >= maxTreeFiles:
			return facts, &ImageError{Reason: fmt.Sprintf("has more than %d entries", maxTreeFiles)}
		}
		if err := facts.see(h, tr); err != nil {
			return facts, err
		}
	}
}

// see notes what one entry tells, or refuses it. Devices, sockets and the bits by
// which programs run as somebody else are left out when a stack is unpacked:
// nothing of a stack may use them.
func (l *layerFacts) see(h *tar.Header, r io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	switch {
	case slices.Contains(strings.Split(h.Name, "/"), ".."):
		return &ImageError{Entry: h.Name, Reason: "must not have .. in it"}
	case strings.ContainsRune(h.Name, 0):
		return &ImageError{Entry: h.Name, Reason: "must not have a zero byte in it"}
	case h.Size < 0 || h.Size > maxTreeBytes-l.Size:
		return &ImageError{Reason: fmt.Sprintf("is larger than %s, unpacked", inBytes(maxTreeBytes))}
	}
	if h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeGNUSparse {
		l.Size += h.Size
	}
	none := ""
	switch name {
	case "etc/.wh.passwd":
		l.Passwd = cmp.Or(l.Passwd, &none)
	case "etc/.wh.group":
		l.Group = cmp.Or(l.Group, &none)
	case "etc/.wh..wh..opq", ".wh.etc", ".wh..wh..opq":
		// What the layer itself brings stays, wherever it stands in it.
		l.Passwd, l.Group = cmp.Or(l.Passwd, &none), cmp.Or(l.Group, &none)
	case "etc/passwd":
		return readUserFile(h, r, &l.Passwd)
	case "etc/group":
		return readUserFile(h, r, &l.Group)
	}
	return nil
}

func readUserFile(h *tar.Header, r io.Reader, into **string) error {
	if h.Typeflag != tar.TypeReg || h.Size > maxUserFile {
		return nil // then users have numbers
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return &ImageError{Reason: "is cut off: send it again"}
	}
	text := string(raw)
	*into = &text
	return nil
}

// collect removes the layers that nobody names. It asks for the names under the
// lock: a layer is let go after something that names it is kept, so none is missed.
func (l *layers) collect(names func() (map[string]bool, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	named, err := names()
	if err != nil {
		return err
	}
	all, err := filepath.Glob(l.path("*"))
	if err != nil {
		return fmt.Errorf("cannot collect layers: %w", err)
	}
	for _, name := range all {
		sha := strings.TrimSuffix(filepath.Base(name), ".layer")
		if named[sha] || l.pins[sha] > 0 {
			continue
		}
		if err := errors.Join(os.Remove(name), l.facts.Delete(sha)); err != nil {
			return fmt.Errorf("cannot collect layers: %w", err)
		}
	}
	return nil
}
