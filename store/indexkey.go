package store

// An index entry is value, end, key. A zero byte inside the value is escaped, so
// that no value can be taken for the beginning of another one, and entries sort
// by value first and by key second:
//
//	"ab\x00c", "k1"  ──▶  a b 00 ff c 00 01 k 1
const (
	indexEscape = 0xff
	indexEnd    = 0x01
)

// indexPrefix is what all entries of value start with, and no others.
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

func indexKey(value, key string) []byte { return append(indexPrefix(value), key...) }
