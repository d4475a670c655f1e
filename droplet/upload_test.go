package droplet

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/dewrun/dew/droplet/archive"
)

// uploadedDroplet returns a droplet as a client uploads it.
func uploadedDroplet(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range entries {
		text := strings.Repeat("x", int(h.Size))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Any upload becomes a tar without setuid bits and devices, within the limits, or is
// refused with the reason. It is never a fault of the machine.
func FuzzUnpackDroplet(f *testing.F) {
	good := uploadedDroplet(f, tar.Header{Name: "./app/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "./app/run", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 5000},
		tar.Header{Name: "app/l", Typeflag: tar.TypeSymlink, Linkname: "run"}, tar.Header{Name: "app/h", Typeflag: tar.TypeLink, Linkname: "./app/run"},
		tar.Header{Name: archive.StagingInfo, Typeflag: tar.TypeReg, Mode: 0o644, Size: 3})
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add(uploadedDroplet(f, tar.Header{Name: "app/d", Typeflag: tar.TypeChar}))
	f.Add([]byte("no archive"))
	f.Fuzz(func(t *testing.T, tgz []byte) {
		const most, files = 1 << 20, 100
		u := &unpacker{mb: 1, left: most, files: files}
		var out bytes.Buffer
		if err := u.copy(&out, bytes.NewReader(tgz)); err != nil {
			var refused *archive.Error
			if !errors.As(err, &refused) {
				t.Errorf("error = %v, want a refusal", err)
			}
			return
		}
		n, size := 0, int64(0)
		for r := tar.NewReader(&out); ; n++ {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			size += h.Size
			if h.Mode&^0o777 != 0 || h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock || h.Typeflag == tar.TypeFifo {
				t.Errorf("entry %+v", h)
			}
		}
		if n > files || size > most {
			t.Errorf("%d files, %d bytes", n, size)
		}
	})
}

// A droplet that ends in the middle of a file is the fault of the client.
func TestIncompleteDroplet(t *testing.T) {
	good := uploadedDroplet(t, tar.Header{Name: "app/run", Typeflag: tar.TypeReg, Mode: 0o755, Size: 1 << 16})
	u := &unpacker{mb: 1, left: 1 << 20, files: 10}
	err := u.copy(io.Discard, bytes.NewReader(good[:len(good)-20]))
	if bad := (*archive.Error)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), "is incomplete") {
		t.Errorf("error = %v, want that the file is incomplete", err)
	}
}
