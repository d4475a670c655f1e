package app

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	// manifestPlace begins the text of a ManifestError: the app, the line or both.
	manifestPlace = regexp.MustCompile(`^(?:app ("(?:[^"\\]|\\.)*")(?:, line ([0-9]+))?|line ([0-9]+)): `)
	// manifestPath is the key in the text of a ManifestError.
	manifestPath = regexp.MustCompile(`^([\w<>-]+(?:\[[^\]]*\])?(?:\.[\w-]+(?:\[[^\]]*\])?)*): `)
	// platformPlace begins the words of the platform about an app of a manifest.
	platformPlace = regexp.MustCompile(`^For application '([^']*)': `)
	// platformService is the service that those words are about.
	platformService = regexp.MustCompile(`^(?:For service|Service instance) '([^']*)'`)
)

// ReadManifestError reads the text of a ManifestError that names an app or a line: the
// opposite of its method Error.
func ReadManifestError(text string) (e ManifestError, ok bool) {
	place := manifestPlace.FindStringSubmatch(text)
	if place == nil {
		return e, false
	}
	e.Message = text[len(place[0]):]
	if place[1] != "" {
		var err error
		if e.App, err = strconv.Unquote(place[1]); err != nil {
			return e, false
		}
	}
	if line := cmp.Or(place[2], place[3]); line != "" {
		var err error
		if e.Line, err = strconv.Atoi(line); err != nil {
			return e, false
		}
	}
	if path := manifestPath.FindStringSubmatch(e.Message); path != nil {
		e.Key, e.Message = path[1], e.Message[len(path[0]):]
	}
	return e, true
}

// Locate finds what the daemon says about a manifest in the file that it was read from.
// The daemon has seen other lines: those of the manifest as it was sent. It returns the
// line, 0 if there is none, and the text without the line that it names.
func (m Manifest) Locate(text string) (line int, rest string) {
	if e, ok := ReadManifestError(text); ok {
		e.Line = 0
		for i := range m.Applications {
			if a := &m.Applications[i]; a.Name == e.App {
				line = a.Line(e.Key)
			}
		}
		return line, e.Error()
	}
	place := platformPlace.FindStringSubmatch(text)
	if place == nil {
		return 0, text
	}
	for i := range m.Applications {
		if a := &m.Applications[i]; a.Name == place[1] {
			line = a.Line(a.keyOf(text[len(place[0]):]))
		}
	}
	return line, text
}

// keyOf is the key that the words of the platform are about; empty where it is none in
// particular.
func (m *ManifestApp) keyOf(words string) string {
	switch {
	case strings.HasPrefix(words, "Stack must be "):
		return "stack"
	case strings.HasPrefix(strings.ToLower(words), "buildpack "):
		return "buildpacks"
	}
	named := platformService.FindStringSubmatch(words)
	if named == nil {
		return ""
	}
	for i, s := range m.Services {
		if s.Name != named[1] {
			continue
		}
		if key := "services[" + s.Name + "]"; m.lines[key] > 0 {
			return key
		}
		return fmt.Sprintf("services[%d]", i)
	}
	return "services"
}

// In is the error with the file that the manifest is in, as file:line.
func (e ManifestError) In(file string) string {
	if e.Line > 0 {
		file = fmt.Sprintf("%s:%d", file, e.Line)
	}
	e.Line = 0
	return file + ": " + e.Error()
}
