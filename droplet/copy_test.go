package droplet

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

// unzip returns the names in a zip, each with mode and content.
func unzip(t *testing.T, r io.ReadCloser) map[string]string {
	t.Helper()
	raw, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range z.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		got[f.Name] = f.Mode().String() + " " + string(text)
	}
	return got
}

// A downloaded package has the uploaded files. A copy of it has the same files, even
// after the original is deleted.
func TestCopyPackage(t *testing.T) {
	t.Parallel()
	p := newPackages(t)
	k := mustUpload(t, p, nil, zipOf(t, member{name: "run", text: "#!/bin/sh\n", mode: 0o755}, member{name: "lib/"},
		member{name: "lib/a.txt", text: "hello"}, member{name: "link", link: "lib/a.txt"}))
	want := map[string]string{
		"run": "-rwxr-xr-x #!/bin/sh\n", "lib/": "drwxr-xr-x ", "lib/a.txt": "-rw-r--r-- hello", "link": "Lrwxrwxrwx lib/a.txt",
	}
	copied, err := p.Copy(k.GUID, "other")
	if err != nil || copied.App != "other" || copied.State != PackageReady || copied.SHA256 != k.SHA256 || copied.GUID == k.GUID {
		t.Fatalf("copy = %+v %v, want one of app other with the same files", copied, err)
	}
	if err := p.Remove(k.GUID); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Zip(t.Context(), k.GUID); !errors.Is(err, ErrNotFound) {
		t.Errorf("zip of a package that is gone: %v, want ErrNotFound", err)
	}
	r, err := p.Zip(t.Context(), copied.GUID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(unzip(t, r), want); diff != "" {
		t.Errorf("zip differs (-got +want):\n%s", diff)
	}
	r, err = p.Zip(t.Context(), copied.GUID)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil { // the client closes the connection
		t.Error(err)
	}
}

func TestCopyNothing(t *testing.T) {
	t.Parallel()
	p := newPackages(t)
	k, err := p.Create("shop")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Copy(k.GUID, "other"); !errors.Is(err, ErrNotReady) {
		t.Errorf("copy of a package without files: %v, want ErrNotReady", err)
	}
	if _, err := p.Zip(t.Context(), k.GUID); !errors.Is(err, ErrNotReady) {
		t.Errorf("zip of a package without files: %v, want ErrNotReady", err)
	}
	if _, err := p.Copy("nonesuch", "other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("copy of nothing: %v, want ErrNotFound", err)
	}
	image, err := p.CreateImage("shop", stack.ImageSource{Ref: "example.com/a:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Zip(t.Context(), image.GUID); !errors.Is(err, ErrNoFiles) {
		t.Errorf("zip of an image: %v, want ErrNoFiles", err)
	}
	if c, err := p.Copy(image.GUID, "other"); err != nil || c.Image.Ref != "example.com/a:1" {
		t.Errorf("copy of an image = %+v %v, want the same image", c, err)
	}
}

// A copied droplet runs the same files with the bindings of its own app. It keeps the
// image when the original is deleted.
func TestCopyDroplet(t *testing.T) {
	t.Parallel()
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		defer y.run()()
		k := y.push("shop", member{name: "Procfile", text: "web: ./serve\n"})
		from := y.droplet(y.build(BuildRequest{Package: k.GUID}))
		d, err := y.builds.Copy(from.GUID, "other")
		if err != nil {
			t.Fatal(err)
		}
		if d.App != "other" || d.Image != from.Image || d.Commands["web"] != "./serve" || d.Package != "" {
			t.Errorf("copy = %+v, want the files and commands of %+v", d, from)
		}
		no := errors.New("no")
		if err := y.builds.Remove(from.GUID, func(*store.Tx) error { return no }); !errors.Is(err, no) {
			t.Errorf("remove = %v, want what allow says", err)
		}
		allow := func(*store.Tx) error { return nil }
		if err := y.builds.Remove(from.GUID, allow); err != nil {
			t.Fatal(err)
		}
		if _, err := y.builds.Copy(from.GUID, "third"); !errors.Is(err, ErrNotFound) {
			t.Errorf("copy of a droplet that is gone: %v, want ErrNotFound", err)
		}
		if len(y.image(d.Image)) == 0 {
			t.Error("the image went with the first droplet")
		}
		if err := y.builds.Remove(d.GUID, allow); err != nil {
			t.Fatal(err)
		}
		if _, err := y.droplets.OpenImage(d.Image); !errors.Is(err, ErrNoImage) {
			t.Errorf("open = %v, want ErrNoImage: no droplet names it", err)
		}
	})
}
