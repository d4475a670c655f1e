package inspect

import (
	"archive/tar"
	"bytes"
	"testing"
)

func packed(t *testing.T, names ...string) *bytes.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

func TestHas(t *testing.T) {
	t.Parallel()
	bits := packed(t, "app/main.go", "app/sub/go.mod", "app/go.sum")
	for file, want := range map[string]bool{"main.go": true, "go.mod": false, "sub/go.mod": true, "go.sum": true} {
		if got, err := Has(bits, "app", file); err != nil || got != want {
			t.Errorf("Has(%s) = %v, %v, want %v", file, got, err, want)
		}
	}
	if _, err := Has(bytes.NewReader([]byte("no tar, but longer than one block of a tar"+string(make([]byte, 600)))), "app", "x"); err == nil {
		t.Error("read a file that is no tar")
	}
}

// The hint is about the files of the app, not about its folder.
func TestHint(t *testing.T) {
	t.Parallel()
	const want = "Found main.go, but no go.mod. Run: go mod init app"
	if got, err := Hint(packed(t, "app/lib.go", "app/main.go"), "app"); err != nil || got != want {
		t.Errorf("Hint = %q, %v, want %q", got, err, want)
	}
}
