package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseYAML(t *testing.T) {
	got, err := ParseYAML([]byte("a: &a {x: 1, y: [true, text, null]}\nb: {<<: *a, x: 2}\n"))
	want := map[string]any{
		"a": map[string]any{"x": int64(1), "y": []any{true, "text", nil}},
		"b": map[string]any{"x": int64(2), "y": []any{true, "text", nil}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	if got, err := ParseYAML(nil); got != nil || err != nil {
		t.Errorf("nothing is %v, %v", got, err)
	}
}

// A few lines may stand for more than a machine has memory.
func TestParseYAMLRefusesBombs(t *testing.T) {
	var merges strings.Builder
	merges.WriteString("a0: &a0 {x: y}\n")
	for i := 1; i < 60; i++ {
		fmt.Fprintf(&merges, "a%d: &a%d {p: *a%d, <<: *a%d, q: *a%d}\n", i, i, i-1, i-1, i-1)
	}
	for name, text := range map[string]string{
		"merges":   merges.String(),
		"brackets": strings.Repeat("[", 1<<16),
		"marks":    strings.Repeat("- ", 1<<15),
		"text":     "a: &a " + strings.Repeat("x", maxManifest/2) + "\nb: [" + strings.Repeat("*a, ", 1000) + "]\n",
		"itself":   "a: &a {b: *a}\n",
	} {
		if _, err := ParseYAML([]byte(text)); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}
