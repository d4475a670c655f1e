package rootfs

import (
	"archive/tar"
	"testing"
)

// A sanitized entry has no bits and attributes that give permissions.
func TestSanitize(t *testing.T) {
	for _, flag := range []byte{tar.TypeChar, tar.TypeBlock, tar.TypeFifo, tar.TypeCont} {
		if sanitize(&tar.Header{Typeflag: flag}) {
			t.Errorf("type %q was let in", flag)
		}
	}
	for _, flag := range []byte{tar.TypeReg, tar.TypeGNUSparse} {
		h := &tar.Header{Typeflag: flag, Mode: 0o6755, PAXRecords: map[string]string{
			"SCHILY.xattr.security.capability": "x", "SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.user.mine": "z",
		}}
		if !sanitize(h) || h.Typeflag != tar.TypeReg || h.Mode != 0o755 || len(h.PAXRecords) != 1 {
			t.Errorf("type %q became %+v", flag, h)
		}
	}
}
