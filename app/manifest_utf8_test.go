package app

import (
	"strings"
	"testing"
)

// A manifest that is not UTF-8 is refused with the line: whatever stood in the place
// of its bytes would be another name.
func TestManifestMustBeUTF8(t *testing.T) {
	for text, want := range map[string]string{
		"applications:\n- name: caf\xe9\n":                                              "line 2: it is not valid UTF-8",
		"applications:\n- name: shop\n  env:\n    A: \"\xed\xa0\x80\"\n":                "line 4: it is not valid UTF-8",
		"applications:\n- name: shop\n  env:\n    A: \"a\\ud800b\"\n":                   "line 4: it is not YAML: not enough length for escaped UTF-16 surrogate pair",
		"applications:\n- name: shop\n  env:\n    \"\\uDC00\": b\n":                     "line 4: it is not valid UTF-8",
		"applications:\n- name: shop\n  env:\n    A: \"\ufffd \\ufffd\"\n":              "",
		"applications:\n- name: shop\n  env:\n    A: '\\ud800'\n":                       "", // no escape in such quotes
		"applications:\n- name: shop\n  env:\n    A: \\ud800\n":                         "",
		"applications:\n- name: shop\n  env:\n    A: \"caf\u00e9 \\u20ac\"\n":           "",
		"applications:\n- name: shop\n  env:\n    A: \"\\ufffd\"\n    B: \"\\udfff\"\n": "line 5: it is not valid UTF-8",
		"applications:\n- name: shop\n  env:\n    A: \"\\ud83d\\ude00\"\n":              "",
	} {
		_, _, err := ParseManifest([]byte(text), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
