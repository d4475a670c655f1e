package store

import "bytes"

// An index entry is value, end, key. A zero byte inside the value is escaped, so that
// no value can be mistaken for the start of another one. Entries sort by value first
// and by key second:
//
//	"ab\x00c", "k1"  ──▶  a b 00 ff c 00 01 k 1
const (
	indexEscape = 0xff
	indexEnd    = 0x01
)

// indexPrefix returns the prefix that all entries of value have, and no others.
func indexPrefix(value string) []byte {
	out := make([]byte, 0, len(value)+2)
	for i := range len(value) {
		out = append(out, value[i])
		if value[i] == 0 {
			out = append(out, indexEscape)
		}
	}
	return append(out, 0, indexEnd)
}

// keyOfIndex returns the key of an entry.
func keyOfIndex(entry []byte) []byte {
	_, key, _ := bytes.Cut(entry, []byte{0, indexEnd})
	return key
}

func indexKey(value, key string) []byte { return append(indexPrefix(value), key...) }
