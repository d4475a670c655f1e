package rootfs

import (
	"archive/tar"
	"testing"
)

func TestStripped(t *testing.T) {
	for _, c := range []struct{ name, folder, want string }{
		{"app/bin/x", "app", "bin/x"}, {"app/", "app", "."}, {"app", "app", "."}, {"application/x", "app", "application/x"}, {"app/x", "", "app/x"},
	} {
		if got := stripped(c.name, c.folder); got != c.want {
			t.Errorf("%s without %s = %s, want %s", c.name, c.folder, got, c.want)
		}
	}
	for name, want := range map[string]bool{"a": true, "b/.wh.c": false, ".wh..wh..opq": false} {
		if allowedInLayer(&tar.Header{Typeflag: tar.TypeReg, Name: name}) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
	if allowedInLayer(&tar.Header{Typeflag: tar.TypeChar, Name: "null"}) {
		t.Error("a device is laid out")
	}
}
