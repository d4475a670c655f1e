package cli

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// notHere lists the commands of cf that dew does not have, and the reason.
var notHere = map[string]string{
	"config":             "dew has nothing to set: NO_COLOR and DEW_* are variables",
	"add-plugin-repo":    "dew has no plugins",
	"remove-plugin-repo": "dew has no plugins",
	"list-plugin-repos":  "dew has no plugins",
	"repo-plugins":       "dew has no plugins",
	"plugins":            "dew has no plugins",
	"install-plugin":     "dew has no plugins",
	"uninstall-plugin":   "dew has no plugins",
}

// flagsNotHere lists the flags of cf that a dew command does not have, and the reason.
var flagsNotHere = map[string]string{
	"login --sso":                  oneProvider,
	"login --sso-passcode":         oneProvider,
	"login --origin":               oneProvider,
	"auth --origin":                oneProvider,
	"auth --assertion":             oneProvider,
	"create-user --origin":         oneProvider,
	"delete-user --origin":         oneProvider,
	"set-org-role --origin":        oneProvider,
	"unset-org-role --origin":      oneProvider,
	"set-space-role --origin":      oneProvider,
	"unset-space-role --origin":    oneProvider,
	"create-buildpack --lifecycle": "there is one lifecycle with buildpacks",
	"create-buildpack -l":          "there is one lifecycle with buildpacks",
	"push --lifecycle":             "an app with --docker-image is an image, all others are staged with buildpacks",
	"ssh --skip-host-validation":   "dew gets the host key from the API",
	"ssh -k":                       "dew gets the host key from the API",
}

const oneProvider = "dewd keeps the users itself"

// dew has every command of cf, with all its names and flags, or a reason is listed.
func TestVerbsOfCF(t *testing.T) {
	t.Parallel()
	f, err := os.Open(filepath.Join("testdata", "cf.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	have := map[string]*cli.Command{}
	a := newApp("dev", quiet()).app
	a.Setup() // adds help
	for _, c := range a.Commands {
		for _, name := range c.Names() {
			if have[name] != nil {
				t.Errorf("both %s and %s are called %s", have[name].Name, c.Name, name)
			}
			have[name] = c
		}
	}
	unused := map[string]bool{}
	for key := range flagsNotHere {
		unused[key] = true
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if words[0] == "#" {
			continue
		}
		c := have[words[0]]
		if reason := notHere[words[0]]; (c == nil) != (reason != "") {
			t.Errorf("%s: dew has it: %t; why not: %q", words[0], c != nil, reason)
		}
		if c == nil {
			continue
		}
		for _, word := range words[1:] {
			key := words[0] + " " + word
			if delete(unused, key); hasWord(c, word) == (flagsNotHere[key] != "") {
				t.Errorf("%s: dew has it: %t; why not: %q", key, hasWord(c, word), flagsNotHere[key])
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	for key := range unused {
		t.Errorf("%s is no flag of cf", key)
	}
}

// hasWord reports whether a command has the flag, or, if the word starts with =, the
// alias.
func hasWord(c *cli.Command, word string) bool {
	if alias, ok := strings.CutPrefix(word, "="); ok {
		return slices.Contains(c.Aliases, alias)
	}
	return find(word, c.Flags) != nil
}
