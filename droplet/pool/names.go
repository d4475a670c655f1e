package pool

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// listing returns the hash of everything that identifies a tree. Paths and targets have
// no zero byte, so two different trees have different listings.
func listing(entries []entry) (sum [sha256.Size]byte) {
	return hashEntries(entries, func(e *entry) []byte { return e.sum.sha1[:] })
}

// nameOf returns the name of the tree with the entries. It does not depend on SHA-1.
func nameOf(entries []entry) string {
	sum := hashEntries(entries, func(e *entry) []byte { return e.sums.sha256[:] })
	return hex.EncodeToString(sum[:])
}

// hashEntries returns a hash of everything that identifies a tree, with the given checksum
// of the contents.
func hashEntries(entries []entry, content func(e *entry) []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	var b []byte
	for i := range entries {
		e := &entries[i]
		b = append(b[:0], e.kind)
		b = binary.BigEndian.AppendUint64(b, uint64(e.mode))
		b = binary.BigEndian.AppendUint64(b, uint64(e.size))
		b = append(b, content(e)...)
		b = append(append(b, e.Path...), 0)
		b = append(append(b, e.link...), 0)
		h.Write(b)
	}
	h.Sum(sum[:0])
	return sum
}
