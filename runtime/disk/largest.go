package disk

import (
	"context"
	"io/fs"
	"path"
	"path/filepath"
	"syscall"
)

// Largest returns the folder of a layer that uses most of its space, and its size. Root is
// the folder of the layer that the app sees as its root.
func (l *Limits) Largest(ctx context.Context, id, root string) (string, int64) {
	y := l.of(id)
	if y == nil {
		return "", 0
	}
	return largest(ctx, filepath.Join(y.Layer, root))
}

// largest returns the deepest folder below dir that has more than half of all bytes, and
// its size. The path is absolute, as an app sees it. It returns what it found so far when
// ctx is done.
func largest(ctx context.Context, dir string) (string, int64) {
	sizes := map[string]int64{} // by folder, with everything in it
	children := map[string][]string{}
	// A file that disappears or cannot be read does not count.
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return fs.SkipAll
		}
		rel, rerr := filepath.Rel(dir, name)
		if err != nil || rerr != nil || rel == "." {
			return nil
		}
		at := path.Join("/", rel)
		if d.IsDir() {
			children[path.Dir(at)] = append(children[path.Dir(at)], at)
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		for parent := path.Dir(at); ; parent = path.Dir(parent) {
			sizes[parent] += allocated(info)
			if parent == "/" {
				return nil
			}
		}
	})
	at, total := "/", sizes["/"]
	for {
		next := ""
		for _, c := range children[at] {
			if sizes[c] > total/2 {
				next = c
			}
		}
		if next == "" {
			return at, sizes[at]
		}
		at = next
	}
}

// allocated returns the bytes that a file uses on the disk.
func allocated(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		const sector = 512
		return st.Blocks * sector
	}
	return info.Size()
}
