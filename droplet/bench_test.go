//go:build bench

package droplet

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// benchFiles is the number of small files in the app of the benchmarks.
const benchFiles = 10_000

// benchApp returns an app of many small files, as a zip and as resources. Every
// generation has different contents.
func benchApp(b *testing.B, generation int) (zipped []byte, rs []pool.Resource) {
	b.Helper()
	var ms []member
	for i := range benchFiles {
		name := fmt.Sprintf("node_modules/m%03d/lib/f%d.js", i/50, i)
		text := fmt.Sprintf("// generation %d file %d\n%s", generation, i, bytes.Repeat([]byte("module.exports = 1;\n"), i%60))
		ms = append(ms, member{name: name, text: text})
		rs = append(rs, resource(name, "644", text))
	}
	return zipOf(b, ms...), rs
}

func benchBuilds(b *testing.B) (*Packages, *Builds) {
	b.Helper()
	dir := b.TempDir()
	db := testkit.Open(store.Open(filepath.Join(dir, "dew.db"), store.Options{}))(b)
	p, err := NewPackages(db, PackageOptions{Dir: filepath.Join(dir, "packages"), MinFree: -1})
	if err != nil {
		b.Fatal(err)
	}
	s, err := NewDroplets(db, filepath.Join(dir, "images"))
	if err != nil {
		b.Fatal(err)
	}
	return p, NewBuilds(db, p, s, BuildOptions{
		Stacks: func(string) (stack.Stack, error) { return stack.Stack{Name: "host", ID: "id"}, nil },
		InUse:  func(*store.Tx) map[string]bool { return map[string]bool{} },
	})
}

// BenchmarkUpload measures how long new bits take to become a package. For comparison,
// it also reads the same zip with the library into one synced file.
func BenchmarkUpload(b *testing.B) {
	b.Run("floor", func(b *testing.B) {
		zipped, _ := benchApp(b, 0)
		for b.Loop() {
			unzipFloor(b, zipped)
		}
	})
	b.Run("upload", func(b *testing.B) {
		p, _ := benchBuilds(b)
		n := 0
		for b.Loop() {
			b.StopTimer()
			n++
			zipped, _ := benchApp(b, n)
			b.StartTimer()
			mustUpload(b, p, nil, zipped)
		}
	})
}

func unzipFloor(b *testing.B, zipped []byte) {
	b.Helper()
	f, err := os.CreateTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(zipped), int64(len(zipped)))
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range z.File {
		r, err := m.Open()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(f, r); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkUnchanged measures the whole cost of pushing unchanged bits: match, package,
// empty upload, build.
func BenchmarkUnchanged(b *testing.B) {
	p, builds := benchBuilds(b)
	zipped, rs := benchApp(b, 0)
	stageOnce(b, builds, mustUpload(b, p, nil, zipped))
	for b.Loop() {
		matched, err := p.Match(pool.Claim{Resources: rs})
		if err != nil || len(matched) != benchFiles {
			b.Fatal(len(matched), err)
		}
		k := mustUpload(b, p, matched, nil)
		w, err := builds.Create(b.Context(), BuildRequest{Package: k.GUID})
		if err != nil || w.State != BuildStaged {
			b.Fatal(w, err)
		}
	}
}

// BenchmarkOneFileChanged measures match, upload of one file, and staging.
func BenchmarkOneFileChanged(b *testing.B) {
	p, builds := benchBuilds(b)
	zipped, rs := benchApp(b, 0)
	stageOnce(b, builds, mustUpload(b, p, nil, zipped))
	n := 0
	for b.Loop() {
		n++
		matched, err := p.Match(pool.Claim{Resources: rs})
		if err != nil || len(matched) != benchFiles {
			b.Fatal(len(matched), err)
		}
		changed := zipOf(b, member{name: rs[0].Path, text: fmt.Sprint("changed ", n)})
		stageOnce(b, builds, mustUpload(b, p, matched[1:], changed))
	}
}

// stageOnce builds a package as Run does.
func stageOnce(b *testing.B, builds *Builds, k Package) {
	b.Helper()
	w, err := builds.Create(context.Background(), BuildRequest{Package: k.GUID})
	if err != nil {
		b.Fatal(err)
	}
	builds.run(b.Context(), w)
	if w, err = builds.Get(w.GUID); err != nil || w.State != BuildStaged {
		b.Fatal(w, err)
	}
}
