package dependencies

import (
	"regexp"
	"strings"
)

var (
	// pinned matches a requirement with one version, and optionally a marker and hashes.
	pinned = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[A-Za-z0-9._,\s-]*\])?\s*={2,3}\s*[A-Za-z0-9.!+_-]+(\s*;[^@;]*?)?(\s+--hash=[a-z0-9]+:[0-9a-f]+)*$`)
	// kernel matches markers with a different value after an update of the kernel.
	kernel = regexp.MustCompile(`platform_(release|version)`)
	// note matches a comment.
	note = regexp.MustCompile(`(^|\s)#.*$`)
)

// python adds the files that determine the packages of an app.
func (s *sum) python() error {
	raw, ok, err := s.file("requirements.txt")
	if err != nil || !ok {
		return orUncertain(err)
	}
	if !allPinned(string(raw)) {
		return errUncertain
	}
	if _, _, err := s.file("setup.cfg"); err != nil { // pip reads settings from it
		return err
	}
	return s.folder("vendor")
}

// allPinned reports whether every line of a requirements.txt names one version of one
// package. Options, URLs and paths can refer to other files.
func allPinned(text string) bool {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(note.ReplaceAllString(line, ""))
		if line != "" && (!pinned.MatchString(line) || kernel.MatchString(line)) {
			return false
		}
	}
	return true
}
