package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"

	berrors "go.etcd.io/bbolt/errors"
)

// The layout of the first two pages of a bbolt file, in bytes. Each has a header and a
// copy of the meta data. The valid copy with the larger transaction number counts.
const (
	pageHeader   = 16
	metaMagicAt  = pageHeader
	metaSizeAt   = pageHeader + 8  // size of a page
	metaPagesAt  = pageHeader + 40 // number of pages in use
	metaTxAt     = pageHeader + 48
	metaSumAt    = pageHeader + 56
	metaEnd      = pageHeader + 64
	metaMagic    = 0xED0CDAED
	largestPage  = 64 << 10
	smallestPage = 1 << 10
)

// checkSize returns an error if the file is shorter than its own meta data say. bbolt
// maps the whole file into memory, so it would crash when it reads a missing page.
func checkSize(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	if need := neededBytes(f); info.Size() < need {
		return fmt.Errorf("%w: it has %d bytes and needs %d", berrors.ErrInvalid, info.Size(), need)
	}
	return nil
}

// neededBytes returns the size that a file must have, or 0 if it has no valid meta data.
// bbolt reports that itself.
func neededBytes(f io.ReaderAt) int64 {
	var need int64
	var newest uint64
	for page := int64(0); page <= largestPage; page = max(2*page, smallestPage) {
		b := make([]byte, metaEnd)
		if _, err := f.ReadAt(b, page); err != nil {
			break
		}
		size, ok := pageSize(b)
		if !ok || page != 0 && page != size {
			continue
		}
		if tx := binary.NativeEndian.Uint64(b[metaTxAt:]); need == 0 || tx > newest {
			newest, need = tx, size*int64(binary.NativeEndian.Uint64(b[metaPagesAt:]))
		}
	}
	return need
}

// pageSize returns the page size of a valid copy of the meta data.
func pageSize(b []byte) (int64, bool) {
	sum := fnv.New64a()
	_, _ = sum.Write(b[pageHeader:metaSumAt]) // it never fails
	ok := binary.NativeEndian.Uint32(b[metaMagicAt:]) == metaMagic && binary.NativeEndian.Uint64(b[metaSumAt:]) == sum.Sum64()
	return int64(binary.NativeEndian.Uint32(b[metaSizeAt:])), ok
}
