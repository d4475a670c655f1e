package droplet

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"crypto/sha1" // the sum that clients send
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/store"
)

// lease is how long a tree stays after Match has promised files of it to a
// client that is going to upload the rest.
const lease = 15 * time.Minute

// content names what is in a file, as clients do.
type content struct {
	sha1 [sha1.Size]byte
	size int64
}

var emptyContent = content{sha1: sha1.Sum(nil)}

// contentOf returns the content of a resource that can be asked for.
func contentOf(r Resource) (c content, ok bool) {
	b, err := hex.DecodeString(r.SHA1)
	if err != nil || len(b) != sha1.Size || r.Size <= 0 {
		return c, false
	}
	return content{sha1: [sha1.Size]byte(b), size: r.Size}, true
}

// place is where a content is; no tree: nowhere.
type place struct {
	tree   string
	offset int64
}

// pool keeps trees, each as one tar under the sha256 of its bytes, with an index
// beside it that tells where in it which content is. The trees together are the
// pool of resources: nothing is kept twice for it.
//
//	<sha256>.tar    app/ app/a app/b …   sorted, one time, no owner
//	<sha256>.index  sha1, size, offset of every content
type pool struct {
	dir string
	db  *store.DB
	log *slog.Logger

	mu    sync.Mutex // guards the fields below and those of the trees
	trees map[string]*tree

	unfinished leftovers
}

type tree struct {
	sha   string
	list  [sha256.Size]byte // of its listing: equal listing, equal tree
	added time.Time
	users int       // who would miss it
	lent  time.Time // when Match last promised something of it
}

func openPool(db *store.DB, dir string, log *slog.Logger) (*pool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder for packages: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the folder of packages: %w", err)
	}
	p := &pool{db: db, dir: dir, log: log, trees: map[string]*tree{}}
	for _, e := range entries {
		p.meet(e)
	}
	return p, nil
}

// meet takes in what an earlier daemon has left.
func (p *pool) meet(e fs.DirEntry) {
	name := filepath.Join(p.dir, e.Name())
	if sha, ok := strings.CutSuffix(e.Name(), indexEnd); ok {
		p.unfinished.remove(name, func(name string) error {
			if _, err := os.Stat(p.tar(sha)); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return os.Remove(name) // it comes before its tar
		})
		return
	}
	if strings.HasSuffix(e.Name(), half) {
		p.log.Info("swept unfinished package", "file", e.Name())
		p.unfinished.remove(name, os.Remove)
		return
	}
	sha, ok := strings.CutSuffix(e.Name(), ".tar")
	if !ok || !validSHA.MatchString(sha) {
		return
	}
	fi, err := e.Info()
	if err != nil {
		p.log.Warn("cannot read a package", "file", name, "err", err)
		return
	}
	t := &tree{sha: sha, added: fi.ModTime()}
	x, err := p.readIndex(sha)
	if err != nil {
		p.log.Warn("package has no index, its files are not matched", "sha256", sha, "err", err)
	}
	t.list = x.list
	p.trees[sha] = t
}

func (p *pool) tar(sha string) string   { return filepath.Join(p.dir, sha+".tar") }
func (p *pool) index(sha string) string { return filepath.Join(p.dir, sha+indexEnd) }

func (p *pool) readIndex(sha string) (index, error) {
	raw, err := os.ReadFile(p.index(sha))
	if err != nil {
		return index{}, err
	}
	return parseIndex(raw)
}

// find fills in the places of what is wanted, newest trees first. They stay for
// a while.
func (p *pool) find(want map[content]place) error {
	missing := 0
	for _, at := range want {
		if at.tree == "" {
			missing++
		}
	}
	trees := p.hold()
	defer p.release(trees)
	for _, t := range trees {
		if missing == 0 {
			return nil
		}
		x, err := p.readIndex(t.sha)
		if err != nil {
			continue // said when the pool was opened
		}
		found := x.fill(want, t.sha)
		if missing -= found; found > 0 {
			p.lend(t)
		}
	}
	return nil
}

// hold keeps all trees from being collected, and returns them newest first.
func (p *pool) hold() []*tree {
	p.mu.Lock()
	defer p.mu.Unlock()
	trees := slices.SortedFunc(maps.Values(p.trees), func(a, b *tree) int {
		return cmp.Or(b.added.Compare(a.added), strings.Compare(a.sha, b.sha))
	})
	for _, t := range trees {
		t.users++
	}
	return trees
}

func (p *pool) release(trees []*tree) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range trees {
		t.users--
	}
}

func (p *pool) lend(t *tree) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.lent = time.Now()
}

// open opens the tar of a tree, which is kept until done is called.
func (p *pool) open(sha string) (f *os.File, done func(), err error) {
	p.mu.Lock()
	t := p.trees[sha]
	if t != nil {
		t.users++
	}
	p.mu.Unlock()
	if t == nil {
		return nil, nil, fmt.Errorf("the files of package %s are gone: push the app again", sha)
	}
	if f, err = os.Open(p.tar(sha)); err != nil {
		p.release([]*tree{t})
		return nil, nil, fmt.Errorf("cannot open package: %w", err)
	}
	return f, func() {
		_ = f.Close() // only read
		p.release([]*tree{t})
	}, nil
}

// add makes the tree of an upload, unless it is there, and returns its sha256.
// The tree is kept until done is called.
func (p *pool) add(ctx context.Context, b *bits) (sha string, done func(), err error) {
	if t := p.same(b); t != nil {
		return t.sha, func() { p.release([]*tree{t}) }, nil
	}
	places := map[content]place{}
	for _, e := range b.entries {
		if e.sum.size > 0 {
			places[e.sum] = place{}
		}
	}
	if err := p.find(places); err != nil {
		return "", nil, err
	}
	for _, e := range b.entries {
		if e.sum.size > 0 && places[e.sum].tree == "" {
			return "", nil, &PackageError{e.path, "is not here any more: push again"}
		}
	}
	t, err := p.write(ctx, b, places)
	if err != nil {
		return "", nil, err
	}
	return t.sha, func() { p.release([]*tree{t}) }, nil
}

// same finds the tree of an upload whose every content is known, without reading
// or writing a file of it.
func (p *pool) same(b *bits) *tree {
	if slices.ContainsFunc(b.entries, func(e entry) bool { return !e.known() }) {
		return nil
	}
	list := listing(b.entries)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.trees {
		if t.list == list {
			t.users++
			return t
		}
	}
	return nil
}

// listing is the hash of all that makes a tree what it is. No path or target has
// a zero byte, so no two trees are written alike.
func listing(entries []entry) (sum [sha256.Size]byte) {
	h := sha256.New()
	var b []byte
	for _, e := range entries {
		b = append(b[:0], e.kind)
		b = binary.BigEndian.AppendUint64(b, uint64(e.mode))
		b = binary.BigEndian.AppendUint64(b, uint64(e.size))
		b = append(b, e.sum.sha1[:]...)
		b = append(append(b, e.path...), 0)
		b = append(append(b, e.link...), 0)
		h.Write(b)
	}
	h.Sum(sum[:0])
	return sum
}

// write writes tar and index under names that mean nothing, and gives them their
// own ones when they are whole and on disk.
func (p *pool) write(ctx context.Context, b *bits, places map[content]place) (t *tree, err error) {
	var files [2]*os.File // tar, index
	defer func() {
		for _, f := range files {
			if f == nil {
				continue
			}
			_ = f.Close() // synced, or given up
			if e := os.Remove(f.Name()); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	for i := range files {
		if files[i], err = os.CreateTemp(p.dir, "package-*"+half); err != nil {
			return nil, err
		}
	}
	k := newPacker(p, files[0], places)
	defer k.close()
	if err := k.pack(ctx, b); err != nil {
		return nil, b.src.because(err)
	}
	sha := hex.EncodeToString(k.sum.Sum(nil))
	if t := p.take(sha); t != nil {
		return t, nil // pushed before: what was written is dropped
	}
	x := index{list: listing(b.entries), contents: k.contents}
	if _, err := files[1].Write(x.bytes()); err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := p.db.SyncFile(f); err != nil {
			return nil, err
		}
	}
	return p.name(sha, x.list, files)
}

// take uses a tree if it is there.
func (p *pool) take(sha string) *tree {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.trees[sha]
	if t != nil {
		t.users++
	}
	return t
}

// name makes a tree of two whole files. The index comes first: so a tar that has
// its name always has its index.
func (p *pool) name(sha string, list [sha256.Size]byte, files [2]*os.File) (*tree, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := os.Rename(files[1].Name(), p.index(sha)); err != nil {
		return nil, err
	}
	if err := os.Rename(files[0].Name(), p.tar(sha)); err != nil {
		return nil, err
	}
	if err := p.db.SyncDir(p.dir); err != nil {
		return nil, err
	}
	t := p.trees[sha]
	if t == nil {
		t = &tree{sha: sha, list: list, added: time.Now()}
		p.trees[sha] = t
	}
	t.users++
	return t, nil
}

// packTime is when every file of a package was changed: old enough to be no
// news, young enough for archives that know no year before 1980.
var packTime = time.Date(1980, 1, 1, 0, 0, 1, 0, time.UTC)

// packTop is the folder of an image that a package is.
const packTop = "app"

// packer writes the tar of a tree: the same entries give the same bytes.
type packer struct {
	pool     *pool
	places   map[content]place
	open     map[string]*os.File // trees that are copied from
	done     []func()
	out      *bufio.Writer
	n        int64 // bytes written
	tar      *tar.Writer
	sum      hash.Hash
	contents []contentAt
	seen     map[content]bool
	buf      []byte
}

func newPacker(p *pool, f *os.File, places map[content]place) *packer {
	k := &packer{
		pool: p, places: places, open: map[string]*os.File{},
		sum: sha256.New(), seen: map[content]bool{}, buf: make([]byte, 128<<10),
	}
	k.out = bufio.NewWriterSize(io.MultiWriter(f, k.sum), 128<<10)
	k.tar = tar.NewWriter(k)
	return k
}

// Write counts what the tar has, to know where in it a file is.
func (k *packer) Write(b []byte) (int, error) {
	k.n += int64(len(b))
	return k.out.Write(b)
}

func (k *packer) close() {
	for _, done := range k.done {
		done()
	}
}

// pack writes all entries, and fills in what they contain.
func (k *packer) pack(ctx context.Context, b *bits) error {
	if err := k.head(entry{kind: tar.TypeDir, mode: dirMode}); err != nil {
		return err
	}
	for i := range b.entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := k.add(&b.entries[i]); err != nil {
			return err
		}
	}
	if err := k.tar.Close(); err != nil {
		return err
	}
	return k.out.Flush()
}

func (k *packer) head(e entry) error {
	h := &tar.Header{Typeflag: e.kind, Name: packTop + "/" + e.path, Linkname: e.link, Mode: e.mode, Size: e.size, ModTime: packTime}
	if e.kind == tar.TypeDir && e.path != "" {
		h.Name += "/"
	}
	return k.tar.WriteHeader(h)
}

func (k *packer) add(e *entry) error {
	if err := k.head(*e); err != nil {
		return err
	}
	if e.size == 0 {
		return nil
	}
	at, sum := k.n, sha1.New()
	if err := k.copy(io.MultiWriter(k.tar, sum), e); err != nil {
		return err
	}
	c := content{size: e.size}
	sum.Sum(c.sha1[:0])
	if e.known() && c != e.sum {
		return fmt.Errorf("package %s is damaged on disk: %s is not what it was", k.places[e.sum].tree, e.path)
	}
	e.sum = c
	if !k.seen[c] {
		k.seen[c] = true
		k.contents = append(k.contents, contentAt{content: c, offset: at})
	}
	return nil
}

// copy writes the content of a file, from the upload or from the pool.
func (k *packer) copy(w io.Writer, e *entry) error {
	if !e.known() {
		return copyZip(w, e.file, k.buf)
	}
	at := k.places[e.sum]
	f := k.open[at.tree]
	if f == nil {
		var done func()
		var err error
		if f, done, err = k.pool.open(at.tree); err != nil {
			return err
		}
		k.open[at.tree] = f
		k.done = append(k.done, done)
	}
	_, err := io.CopyBuffer(w, io.NewSectionReader(f, at.offset, e.size), k.buf)
	return err
}
