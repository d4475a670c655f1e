package droplet

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

func dir(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

func file(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: 600}
}

// pack creates a tar. Files are filled with zeros, so that a truncated tar is easily
// mistaken for a complete one.
func pack(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func openDB(t testing.TB, path string) *store.DB {
	t.Helper()
	return testkit.Open(store.Open(path, store.Options{NoSync: true}))(t)
}

// member is one entry of a zip. A name that ends with / is a folder; an entry with a
// link is a symbolic link.
type member struct {
	name, text, link string
	mode             fs.FileMode
}

func zipOf(t testing.TB, ms ...member) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for i, m := range ms {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: time.Unix(int64(1e9+i), 0)}
		if m.mode == 0 {
			m.mode = 0o644
		}
		if m.link != "" {
			m.mode, m.text = 0o777|fs.ModeSymlink, m.link
		}
		h.SetMode(m.mode)
		if strings.HasSuffix(m.name, "/") {
			h.Method = zip.Store
		}
		f, err := w.CreateHeader(h)
		if err == nil && m.text != "" && h.Method != zip.Store { // a folder has no content
			_, err = io.WriteString(f, m.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func manyMembers(n int) (ms []member) {
	for i := range n {
		ms = append(ms, member{name: fmt.Sprintf("f%d", i), text: "x"})
	}
	return ms
}

func isPackageError(err error) bool {
	var bad *pool.Error
	return errors.As(err, &bad)
}

// nameOfTar returns the name that the tar of a package must have, or that of an image made
// of a package as it is: a checksum of all entries.
func nameOfTar(t testing.TB, raw []byte) string {
	t.Helper()
	sum := sha256.New()
	r := bytes.NewReader(raw)
	for tr := tar.NewReader(r); ; {
		at := len(raw) - r.Len()
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(sum.Sum(nil))
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == archive.StagingInfo {
			at += (tarBlock - at%tarBlock) % tarBlock // after the padding of the entry before
			last := sha256.Sum256(fmt.Appendf(nil, "package %x\n%s", sum.Sum(nil), raw[at:]))
			return hex.EncodeToString(last[:])
		}
		content := make([]byte, sha256.Size) // zeros for an entry without content
		if h.Size > 0 {
			s := sha256.Sum256(testkit.Must(io.ReadAll(tr))(t))
			content = s[:]
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, pool.Top+"/"), "/")
		if name == "" {
			continue // the folder itself
		}
		fmt.Fprintf(sum, "%c%s%s%s%s\x00%s\x00", h.Typeflag, number64(h.Mode), number64(h.Size), content, name, h.Linkname)
	}
}

const tarBlock = 512

func number64(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
