package versions

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/Masterminds/semver/v3"
)

// Found is the version of a language on a stack.
type Found struct {
	Language string
	Version  string // as the toolchain prints it, such as v18.20.4
	Stack    string // name of the stack; "host" is the machine's own
}

// Result is the result of a comparison.
type Result struct {
	Refused  string   // why the app cannot be staged, and what to do; empty: it can
	Warnings []string // what the user should know
	Notes    []string // satisfied hints
}

// Check compares the version on a stack with the hints of an app. The first hint that
// must be satisfied and is not refuses the app.
func Check(f Found, hints []Hint) Result {
	var r Result
	if len(hints) == 0 {
		return r
	}
	title := Title(f.Language)
	version, err := Parse(f.Version)
	if err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("Cannot compare the %s version that %s asks for: the stack has version %q", title, hints[0].Where, short(f.Version)))
		return r
	}
	for _, h := range hints {
		switch {
		case h.err != nil && h.Text == "":
			r.Warnings = append(r.Warnings, fmt.Sprintf("Cannot read the %s version in %s: %v", title, h.Where, h.err))
		case h.err != nil:
			r.Warnings = append(r.Warnings, fmt.Sprintf("Cannot compare the %s version in %s: %v", title, h.Where, h.err))
		case h.accepts(version):
			r.Notes = append(r.Notes, fmt.Sprintf("%s %s satisfies %s (%s)", title, version, short(h.Text), h.Where))
		case h.Must && (h.strictFrom == nil || version.Compare(h.strictFrom) >= 0) && r.Refused == "":
			r.Refused = refusal(f, h, version)
		default:
			r.Warnings = append(r.Warnings, mismatch(f, h, version))
		}
	}
	return r
}

func mismatch(f Found, h Hint, version *semver.Version) string {
	has := "this machine has"
	if f.Stack != "" && f.Stack != "host" {
		has = "stack " + f.Stack + " has"
	}
	return fmt.Sprintf("%s asks for %s %s, but %s %s", h.Where, Title(f.Language), namePart.ReplaceAllString(short(h.Text), "$1"), has, version)
}

// namePart matches the name of a language in front of a version, such as python-3.12.
var namePart = regexp.MustCompile(`^(?:ruby-|python-|go)(\d)`)

// refusal adds what to do to a mismatch.
func refusal(f Found, h Hint, version *semver.Version) string {
	change := "change the version"
	if h.Suggest != "" {
		change += " to " + fmt.Sprintf(h.Suggest, fmt.Sprintf("%d.%d", version.Major(), version.Minor()))
	}
	todo := "Install that version, %s, or use another stack or an image"
	if f.Stack != "" && f.Stack != "host" {
		todo = "Use a stack that has it, %s, or push an image"
	}
	return mismatch(f, h, version) + ". " + fmt.Sprintf(todo, change)
}

// versionPart matches the version in the output of a toolchain. Java 8 and older begin
// with 1.
var versionPart = regexp.MustCompile(`^(?:v|go)?(\d+)(?:\.(\d+))?(?:\.(\d+))?`)

// oldJava matches the version of Java 8 and older, such as 1.8.0_402.
var oldJava = regexp.MustCompile(`^1\.(\d+)\.0_(\d+)`)

// Parse parses the version of a toolchain without the parts that do not count, such as
// a patch level or the revision of a Debian package.
func Parse(text string) (*semver.Version, error) {
	text = strings.TrimSpace(text)
	if m := oldJava.FindStringSubmatch(text); m != nil {
		return semver.NewVersion(m[1] + ".0." + m[2])
	}
	m := versionPart.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("%q is not a version", short(text))
	}
	return semver.NewVersion(strings.TrimRight(strings.Join(m[1:], "."), "."))
}

// maxShown limits the text of a hint in messages.
const maxShown = 60

// short makes text from a file printable on one line.
func short(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > maxShown {
		return string(r[:maxShown]) + "…"
	}
	return text
}
