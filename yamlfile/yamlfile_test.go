package yamlfile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValues(t *testing.T) {
	got, err := Values([]byte("a: &a {x: 1, y: [true, text, null]}\nb: {<<: *a, x: 2}\n"))
	want := map[string]any{
		"a": map[string]any{"x": int64(1), "y": []any{true, "text", nil}},
		"b": map[string]any{"x": int64(2), "y": []any{true, "text", nil}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	if got, err := Values(nil); got != nil || err != nil {
		t.Errorf("nothing is %v, %v", got, err)
	}
}

// Values refuses small files that would expand to more than the memory of a machine.
func TestValuesRefusesBombs(t *testing.T) {
	var merges strings.Builder
	merges.WriteString("a0: &a0 {x: y}\n")
	for i := 1; i < 60; i++ {
		fmt.Fprintf(&merges, "a%d: &a%d {p: *a%d, <<: *a%d, q: *a%d}\n", i, i, i-1, i-1, i-1)
	}
	for name, text := range map[string]string{
		"merges":   merges.String(),
		"brackets": strings.Repeat("[", 1<<16),
		"marks":    strings.Repeat("- ", 1<<15),
		"text":     "a: &a " + strings.Repeat("x", MaxBytes/2) + "\nb: [" + strings.Repeat("*a, ", 1000) + "]\n",
		"itself":   "a: &a {b: *a}\n",
	} {
		if _, err := Values([]byte(text)); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}

func TestReadFields(t *testing.T) {
	n, err := Read([]byte("a: 1\nb: ~\nc: ~\nd: 2\n"), MaxBytes)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	read := func(path string, v *Node) { got = append(got, fmt.Sprint("read ", path, " ", v.Line)) }
	n.ReadFields("x.", []Key{{Name: "a", Read: read}, {Name: "b", Read: read}, {Name: "c", Read: read, Null: true}}, func(path string, line int) {
		got = append(got, fmt.Sprint("unknown ", path, " ", line))
	})
	if diff := cmp.Diff(got, []string{"read x.a 1", "read x.c 3", "unknown x.d 4"}); diff != "" {
		t.Errorf("calls (-got +want):\n%s", diff)
	}
}

func TestErrorText(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"syntax":   {"a: [\n", "line 1: the text is not YAML: sequence end token ']' not found"},
		"twice":    {"a: 1\nb: 2\na: 3\n", "line 3: a: is given twice, first in line 1"},
		"long":     {"aaaaaaaaaaaaaaaaaaaaa", "the text has 21 bytes, but at most 20 are allowed"},
		"merge":    {"<<: 1\n", "line 1: <<: must be a map or a list of maps, not the number 1"},
		"two":      {"a\n---\nb\n", "line 3: a second YAML document starts here: only one is allowed"},
		"encoding": {"a: x\nb: \xff\n", "line 2: the text is not valid UTF-8"},
	} {
		if _, err := Read([]byte(tt.text), 20); err == nil || err.Error() != tt.want {
			t.Errorf("%s: error = %v, want %s", name, err, tt.want)
		}
	}
}

func TestNoun(t *testing.T) {
	for text, want := range map[string][2]string{
		"[1]":    {"a list", "a list"},
		"{a: 1}": {"a map", "a map"},
		"~":      {"nothing", "nothing"},
		"x":      {`the text "x"`, `"x"`},
		"1.5":    {"the number 1.5", "1.5"},
		"true":   {"true", "true"},
	} {
		n, err := Read([]byte(text), MaxBytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]string{n.Noun(), n.Short()}; got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
}
