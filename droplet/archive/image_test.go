package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func symlink(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}

func hardlink(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
}

func TestCheckImageAccepts(t *testing.T) {
	for name, headers := range map[string][]tar.Header{
		"nothing":                         {},
		"layout":                          {dir("app/"), file("app/a"), dir("deps/"), dir("deps/0/"), dir("profile.d"), file("profile.d/x.sh"), dir("logs"), dir("tmp"), file("staging_info.yml")},
		"folders that come late or twice": {file("app/d/f"), dir("app/d"), dir("app/d/")},
		"links":                           {file("app/a"), hardlink("app/b", "app/a"), hardlink("app/c", "app/b"), symlink("app/s", "../deps/0"), symlink("app/abs", "/etc/passwd"), symlink("app/up", "../../../..")},
		"odd names":                       {file("app/..."), file("app/a b"), file("app/ü\n"), file("app/.hidden"), file("app/-x")},
		"long names":                      {file("app/" + strings.Repeat("n", 200) + "/" + strings.Repeat("m", 200))},
		"global header":                   {{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "c"}}, file("app/a")},
	} {
		t.Run(name, func(t *testing.T) {
			image := pack(t, headers...)
			if err := CheckImage(bytes.NewReader(image)); err != nil {
				t.Error(err)
			}
			if err := CheckImage(iotest.DataErrReader(bytes.NewReader(image))); err != nil {
				t.Errorf("when the end comes with the last bytes: %v", err)
			}
		})
	}
}

func TestCheckImageRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		headers []tar.Header
		entry   string
		reason  string
	}{
		"absolute":            {[]tar.Header{file("/app/a")}, "/app/a", "relative"},
		"up":                  {[]tar.Header{file("app/../../a")}, "app/../../a", ".."},
		"up at the end":       {[]tar.Header{dir("app/..")}, "app/..", ".."},
		"dot":                 {[]tar.Header{file("./app/a")}, "./app/a", `"app/a"`},
		"the root":            {[]tar.Header{dir("./")}, "./", "app, deps"},
		"double slash":        {[]tar.Header{file("app//a")}, "app//a", `"app/a"`},
		"whiteout":            {[]tar.Header{file("app/a"), file("app/.wh.a")}, "app/.wh.a", ".wh."},
		"elsewhere":           {[]tar.Header{file("etc/passwd")}, "etc/passwd", "app, deps"},
		"almost":              {[]tar.Header{file("application/a")}, "application/a", "app, deps"},
		"info as a folder":    {[]tar.Header{dir("staging_info.yml/")}, "staging_info.yml/", "regular file"},
		"below info":          {[]tar.Header{file("staging_info.yml/a")}, "staging_info.yml/a", "app, deps"},
		"app as a file":       {[]tar.Header{file("app")}, "app", "folder"},
		"app as a link":       {[]tar.Header{symlink("app", "/etc")}, "app", "folder"},
		"device":              {[]tar.Header{{Typeflag: tar.TypeChar, Name: "app/null", Devmajor: 1, Devminor: 3}}, "app/null", "neither"},
		"block device":        {[]tar.Header{{Typeflag: tar.TypeBlock, Name: "app/sda"}}, "app/sda", "neither"},
		"fifo":                {[]tar.Header{{Typeflag: tar.TypeFifo, Name: "app/fifo"}}, "app/fifo", "neither"},
		"through a link":      {[]tar.Header{symlink("app/l", "/etc"), file("app/l/passwd")}, "app/l/passwd", `"app/l"`},
		"deep through a link": {[]tar.Header{symlink("app/l", "/etc"), file("app/l/x/y/z")}, "app/l/x/y/z", `"app/l"`},
		"below a file":        {[]tar.Header{file("app/f"), file("app/f/g")}, "app/f/g", "not a folder"},
		"twice":               {[]tar.Header{file("app/a"), file("app/a")}, "app/a", "twice"},
		"link over a file":    {[]tar.Header{file("app/a"), symlink("app/a", "b")}, "app/a", "twice"},
		"link over a folder":  {[]tar.Header{file("app/d/f"), symlink("app/d", "/etc")}, "app/d", "twice"},
		"folder over a link":  {[]tar.Header{symlink("app/d", "/etc"), dir("app/d/")}, "app/d/", "twice"},
		"hard link outside":   {[]tar.Header{hardlink("app/h", "/etc/shadow")}, "app/h", "hard link"},
		"hard link up":        {[]tar.Header{hardlink("app/h", "../../etc/shadow")}, "app/h", "hard link"},
		"hard link forward":   {[]tar.Header{hardlink("app/h", "app/a"), file("app/a")}, "app/h", "hard link"},
		"hard link to a link": {[]tar.Header{symlink("app/s", "/etc/shadow"), hardlink("app/h", "app/s")}, "app/h", "hard link"},
		"symlink to nothing":  {[]tar.Header{symlink("app/s", "")}, "app/s", "without a valid target"},
		"after a good one":    {[]tar.Header{dir("app"), file("app/a"), file("bin/sh")}, "bin/sh", "app, deps"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckImage(bytes.NewReader(pack(t, tt.headers...)))
			var bad *Error
			if !errors.As(err, &bad) {
				t.Fatalf("error = %v, want an *ImageError", err)
			}
			if bad.Entry != tt.entry || !strings.Contains(bad.Reason, tt.reason) {
				t.Errorf("error = %v, want one about %q with %q", err, tt.entry, tt.reason)
			}
			if !strings.Contains(err.Error(), tt.entry) {
				t.Errorf("text %q does not name the entry", err)
			}
		})
	}
}

// A sparse file of the old GNU format is refused. The library cannot write one.
func TestCheckImageRefusesSparse(t *testing.T) {
	image := pack(t, tar.Header{Typeflag: tar.TypeReg, Name: "app/sparse", Mode: 0o644, Format: tar.FormatGNU})
	image[156] = tar.TypeGNUSparse
	copy(image[483:], "00000000000\x00") // the size of the expanded file
	checksum(image[:512])
	err := CheckImage(bytes.NewReader(image))
	var bad *Error
	if !errors.As(err, &bad) || bad.Entry != "app/sparse" || !strings.Contains(bad.Reason, "sparse") {
		t.Errorf("error = %v, want one about the sparse file", err)
	}
}

// checksum writes the checksum into a header block.
func checksum(block []byte) {
	copy(block[148:156], "        ")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	const digits = "01234567"
	for i := 153; i >= 148; i-- {
		block[i] = digits[sum%8]
		sum /= 8
	}
	copy(block[154:156], "\x00 ")
}

// An image that is cut anywhere is refused, even between two entries or inside the end
// marker. So is an image with bytes after its end.
func TestCheckImageRefusesACutImage(t *testing.T) {
	image := pack(t, dir("app/"), file("app/a"), file("app/b"))
	for n := range len(image) {
		err := CheckImage(bytes.NewReader(image[:n]))
		var bad *Error
		if !errors.As(err, &bad) || bad.Entry != "" {
			t.Fatalf("the first %d of %d bytes: %v, want an *ImageError of the whole", n, len(image), err)
		}
	}
	for _, tail := range []string{"x", strings.Repeat("\x00", 5000) + "x", string(image)} {
		err := CheckImage(io.MultiReader(bytes.NewReader(image), strings.NewReader(tail)))
		if err == nil || !strings.Contains(err.Error(), "after its end") {
			t.Errorf("with %d bytes after its end: %v", len(tail), err)
		}
	}
	err := CheckImage(strings.NewReader(strings.Repeat("no tar at all ", 200)))
	if err == nil || !strings.Contains(err.Error(), "not a tar") {
		t.Errorf("text: %v", err)
	}
}

// Every accepted image unpacks without leaving its folder, even with an unpacker that
// trusts every name. One line is one entry: type, name, link target.
func FuzzImageEntries(f *testing.F) {
	f.Add("5 app/\n0 app/a\n1 app/b app/a\n2 app/s a")
	f.Add("2 app/l /tmp\n0 app/l/x")
	f.Add("0 app/d/f\n2 app/d /tmp\n0 app/d/g")
	f.Add("0 ../x\n6 app/fifo\n3 app/null")
	f.Add("2 app/x/y ..\n5 app/x/y/\n1 app/z app/x/y")
	f.Fuzz(func(t *testing.T, lines string) {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for line := range strings.SplitSeq(lines, "\n") {
			kind, rest, _ := strings.Cut(line, " ")
			name, link, _ := strings.Cut(rest, " ")
			if kind == "" {
				continue
			}
			if err := w.WriteHeader(&tar.Header{Typeflag: kind[0], Name: name, Linkname: link}); err != nil {
				t.Skip(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Skip(err)
		}
		unpackAccepted(t, buf.Bytes())
	})
}

// The same holds for bytes that are hardly an archive.
func FuzzCheckImage(f *testing.F) {
	f.Add(pack(f, dir("app/"), file("app/a"), hardlink("app/b", "app/a"), symlink("app/s", "a")))
	f.Add(pack(f, file("../x")))
	f.Add(pack(f, file("staging_info.yml"))[:600])
	f.Fuzz(unpackAccepted)
}

func unpackAccepted(t *testing.T, image []byte) {
	if CheckImage(bytes.NewReader(image)) != nil {
		return
	}
	root := t.TempDir()
	tr := tar.NewReader(bytes.NewReader(image))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("accepted, but: %v", err)
		}
		unpack(t, root, h)
	}
}

func unpack(t *testing.T, root string, h *tar.Header) {
	t.Helper()
	if h.Typeflag == tar.TypeXGlobalHeader {
		return
	}
	p := root + "/" + h.Name
	parent := filepath.Dir(strings.TrimSuffix(p, "/"))
	if len(filepath.Base(p)) > 255 || len(p) > 4000 || len(h.Linkname) > 4000 {
		t.Skip("longer than a file system allows")
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		t.Skip(err) // a part of the path can be too long
	}
	if real, err := filepath.EvalSymlinks(parent); err != nil || real != parent && real != filepath.Clean(parent) {
		t.Fatalf("%q is unpacked into %q (%v)", h.Name, real, err)
	}
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		err = os.MkdirAll(p, 0o700)
	case tar.TypeReg:
		err = os.WriteFile(p, nil, 0o600)
	case tar.TypeSymlink:
		err = os.Symlink(h.Linkname, p)
	case tar.TypeLink:
		err = os.Link(root+"/"+h.Linkname, p)
	default:
		t.Fatalf("%q has type %c", h.Name, h.Typeflag)
	}
	if err != nil {
		t.Fatalf("cannot unpack %q: %v", h.Name, err)
	}
}
