package pool

import (
	"archive/tar"
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// Time is the modification time of every file in a package. It is old enough not to
// look recent, but not before 1980, the first year that some archive formats support.
var Time = time.Date(1980, 1, 1, 0, 0, 1, 0, time.UTC)

// Top is the folder of a package in an image.
const Top = "app"

// packer writes the tar of a tree: the same entries give the same bytes.
type packer struct {
	Pool     *Pool
	places   map[Content]Place
	open     map[string]*os.File // trees that contents are copied from
	done     []func()
	out      *bufio.Writer
	n        int64 // bytes written
	tar      *tar.Writer
	contents []contentAt
	seen     map[Content]bool
	buf      []byte
}

func newPacker(p *Pool, f *os.File, places map[Content]Place) *packer {
	k := &packer{
		Pool: p, places: places, open: map[string]*os.File{},
		seen: map[Content]bool{}, buf: make([]byte, 128<<10),
	}
	k.out = bufio.NewWriterSize(f, 128<<10)
	k.tar = tar.NewWriter(k)
	return k
}

// Write counts the bytes of the tar, to know the offset of each file.
func (k *packer) Write(b []byte) (int, error) {
	k.n += int64(len(b))
	return k.out.Write(b)
}

// pack writes the tar of an upload to f, and returns the places of the contents.
func (p *Pool) pack(ctx context.Context, f *os.File, b *Upload, places map[Content]Place) ([]contentAt, error) {
	k := newPacker(p, f, places)
	err := k.pack(ctx, b)
	for _, done := range k.done {
		done()
	}
	return k.contents, err
}

// pack writes all entries, and fills in their contents.
func (k *packer) pack(ctx context.Context, b *Upload) error {
	if err := k.writeHeader(entry{kind: tar.TypeDir, mode: DirMode}); err != nil {
		return err
	}
	for i := range b.Entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := k.add(&b.Entries[i]); err != nil {
			return err
		}
	}
	if err := k.tar.Close(); err != nil {
		return err
	}
	return k.out.Flush()
}

func (k *packer) writeHeader(e entry) error {
	h := &tar.Header{Typeflag: e.kind, Name: Top + "/" + e.Path, Linkname: e.link, Mode: e.mode, Size: e.size, ModTime: Time}
	if e.kind == tar.TypeDir && e.Path != "" {
		h.Name += "/"
	}
	return k.tar.WriteHeader(h)
}

func (k *packer) add(e *entry) error {
	if err := k.writeHeader(*e); err != nil {
		return err
	}
	if e.size == 0 {
		return nil
	}
	at, d := k.n, newDigest(e.size, k.places[e.sum].sums)
	err := k.copy(io.MultiWriter(k.tar, d), e)
	c, s := d.close(e)
	if err != nil {
		return err
	}
	if e.known() && (c != e.sum || d.known != (sums{}) && s != d.known) {
		return fmt.Errorf("package %s is damaged on disk: the checksum of %s is wrong", k.places[e.sum].Tree, e.Path)
	}
	e.sum, e.sums = c, s
	if !k.seen[c] {
		k.seen[c] = true
		k.contents = append(k.contents, contentAt{Content: c, offset: at, sums: s})
	}
	return nil
}

// copy writes the content of a file, from the upload or from the pool.
func (k *packer) copy(w io.Writer, e *entry) error {
	if !e.known() {
		return copyZip(w, e.file, k.buf)
	}
	at := k.places[e.sum]
	f := k.open[at.Tree]
	if f == nil {
		var done func()
		var err error
		if f, done, err = k.Pool.Open(at.Tree); err != nil {
			return err
		}
		k.open[at.Tree] = f
		k.done = append(k.done, done)
	}
	_, err := io.CopyBuffer(w, io.NewSectionReader(f, at.offset, e.size), k.buf)
	return err
}
