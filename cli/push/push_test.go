package push

import (
	"testing"

	"github.com/dewrun/dew/app"
)

func TestBitsPath(t *testing.T) {
	for _, c := range []struct{ flag, key, manifest, want string }{
		{"", "", "", "."},
		{"x", "code", "a/manifest.yml", "x"},
		{"", "code", "a/manifest.yml", "a/code"},
		{"", "/code", "a/manifest.yml", "/code"},
		{"", "", "a/manifest.yml", "."},
	} {
		got := target{app: &app.ManifestApp{Path: c.key}, manifest: c.manifest}.bitsPath(Options{Path: c.flag})
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
