package pool

import (
	"archive/tar"
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A zip that is cut or changed anywhere is refused, or gives exactly the same tree.
func TestUploadRefusesDamagedZips(t *testing.T) {
	good := zipOf(t, member{name: "a", text: strings.Repeat("hello ", 20)}, member{name: "d/l", link: "../a"}, member{name: "d/"})
	for n := range len(good) {
		if _, err := readAll(t, good[:n]); !isPackageError(err) {
			t.Fatalf("the first %d of %d bytes: %v, want a *PackageError", n, len(good), err)
		}
	}
	for i := range good {
		broken := bytes.Clone(good)
		broken[i] ^= 0x41
		if _, err := readAll(t, broken); err != nil && !isPackageError(err) {
			t.Fatalf("byte %d changed: %v, want a *PackageError", i, err)
		}
	}
}

// readAll reads an upload without storing it.
func readAll(t testing.TB, zipped []byte) (*Upload, error) {
	t.Helper()
	o := Limits{MaxBytes: 1 << 20, MaxFiles: 50, MaxFileBytes: 1 << 20}
	b, err := ReadUpload(Claim{}, bytes.NewReader(zipped), int64(len(zipped)), o)
	if err != nil {
		return nil, err
	}
	for _, e := range b.Entries {
		if e.known() {
			continue
		}
		if err := copyZip(io.Discard, e.file, make([]byte, 4096)); err != nil {
			return nil, b.src.uploadError(err)
		}
	}
	return b, nil
}

// A directory with millions of entries is refused early, and not read into memory.
func TestUploadRefusesAHugeDirectoryEarly(t *testing.T) {
	z := zipOf(t, member{name: "a", text: "x"})
	start := bytes.LastIndex(z, header)
	end := bytes.LastIndex(z, []byte("PK\x05\x06"))
	entry := z[start:end]
	const n = 100_000
	huge := slices.Concat(z[:start], bytes.Repeat(entry, n), z[end:])
	tail := huge[len(huge)-len(z)+end:]
	count := uint16(n % (1 << 16))
	binary.LittleEndian.PutUint16(tail[8:], count)
	binary.LittleEndian.PutUint16(tail[10:], count)
	binary.LittleEndian.PutUint32(tail[12:], uint32(n*len(entry)))
	src := &source{r: bytes.NewReader(huge), size: int64(len(huge)), most: 50}
	r := &bitsReader{o: Limits{MaxFiles: 50}}
	if err := r.addZip(src); !isPackageError(err) || !strings.Contains(err.Error(), "more than 50 entries") {
		t.Errorf("error = %v, want too many entries", err)
	}
	if src.next > int64(len(huge))/2 {
		t.Errorf("%d of %d bytes were read", src.next, len(huge))
	}
}

// A header that two reads split is counted exactly once.
func TestSourceCountsHeadersAcrossReads(t *testing.T) {
	data := []byte("xxPK\x01\x02yyPK\x01\x02PK\x01\x02zPK\x01")
	for step := 1; step <= len(data); step++ {
		s := &source{r: bytes.NewReader(data), size: int64(len(data)), most: 100}
		for off := 0; off < len(data); off += step {
			if _, err := s.ReadAt(make([]byte, step), int64(off)); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		}
		if s.headers != 3 {
			t.Errorf("reads of %d bytes count %d headers, want 3", step, s.headers)
		}
	}
}

// Every accepted upload unpacks inside its folder, and none of its links leads out. One
// line is one entry: type, name, content or target.
func FuzzUploadEntries(f *testing.F) {
	f.Add("5 a/\n0 a/b text\n2 a/l b")
	f.Add("2 a/b/back ..\n2 a/l b/back/../..")
	f.Add("2 l .\n0 l/x")
	f.Add("2 a b\n2 b a\n2 c a/../..")
	f.Add("0 ../x\n0 /x\n0 a\\b")
	f.Add("2 x/y ../z\n2 z x\n2 w z/y/..")
	f.Fuzz(func(t *testing.T, lines string) {
		var ms []member
		for line := range strings.SplitSeq(lines, "\n") {
			kind, rest, _ := strings.Cut(line, " ")
			name, text, _ := strings.Cut(rest, " ")
			switch kind {
			case "5":
				ms = append(ms, member{name: strings.TrimRight(name, "/") + "/", mode: fs.ModeDir | 0o755})
			case "2":
				ms = append(ms, member{name: name, link: text})
			default:
				ms = append(ms, member{name: name, text: text})
			}
		}
		if len(lines) > 1<<15 {
			t.Skip("names are longer than a zip can have")
		}
		unpackUpload(t, zipOf(t, ms...))
	})
}

// The same holds for bytes that are hardly an archive.
func FuzzUploadZip(f *testing.F) {
	f.Add(zipOf(f, member{name: "a", text: "hello hello hello"}, member{name: "d/"}, member{name: "d/l", link: "../a"}))
	f.Add(zipOf(f, member{name: "../a", text: "x"}))
	f.Add([]byte("PK\x05\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(unpackUpload)
}

func unpackUpload(t *testing.T, zipped []byte) {
	b, err := readAll(t, zipped)
	if err != nil {
		if !isPackageError(err) {
			t.Fatalf("error = %v, want a *PackageError", err)
		}
		return
	}
	root := filepath.Join(t.TempDir(), "root")
	var links []string
	for _, e := range append([]entry{{kind: tar.TypeDir}}, b.Entries...) {
		p := filepath.Join(root, e.Path)
		switch e.kind {
		case tar.TypeDir:
			err = os.Mkdir(p, 0o700)
		case tar.TypeSymlink:
			err = os.Symlink(e.link, p)
			links = append(links, p)
		default:
			err = os.WriteFile(p, nil, 0o600)
		}
		if err != nil {
			t.Fatalf("cannot unpack %q: %v", e.Path, err)
		}
	}
	for _, l := range links {
		real, err := filepath.EvalSymlinks(l)
		if err == nil && real != root && !strings.HasPrefix(real, root+"/") {
			t.Fatalf("%q leads to %q", l, real)
		}
	}
}

// Links that pass the check stay in the tree on a real file system, even in chains.
func TestLinksStayInTheTree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{"..", "..", ".", "a", "b", "l0", "l1", "l2"}
	places := []string{"l0", "a/l0", "a/l1", "a/b/l1", "a/b/l2", "l2"}
	refused := 0
	dir := t.TempDir()
	const trees = 100
	for n := range trees {
		root := filepath.Join(dir, fmt.Sprint(n), "root")
		if err := os.MkdirAll(filepath.Join(root, "a/b"), 0o700); err != nil {
			t.Fatal(err)
		}
		links := map[string]string{}
		for _, at := range places {
			var target []string
			for range 1 + random.IntN(4) {
				target = append(target, parts[random.IntN(len(parts))])
			}
			links[at] = strings.Join(target, "/")
			if err := os.Symlink(links[at], filepath.Join(root, at)); err != nil {
				t.Fatal(err)
			}
		}
		for at := range links {
			real, err := filepath.EvalSymlinks(filepath.Join(root, at))
			out := err == nil && real != root && !strings.HasPrefix(real, root+"/")
			if leavesTree(links, at) {
				refused++
			} else if out {
				t.Fatalf("tree %d: %s leads to %s by %v", n, at, real, links)
			}
		}
	}
	if refused == 0 || refused == trees*len(places) {
		t.Errorf("%d links were refused: this tests nothing", refused)
	}
}

// An index that is written and read again is the same; anything else is refused.
func FuzzIndex(f *testing.F) {
	x := index{list: sha256.Sum256([]byte("list")), contents: []contentAt{
		{Content{sha1.Sum([]byte("a")), 1}, 1024, sums{sha256.Sum256([]byte("a")), 7}}, {Content{sha1.Sum([]byte("b")), 1 << 40}, 1 << 50, sums{}},
	}}
	f.Add(x.bytes())
	f.Add(oldIndex(x))
	f.Add(index{}.bytes())
	f.Add(x.bytes()[:50])
	f.Fuzz(func(t *testing.T, raw []byte) {
		x, err := parseIndex(raw)
		if err != nil {
			return
		}
		again := x.bytes()
		if bytes.HasPrefix(raw, []byte(oldIndexMagic)) {
			again = oldIndex(x)
		}
		if !bytes.Equal(again, raw) {
			t.Errorf("%x is read as %x", raw, again)
		}
	})
}

// oldIndex returns an index in the format of earlier versions, without sums.
func oldIndex(x index) []byte {
	b := append([]byte(oldIndexMagic), x.list[:]...)
	for _, c := range x.contents {
		b = append(b, c.sha1[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(c.size))
		b = binary.BigEndian.AppendUint64(b, uint64(c.offset))
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}
