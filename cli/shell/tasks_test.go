package shell

import (
	"os/exec"
	"strings"
	"testing"
)

func TestShellCommand(t *testing.T) {
	for want, args := range map[string][]string{
		"":                            nil,
		"env | sort":                  {"env | sort"},
		"ls -l /tmp":                  {"ls", "-l", "/tmp"},
		`sh -c 'echo "a  b" $HOME'`:   {"sh", "-c", `echo "a  b" $HOME`},
		`echo '' 'it'\''s' '~' 'a#b'`: {"echo", "", "it's", "~", "a#b"},
	} {
		if got := shellCommand(args); got != want {
			t.Errorf("%q = %s, want %s", args, got, want)
		}
	}
}

// A shell reads every quoted word unchanged.
func FuzzShellQuote(f *testing.F) {
	for _, s := range []string{"", "a", "it's", "$HOME", "a b\n'", "~", "-n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if strings.ContainsRune(word, 0) {
			return
		}
		out, err := exec.Command("/bin/sh", "-c", "printf %s "+shellQuote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q became %q, %v", word, out, err)
		}
	})
}
