package pool

import (
	"crypto/sha1" // clients send SHA-1 checksums
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// IndexEnd is the suffix of the name of an index.
const IndexEnd = ".index"

// indexMagic is the start of an index; its number is the version of the format. An index
// of the old version has no sums.
const indexMagic, oldIndexMagic = "dewidx2\n", "dewidx1\n"

// contentAt is a content and its offset in the tar.
type contentAt struct {
	Content
	offset int64
	sums   sums
}

// sums are further checksums of a content, computed when it was stored. The zero value
// means that they are not known.
type sums struct {
	sha256 [sha256.Size]byte
	crc    uint32 // to find damage in a fraction of the time
}

// index lists the contents in the tar of a tree with their offsets. On disk: magic,
// hash of the listing, (sha1, size, offset, sha256, crc) of every content, checksum of
// everything.
type index struct {
	list     [sha256.Size]byte
	contents []contentAt
}

const (
	oldContentBytes = sha1.Size + 8 + 8
	contentBytes    = oldContentBytes + sha256.Size + 4
)

func (x index) bytes() []byte {
	b := make([]byte, 0, len(indexMagic)+len(x.list)+len(x.contents)*contentBytes+crc32.Size)
	b = append(b, indexMagic...)
	b = append(b, x.list[:]...)
	for _, c := range x.contents {
		b = append(b, c.sha1[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(c.size))
		b = binary.BigEndian.AppendUint64(b, uint64(c.offset))
		b = append(b, c.sums.sha256[:]...)
		b = binary.BigEndian.AppendUint32(b, c.sums.crc)
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func parseIndex(raw []byte) (x index, err error) {
	body := len(raw) - len(indexMagic) - len(x.list) - crc32.Size
	if body < 0 {
		return x, errors.New("cannot read the index of the package: the file is not an index")
	}
	size, isOld := contentBytes, string(raw[:len(indexMagic)]) == oldIndexMagic
	if isOld {
		size = oldContentBytes
	}
	if body%size != 0 || !isOld && string(raw[:len(indexMagic)]) != indexMagic {
		return x, errors.New("cannot read the index of the package: the file is not an index")
	}
	b := raw[:len(raw)-crc32.Size]
	if crc32.ChecksumIEEE(b) != binary.BigEndian.Uint32(raw[len(b):]) {
		return x, errors.New("cannot read the index of the package: the file is damaged")
	}
	b = b[len(indexMagic):]
	b = b[copy(x.list[:], b):]
	x.contents = make([]contentAt, 0, body/size)
	for ; len(b) > 0; b = b[size:] {
		c := contentAt{Content: Content{sha1: [sha1.Size]byte(b)}}
		c.size = int64(binary.BigEndian.Uint64(b[sha1.Size:]))
		c.offset = int64(binary.BigEndian.Uint64(b[sha1.Size+8:]))
		if c.size <= 0 || c.offset < 0 {
			return index{}, errors.New("cannot read the index of the package: the file is damaged")
		}
		if !isOld {
			copy(c.sums.sha256[:], b[oldContentBytes:])
			c.sums.crc = binary.BigEndian.Uint32(b[oldContentBytes+sha256.Size:])
		}
		x.contents = append(x.contents, c)
	}
	return x, nil
}

// fill sets the tree as the place of every wanted content that has none yet, and
// returns the number of contents found.
func (x index) fill(want map[Content]Place, tree string) (found int) {
	for _, c := range x.contents {
		if at, ok := want[c.Content]; ok && at.Tree == "" {
			want[c.Content] = Place{Tree: tree, offset: c.offset, sums: c.sums}
			found++
		}
	}
	return found
}
