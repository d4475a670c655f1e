package stack

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

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/store"
)

// Limits of the tree of a stack.
const (
	maxTreeBytes = 16 << 30
	maxTreeFiles = 2_000_000
	// maxUserFile limits /etc/passwd and /etc/group, which are stored in the database.
	maxUserFile = 256 << 10
	// spaceEvery is the number of bytes between two checks of the free disk space.
	spaceEvery = 64 << 20
	// maxWindow limits the memory for decompression.
	maxWindow = 128 << 20
)

// layers stores the trees of stacks and images as files named after their content. It
// does not change their compression.
type layers struct {
	dir   string
	db    *store.DB
	space func() error
	facts store.Bucket[layerFacts]

	// mu is held while a layer is renamed or removed.
	mu   sync.Mutex
	pins map[string]int // layers that must not be removed yet; guarded by mu

	unfinished archive.Leftovers
}

// discard removes the folder of a finished build.
func (l *layers) discard(dir string) { l.unfinished.Remove(dir, clearTree) }

// layerFacts holds facts about a layer, collected when it was added.
type layerFacts struct {
	Size   int64   `json:"size"`             // bytes of its files
	Passwd *string `json:"passwd,omitempty"` // its /etc/passwd; empty: it removes the file of the layers below
	Group  *string `json:"group,omitempty"`
}

func openLayers(db *store.DB, o Options) (*layers, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the folder for stacks: %w", err)
	}
	l := &layers{dir: o.Dir, db: db, space: o.Space, facts: store.In[layerFacts](db, "layers"), pins: map[string]int{}}
	err := l.unfinished.Find(o.Dir, clearTree)
	return l, err
}

func (l *layers) path(sha string) string { return filepath.Join(l.dir, sha+".layer") }

// open opens a layer and decompresses it.
func (l *layers) open(sha string) (io.ReadCloser, error) {
	f, err := os.Open(l.path(sha))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: layer %.12s is not in %s: add the stack again, or push the app again", ErrNoImage, sha, l.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open layer: %w", err)
	}
	r, err := decompress(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &decompressedFile{r, f}, nil
}

// decompressedFile closes the decompressor and its file.
type decompressedFile struct {
	io.ReadCloser
	file io.Closer
}

func (b *decompressedFile) Close() error { return errors.Join(b.ReadCloser.Close(), b.file.Close()) }

// decompress decompresses gzip and zstd, which it detects by their first bytes.
func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 128<<10)
	head, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, &archive.Error{Reason: "cannot be decompressed: " + err.Error()}
		}
		return z, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderMaxMemory(maxTreeBytes), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, &archive.Error{Reason: "cannot be decompressed: " + err.Error()}
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}

// pin protects a layer from collection until done is called.
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

// has returns the facts about a layer, and whether it is stored.
func (l *layers) has(sha string) (layerFacts, bool) {
	if _, err := os.Stat(l.path(sha)); err != nil {
		return layerFacts{}, false
	}
	facts, err := l.facts.Get(sha)
	return facts, err == nil
}

// add stores a layer. It checks the layer while reading, and renames it when it is
// complete on disk. The layer is pinned until done is called.
func (l *layers) add(ctx context.Context, r io.Reader) (sha string, facts layerFacts, done func(), err error) {
	f, err := os.CreateTemp(l.dir, "layer-*"+archive.Unfinished)
	if err != nil {
		return "", facts, nil, fmt.Errorf("cannot add layer: %w", err)
	}
	sum := sha256.New()
	raw := &spaceReader{r: archive.UntilDone(ctx, r), space: l.space}
	in := io.TeeReader(raw, io.MultiWriter(f, sum))
	facts, err = scanLayer(in)
	if err == nil {
		_, err = io.Copy(io.Discard, in) // bytes after the archive belong to the digest
	}
	if raw.err != nil {
		err = raw.err // the other error is only a consequence
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

// spaceReader checks the free disk space regularly, and remembers the error that
// stopped it.
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

// scanLayer reads a tar to its end and refuses a tar that cannot be part of a stack.
func scanLayer(r io.Reader) (layerFacts, error) {
	var facts layerFacts
	p, err := decompress(r)
	if err != nil {
		return facts, err
	}
	defer p.Close()
	tr := tar.NewReader(p)
	for files := 0; ; files++ {
		h, err := tr.Next()
		switch {
		case errors.Is(err, io.EOF) && files == 0:
			return facts, &archive.Error{Reason: "is an empty archive"}
		case errors.Is(err, io.EOF):
			_, err := io.Copy(io.Discard, io.LimitReader(p, maxTreeBytes)) // reads up to the checksum of the compression
			return facts, err
		case errors.Is(err, io.ErrUnexpectedEOF) && files > 0:
			return facts, &archive.Error{Reason: "is incomplete: upload it again"}
		case err != nil:
			return facts, &archive.Error{Reason: "is not a tar archive, either uncompressed or compressed with gzip or zstd: " + err.Error()}
		case files >= maxTreeFiles:
			return facts, &archive.Error{Reason: fmt.Sprintf("has more than %d entries", maxTreeFiles)}
		}
		if err := facts.scanEntry(h, tr); err != nil {
			return facts, err
		}
	}
}

// scanEntry stores the facts of one entry, or refuses the entry. Unpacking a stack
// leaves out devices, sockets and setuid bits: nothing in a stack can use them.
func (l *layerFacts) scanEntry(h *tar.Header, r io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	switch {
	case slices.Contains(strings.Split(h.Name, "/"), ".."):
		return &archive.Error{Entry: h.Name, Reason: "must not contain .."}
	case strings.ContainsRune(h.Name, 0):
		return &archive.Error{Entry: h.Name, Reason: "must not contain a zero byte"}
	case h.Typeflag == tar.TypeLink && slices.Contains(strings.Split(h.Linkname, "/"), ".."):
		return &archive.Error{Entry: h.Name, Reason: "is a hard link whose target must not contain .."}
	case h.Size < 0 || h.Size > maxTreeBytes-l.Size:
		return &archive.Error{Reason: fmt.Sprintf("is larger than %s after unpacking", archive.Size(maxTreeBytes))}
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
		// Files of the layer itself stay, before or after the whiteout.
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
		return nil // then users have only IDs
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return &archive.Error{Reason: "is incomplete: upload it again"}
	}
	text := string(raw)
	*into = &text
	return nil
}

// collect removes the layers without a name. It reads the names under the lock. A layer
// is unpinned only after a record that names it is stored, so none is missed.
func (l *layers) collect(names func() (map[string]bool, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	named, err := names()
	if err != nil {
		return err
	}
	all, err := filepath.Glob(l.path("*"))
	if err != nil {
		return fmt.Errorf("cannot delete unused layers: %w", err)
	}
	for _, name := range all {
		sha := strings.TrimSuffix(filepath.Base(name), ".layer")
		if named[sha] || l.pins[sha] > 0 {
			continue
		}
		if err := errors.Join(os.Remove(name), l.facts.Delete(sha)); err != nil {
			return fmt.Errorf("cannot delete unused layers: %w", err)
		}
	}
	return nil
}
