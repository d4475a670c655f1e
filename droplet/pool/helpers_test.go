package pool

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"
)

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

func isPackageError(err error) bool {
	var bad *Error
	return errors.As(err, &bad)
}
