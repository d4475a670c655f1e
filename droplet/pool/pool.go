package pool

import (
	"cmp"
	"context"
	"crypto/sha1" // clients send SHA-1 checksums
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/store"
)

// Lease is how long a tree stays after Match has promised files of it to a client that
// will upload the rest.
const Lease = 15 * time.Minute

// Content identifies the content of a file, as clients do.
type Content struct {
	sha1 [sha1.Size]byte
	size int64
}

var emptyContent = Content{sha1: sha1.Sum(nil)}

// Claim names files that a user does not send, because they are in the pool.
type Claim struct {
	Resources []Resource
	By        Reader
}

// Reader is a user who claims files. A checksum alone must not give access to the file of
// another user, nor tell that it exists. The zero value can use all trees.
type Reader struct {
	ID    string
	Reads func(tree string) (bool, error) // whether the user can read a tree
}

// ContentOf returns the content of a resource, if the resource can be matched.
func ContentOf(r Resource) (c Content, ok bool) {
	b, err := hex.DecodeString(r.SHA1)
	if err != nil || len(b) != sha1.Size || r.Size <= 0 {
		return c, false
	}
	return Content{sha1: [sha1.Size]byte(b), size: r.Size}, true
}

// Place is the location of a content. An empty tree means that it is not in the pool.
type Place struct {
	Tree   string
	offset int64
	sums   sums
}

// Pool stores trees, each as one tar under a sha256 of its entries: equal trees have equal
// names. A tree of an older dewd has the sha256 of its tar as its name. The index next to
// the tar has the offset of each content. The trees together are the pool of resources, so
// no file is stored twice for it.
//
//	<sha256>.tar    app/ app/a app/b …   sorted, one time, no owner
//	<sha256>.index  sha1, size, offset, sha256 and CRC of every content
type Pool struct {
	dir string
	db  *store.DB
	log *slog.Logger

	mu    sync.Mutex // guards the fields below and those of the trees
	trees map[string]*tree

	unfinished archive.Leftovers
}

type tree struct {
	sha   string
	list  [sha256.Size]byte // hash of its listing: equal listing, equal tree
	added time.Time
	users int                  // number of present users
	lent  map[string]time.Time // by Reader: when Match last promised a file of it
}

// leased reports whether Match promised a file of the tree not long ago.
func (t *tree) leased() bool {
	for _, at := range t.lent {
		if time.Since(at) < Lease {
			return true
		}
	}
	return false
}

// Open opens the pool in dir, and creates dir if necessary.
func Open(db *store.DB, dir string, log *slog.Logger) (*Pool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the folder for packages: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the folder for packages: %w", err)
	}
	p := &Pool{db: db, dir: dir, log: log, trees: map[string]*tree{}}
	for _, e := range entries {
		p.load(e)
	}
	return p, nil
}

// load adds a file of an earlier daemon to the pool, or removes it if it is unfinished.
func (p *Pool) load(e fs.DirEntry) {
	name := filepath.Join(p.dir, e.Name())
	if sha, ok := strings.CutSuffix(e.Name(), IndexEnd); ok {
		p.unfinished.Remove(name, func(name string) error {
			if _, err := os.Stat(p.Tar(sha)); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return os.Remove(name) // the index is created before its tar
		})
		return
	}
	if strings.HasSuffix(e.Name(), archive.Unfinished) {
		p.log.Info("removed unfinished package", "file", e.Name())
		p.unfinished.Remove(name, os.Remove)
		return
	}
	sha, ok := strings.CutSuffix(e.Name(), ".tar")
	if !ok || !archive.ValidSHA.MatchString(sha) {
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
		p.log.Warn("package has no index: uploads cannot reuse its files", "sha256", sha, "err", err)
	}
	t.list = x.list
	p.trees[sha] = t
}

// Tar returns the path of a tree's tar.
func (p *Pool) Tar(sha string) string { return filepath.Join(p.dir, sha+".tar") }

// Index returns the path of a tree's index.
func (p *Pool) Index(sha string) string { return filepath.Join(p.dir, sha+IndexEnd) }

func (p *Pool) readIndex(sha string) (index, error) {
	raw, err := os.ReadFile(p.Index(sha))
	if err != nil {
		return index{}, err
	}
	return parseIndex(raw)
}

// Find fills in the places of the wanted contents that a user can read, newest trees
// first. The trees stay for the time of Lease.
func (p *Pool) Find(want map[Content]Place, by Reader) error {
	missing := 0
	for _, at := range want {
		if at.Tree == "" {
			missing++
		}
	}
	trees := p.hold()
	defer p.release(trees)
	for _, t := range trees {
		if missing == 0 {
			return nil
		}
		can, err := p.reads(by, t)
		if err != nil {
			return err
		}
		if !can {
			continue
		}
		x, err := p.readIndex(t.sha)
		if err != nil {
			continue // reported when the pool was opened
		}
		found := x.fill(want, t.sha)
		if missing -= found; found > 0 {
			p.extendLease(t, by)
		}
	}
	return nil
}

// hold protects all trees from collection, and returns them newest first.
func (p *Pool) hold() []*tree {
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

func (p *Pool) release(trees []*tree) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range trees {
		t.users--
	}
}

func (p *Pool) extendLease(t *tree, by Reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(t.lent, func(_ string, at time.Time) bool { return time.Since(at) >= Lease })
	if t.lent == nil {
		t.lent = map[string]time.Time{}
	}
	t.lent[by.ID] = time.Now()
}

// reads reports whether a user can read a tree. The promise of Match is kept even if the
// package of the tree was deleted since.
func (p *Pool) reads(by Reader, t *tree) (bool, error) {
	if by.Reads == nil {
		return true, nil
	}
	p.mu.Lock()
	at := t.lent[by.ID]
	p.mu.Unlock()
	if time.Since(at) < Lease {
		return true, nil
	}
	return by.Reads(t.sha)
}

// Open opens the tar of a tree, which stays until done is called.
func (p *Pool) Open(sha string) (f *os.File, done func(), err error) {
	p.mu.Lock()
	t := p.trees[sha]
	if t != nil {
		t.users++
	}
	p.mu.Unlock()
	if t == nil {
		return nil, nil, fmt.Errorf("the files of package %s do not exist: push the app again", sha)
	}
	if f, err = os.Open(p.Tar(sha)); err != nil {
		p.release([]*tree{t})
		return nil, nil, fmt.Errorf("cannot open package: %w", err)
	}
	return f, func() {
		_ = f.Close() // only read
		p.release([]*tree{t})
	}, nil
}

// Add stores the tree of an upload, unless it exists, and returns its name. The tree
// stays until done is called.
func (p *Pool) Add(ctx context.Context, b *Upload) (sha string, done func(), err error) {
	t, err := p.findSame(b)
	if err != nil {
		return "", nil, err
	}
	if t != nil {
		return t.sha, func() { p.release([]*tree{t}) }, nil
	}
	places := map[Content]Place{}
	for _, e := range b.Entries {
		if e.sum.size > 0 {
			places[e.sum] = Place{}
		}
	}
	if err := p.Find(places, b.by); err != nil {
		return "", nil, err
	}
	for _, e := range b.Entries {
		if e.sum.size > 0 && places[e.sum].Tree == "" {
			return "", nil, &Error{e.Path, "is no longer stored: push again"}
		}
	}
	if t, err = p.write(ctx, b, places); err != nil {
		return "", nil, err
	}
	return t.sha, func() { p.release([]*tree{t}) }, nil
}

// findSame finds the tree of an upload whose contents are all known, without reading or
// writing a file of it. The user must be able to read that tree.
func (p *Pool) findSame(b *Upload) (*tree, error) {
	if slices.ContainsFunc(b.Entries, func(e entry) bool { return !e.known() }) {
		return nil, nil
	}
	list := listing(b.Entries)
	trees := p.hold() // newest first: one of an older dewd can have the same listing
	defer p.release(trees)
	for _, t := range trees {
		if t.list != list {
			continue
		}
		can, err := p.reads(b.by, t)
		if err != nil {
			return nil, err
		}
		if can {
			return p.use(t.sha), nil
		}
	}
	return nil, nil
}

// write writes the tar and the index under temporary names. It renames them when they
// are complete and on disk.
func (p *Pool) write(ctx context.Context, b *Upload, places map[Content]Place) (t *tree, err error) {
	var files [2]*os.File // tar, index
	defer func() {
		for _, f := range files {
			if f == nil {
				continue
			}
			_ = f.Close() // already synced, or abandoned
			if e := os.Remove(f.Name()); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	for i := range files {
		if files[i], err = os.CreateTemp(p.dir, "package-*"+archive.Unfinished); err != nil {
			return nil, err
		}
	}
	contents, err := p.pack(ctx, files[0], b, places)
	if err != nil {
		return nil, b.src.uploadError(err)
	}
	sha := nameOf(b.Entries)
	if t := p.use(sha); t != nil {
		return t, nil // pushed before, so the written files are dropped
	}
	x := index{list: listing(b.Entries), contents: contents}
	if _, err := files[1].Write(x.bytes()); err != nil {
		return nil, err
	}
	var g errgroup.Group
	for _, f := range files {
		g.Go(func() error { return p.db.SyncFile(f) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return p.name(sha, x.list, files)
}

// use uses a tree if it exists.
func (p *Pool) use(sha string) *tree {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.trees[sha]
	if t != nil {
		t.users++
	}
	return t
}

// name creates a tree from two complete files. It renames the index first, so that a
// tar with its final name always has an index.
func (p *Pool) name(sha string, list [sha256.Size]byte, files [2]*os.File) (*tree, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := os.Rename(files[1].Name(), p.Index(sha)); err != nil {
		return nil, err
	}
	if err := os.Rename(files[0].Name(), p.Tar(sha)); err != nil {
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
