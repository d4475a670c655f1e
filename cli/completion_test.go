package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// If a shell completes the name of an app, it runs no part of the name, and quotes it
// as it must be typed.
func TestCompletionRunsNoNames(t *testing.T) {
	t.Parallel()
	names := `$(touch ran)
` + "`touch ran`" + `
two words
a"b'c
shop
ship; touch ran
--flag`
	for typed, want := range map[string]string{
		"":     `\$\(touch\ ran\)|` + "\\`touch\\ ran\\`" + `|two\ words|a\"b\'c|shop|ship\;\ touch\ ran|--flag`,
		"two":  `two\ words`,
		`two\`: `two\ words`,
		"sh":   `shop|ship\;\ touch\ ran`,
		"--f":  "--flag",
		"none": "",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "names"), []byte(names+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), "bash", "-c", bashCompletion+`
dew() { cat names; }
COMP_WORDS=(dew app "$1") COMP_CWORD=2
_dew
IFS='|'; echo "${COMPREPLY[*]}"`, "bash", typed)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if got := strings.TrimSuffix(string(out), "\n"); err != nil || got != want {
			t.Errorf("%q is completed to %s, %v, want %s", typed, got, err, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
			t.Errorf("%q: a name was run", typed)
		}
	}
}
