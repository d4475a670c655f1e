package command

import (
	"strings"
	"testing"
)

func TestWrap(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a b": "a b", strings.Repeat("word ", 20) + "end": strings.TrimSpace(strings.Repeat("word ", 15)) + "\n" + strings.Repeat("word ", 5) + "end",
		"x\n\nExamples:\n   " + strings.Repeat("long ", 20) + "\n   y": "x\n\nExamples:\n   " + strings.Repeat("long ", 20) + "\n   y",
	} {
		if got := wrap(in); got != want {
			t.Errorf("%q became %q", in, got)
		}
	}
}
