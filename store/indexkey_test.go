package store

import (
	"bytes"
	"cmp"
	"errors"
	"testing"
)

// splitIndexKey splits an entry into value and key.
func splitIndexKey(entry []byte) (value, key string, err error) {
	var v []byte
	for {
		i := bytes.IndexByte(entry, 0)
		if i < 0 || i+1 == len(entry) {
			return "", "", errors.New("index entry has no end")
		}
		v = append(v, entry[:i]...)
		mark := entry[i+1]
		entry = entry[i+2:]
		switch mark {
		case indexEnd:
			return string(v), string(entry), nil
		case indexEscape:
			v = append(v, 0)
		default:
			return "", "", errors.New("index entry has an unknown escape")
		}
	}
}

// An entry can be split into its parts, and entries of different values are never mixed
// up. Entries sort like their values and then like their keys.
func FuzzIndexKey(f *testing.F) {
	f.Add("", "", "", "k")
	f.Add("web", "p1", "web\x00", "p1")
	f.Add("a\x00", "b", "a", "\x00b")
	f.Add("a", "\x01", "a\x00\x01", "")
	f.Add("a\x00\xff", "k", "a\x00", "\xffk")
	f.Fuzz(func(t *testing.T, v1, k1, v2, k2 string) {
		e1, e2 := indexKey(v1, k1), indexKey(v2, k2)
		if v, k, err := splitIndexKey(e1); err != nil || v != v1 || k != k1 {
			t.Errorf("entry of %q, %q gives back %q, %q, %v", v1, k1, v, k, err)
		}
		if got, want := bytes.HasPrefix(e1, indexPrefix(v2)), v1 == v2; got != want {
			t.Errorf("entry of %q is under %q: %t, want %t", v1, v2, got, want)
		}
		if got, want := bytes.Compare(e1, e2), cmp.Or(cmp.Compare(v1, v2), cmp.Compare(k1, k2)); got != want {
			t.Errorf("entries of (%q, %q) and (%q, %q) compare as %d, want %d", v1, k1, v2, k2, got, want)
		}
	})
}

// Invalid entries are detected without a panic.
func FuzzSplitIndexKey(f *testing.F) {
	f.Add([]byte("a\x00\x01b"))
	f.Add([]byte("a\x00"))
	f.Add([]byte("a\x00\x02"))
	f.Fuzz(func(t *testing.T, entry []byte) {
		v, k, err := splitIndexKey(entry)
		if err == nil && !bytes.Equal(indexKey(v, k), entry) {
			t.Errorf("%q gives %q and %q, which make %q", entry, v, k, indexKey(v, k))
		}
	})
}
