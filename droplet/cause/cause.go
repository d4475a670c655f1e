// Package cause finds out from the output of tools why a build failed.
package cause

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxCause limits the part of a failed build's cause that comes from a tool's output.
const maxCause = 300

var (
	// escapeSequence matches the escape sequences for colors.
	escapeSequence = regexp.MustCompile("\x1b(\\[[0-9;?]*[A-Za-z]|\\][^\a]*(\a|$))")
	// login is the user and password in a URL.
	login = regexp.MustCompile(`//[^/\s@]+@`)
	// noise matches lines that do not say why a tool failed.
	noise = regexp.MustCompile(`(?i)^(\[?notice|npm notice|npm warn|warn(ing)?\b|hint:|note:|debug|info\b|\(node:|at |exit status \d+$|# \S+$|Node\.js v\d|` +
		`error: (subprocess-exited-with-error|metadata-generation-failed|legacy-install-failure)|\[end of output\]|[─-╿>^~ .|-]+$)|` +
		`complete log of this run|too many errors$|originates from a subprocess|^[×╰│]`)
	// npmError matches a line of npm about an error, in the old and new wording.
	npmError = regexp.MustCompile(`^npm (?:ERR!|error) ?(.*)$`)
	// npmDetail matches fields of an npm error that say less than the next sentence.
	npmDetail = regexp.MustCompile(`^(code|errno|syscall|path|command|cwd|dest|stack|signal|host|type)\b`)
	// composerProblem matches a package that composer cannot install.
	composerProblem = regexp.MustCompile(`^- .* requires `)
	// position matches the start of a compiler's message.
	position = regexp.MustCompile(`^\S+\.[A-Za-z]+:\d+(:\d+)?: .`)
	// errorWord matches a prefix that only marks an error.
	errorWord = regexp.MustCompile(`(?i)^(error|fatal|e):\s*|^\[!\]\s*`)
	// errorLine matches a line that is marked as an error.
	errorLine = regexp.MustCompile(`(?i)^(\**([a-z_.]*error|fatal|e)\b\s*[:!*]|\[!\])`)
)

// Hidden replaces secrets.
const Hidden = "xxxxx"

// Of finds the line that says why a tool failed, among its lines on stderr, oldest
// first. It returns nothing if there is no such line.
func Of(printed []string) string {
	var lines []string
	for _, l := range printed {
		if l = Clean(l); l != "" && !noise.MatchString(l) {
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	why := cmp.Or(npmCause(lines), compilerCause(lines), firstMatch(lines, composerProblem), lastMatch(lines, errorLine), lastSentence(lines))
	why = errorWord.ReplaceAllString(why, "")
	return Shorten(strings.ReplaceAll(why, "/tmp/app/", ""))
}

// Clean returns a line without colors, control characters and secrets.
func Clean(l string) string {
	l = escapeSequence.ReplaceAllString(strings.ToValidUTF8(l, ""), "")
	if i := strings.LastIndexByte(strings.TrimRight(l, "\r"), '\r'); i >= 0 {
		l = l[i+1:] // a progress bar was printed before it
	}
	l = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, l)
	return login.ReplaceAllString(strings.TrimSpace(l), "//"+Hidden+"@")
}

// npmCause returns the first sentence of npm about its error.
func npmCause(lines []string) string {
	for _, l := range lines {
		if m := npmError.FindStringSubmatch(l); m != nil && m[1] != "" && !npmDetail.MatchString(m[1]) {
			return "npm: " + m[1]
		}
	}
	return ""
}

// compilerCause returns the first message of a compiler; later ones can follow from it.
func compilerCause(lines []string) string {
	first, n := "", 0
	for i, l := range lines {
		if !position.MatchString(l) {
			continue
		}
		if strings.HasSuffix(l, ":") && i+1 < len(lines) {
			l += " " + lines[i+1] // it says what to do
		}
		first = cmp.Or(first, l)
		n++
	}
	switch n {
	case 0, 1:
		return first
	case 2:
		return first + " (and 1 more error)"
	}
	return fmt.Sprintf("%s (and %d more errors)", first, n-1)
}

// wrapped is the minimum length of a line that was wrapped for a terminal.
const wrapped = 60

// lastSentence returns the last line, with the lines before it of the same sentence.
func lastSentence(lines []string) string {
	i := len(lines) - 1
	text := lines[i]
	for ; i > 0 && len(lines[i-1]) >= wrapped && unicode.IsLower(first(lines[i])); i-- {
		text = lines[i-1] + " " + text
	}
	return text
}

func first(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

func firstMatch(lines []string, want *regexp.Regexp) string {
	for _, l := range lines {
		if want.MatchString(l) {
			return l
		}
	}
	return ""
}

func lastMatch(lines []string, want *regexp.Regexp) (found string) {
	for _, l := range lines {
		if want.MatchString(l) {
			found = l
		}
	}
	return found
}

// Shorten returns the part of a text that is short enough for a message.
func Shorten(s string) string {
	if r := []rune(s); len(r) > maxCause {
		return string(r[:maxCause]) + "…"
	}
	return s
}
