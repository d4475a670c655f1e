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
func indexPrefix(value string) []byte { return append(escaped(value), 0, indexEnd) }

// escaped returns the prefix that the entries of all values have that start with text.
func escaped(text string) []byte {
	out := make([]byte, 0, len(text)+2)
	for i := range len(text) {
		out = append(out, text[i])
		if text[i] == 0 {
			out = append(out, indexEscape)
		}
	}
	return out
}

// keyOfIndex returns the key of an entry.
func keyOfIndex(entry []byte) []byte {
	_, key, _ := bytes.Cut(entry, []byte{0, indexEnd})
	return key
}

func indexKey(value, key string) []byte { return append(indexPrefix(value), key...) }
