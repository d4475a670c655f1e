package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The help of every command is read before it changes.
func TestHelp(t *testing.T) {
	forget(t)
	var b strings.Builder
	b.WriteString(runDew(t.Context(), "--help").out)
	for _, c := range newApp(quiet()).app.Commands {
		if c.SkipFlagParsing {
			continue // its help is another program's
		}
		r := runDew(t.Context(), c.Name, "--help")
		r.must(t, 0, c.Usage)
		b.WriteString("\n$ dew " + c.Name + " --help\n" + r.out)
	}
	golden := filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("help differs (-update writes it anew):\n%s", diff)
	}
}

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
