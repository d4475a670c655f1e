package main

import (
	"slices"
	"strings"
	"testing"
)

// Without a shell a command is split as a shell would, or refused.
func TestWords(t *testing.T) {
	env := []string{"PORT=8080", "EMPTY=", "TWO=a b"}
	for _, c := range []struct {
		command string
		want    []string
	}{
		{"./server", []string{"./server"}},
		{"  ./server -p  $PORT ", []string{"./server", "-p", "8080"}},
		{"exec ./server --port=${PORT}x", []string{"./server", "--port=8080x"}},
		{`s 'a $PORT' "b $PORT" c\ d`, []string{"s", "a $PORT", "b 8080", "c d"}},
		{`s "" '' $EMPTY`, []string{"s", "", ""}},
		{`s $TWO "\n\$x"`, []string{"s", "a b", `\n$x`}},
		{"s $MISSING x", []string{"s", "x"}},
		{"a | b", nil},
		{"a && b", nil},
		{"a; b", nil},
		{"a > f", nil},
		{"echo `date`", nil},
		{`echo "$(date)"`, nil},
		{"a ${PORT:-80}", nil},
		{"ls *", nil},
		{"'open", nil},
		{"x\\", nil},
		{"", nil},
		{"exec", nil},
	} {
		got, err := words(c.command, env)
		if (err != nil) != (c.want == nil) || !slices.Equal(got, c.want) {
			t.Errorf("words(%q) = %q, %v, want %q", c.command, got, err, c.want)
		}
	}
}

// Any command is split or refused, and plain words are unchanged.
func FuzzWords(f *testing.F) {
	for _, s := range []string{"a b", `"$x" 'y' \z`, "${", "$", "\\", "'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, command string) {
		got, err := words(command, []string{"x=1"})
		if err == nil && len(got) == 0 {
			t.Errorf("words(%q) gives nothing and no error", command)
		}
		if err == nil && !strings.ContainsAny(command, "'\"\\$`") {
			plain := strings.FieldsFunc(command, func(r rune) bool { return r == ' ' || r == '\t' })
			if plain[0] == "exec" {
				plain = plain[1:]
			}
			if !slices.Equal(got, plain) {
				t.Errorf("words(%q) = %q, want %q", command, got, plain)
			}
		}
	})
}
