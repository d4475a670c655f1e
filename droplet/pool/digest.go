package pool

import (
	"crypto/sha1" // clients send SHA-1 checksums
	"crypto/sha256"
	"hash"
	"hash/crc32"

	"github.com/dewrun/dew/droplet/archive"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// digest computes the checksums of a content. If they are known, it computes only the CRC.
type digest struct {
	known sums
	crc   hash.Hash32
	sha1  hash.Hash
	small hash.Hash         // SHA-256
	large *archive.Checksum // the same, in another goroutine
}

// aside is the size of a content from which on a goroutine of its own is worth the cost.
const aside = 1 << 20

func newDigest(size int64, known sums) *digest {
	d := &digest{known: known, crc: crc32.New(castagnoli)}
	switch {
	case known != sums{}:
	case size >= aside:
		d.sha1, d.large = sha1.New(), archive.NewChecksum()
	default:
		d.sha1, d.small = sha1.New(), sha256.New()
	}
	return d
}

func (d *digest) Write(p []byte) (int, error) {
	d.crc.Write(p)
	if d.sha1 != nil {
		d.sha1.Write(p)
	}
	if d.small != nil {
		d.small.Write(p)
	}
	if d.large != nil {
		return d.large.Write(p)
	}
	return len(p), nil
}

// close returns the content of e and its sums. With known sums, the content is the one that
// e has already.
func (d *digest) close(e *entry) (Content, sums) {
	s := sums{sha256: d.known.sha256, crc: d.crc.Sum32()}
	if d.sha1 == nil {
		return e.sum, s
	}
	if d.large != nil {
		s.sha256 = d.large.Close()
	} else {
		d.small.Sum(s.sha256[:0])
	}
	c := Content{size: e.size}
	d.sha1.Sum(c.sha1[:0])
	return c, s
}
