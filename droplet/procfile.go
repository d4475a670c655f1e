package droplet

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/pool"
)

// procfileName is the file with the commands of an app.
const procfileName = "Procfile"

// maxProcfile is far more than any Procfile needs.
const maxProcfile = 64 << 10

// ProcfileError says which line of a Procfile is refused and why.
type ProcfileError struct {
	Line   int // 0: the file as a whole
	Reason string
}

func (e *ProcfileError) Error() string {
	if e.Line == 0 {
		return "Procfile " + e.Reason
	}
	return fmt.Sprintf("Procfile line %d: %s", e.Line, e.Reason)
}

var processType = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// readProcfile finds the Procfile in the tar of a package. The tar is sorted, so most
// of it need not be read.
func readProcfile(f io.ReadSeeker) (map[string]string, error) {
	const name = pool.Top + "/" + procfileName
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("cannot read package: %w", err)
	}
	tr := tar.NewReader(f)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) || err == nil && h.Name > name {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read package: %w", err)
		}
		if h.Name != name {
			continue
		}
		if h.Typeflag != tar.TypeReg || h.Size > maxProcfile {
			return nil, &ProcfileError{Reason: fmt.Sprintf("must be a regular file of at most %s", archive.Size(maxProcfile))}
		}
		raw, err := io.ReadAll(tr)
		if err != nil {
			return nil, fmt.Errorf("cannot read package: %w", err)
		}
		return parseProcfile(raw)
	}
}

// parseProcfile parses lines of the form `type: command`. Cloud Foundry reads the file
// as YAML, so quotes around a whole command are removed.
func parseProcfile(raw []byte) (map[string]string, error) {
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(raw) || bytes.IndexByte(raw, 0) >= 0 {
		return nil, &ProcfileError{Reason: "is not a text file"}
	}
	commands := map[string]string{}
	n := 0
	for line := range strings.Lines(string(raw)) {
		n++
		line = strings.TrimRight(line, " \t\r\n")
		if start := strings.TrimSpace(line); start == "" || start[0] == '#' || start == "---" {
			continue
		}
		name, command, ok := strings.Cut(line, ":")
		if !ok || !processType.MatchString(name) {
			return nil, &ProcfileError{n, fmt.Sprintf("%q is not of the form `type: command`, such as `web: ./server`", line)}
		}
		if _, twice := commands[name]; twice {
			return nil, &ProcfileError{n, fmt.Sprintf("process type '%s' occurs twice", name)}
		}
		command = unquote(strings.TrimSpace(command))
		if command == "" || command == "|" || command == ">" {
			return nil, &ProcfileError{n, fmt.Sprintf("process type '%s' has no command: write it on the same line", name)}
		}
		commands[name] = command
	}
	return commands, nil
}

// unquote removes quotes around the whole text, as YAML does, but none inside.
func unquote(s string) string {
	if len(s) < 2 || s[0] != s[len(s)-1] {
		return s
	}
	inner := s[1 : len(s)-1]
	switch s[0] {
	case '\'':
		if plain := strings.ReplaceAll(inner, "''", ""); !strings.Contains(plain, "'") {
			return strings.TrimSpace(strings.ReplaceAll(inner, "''", "'"))
		}
	case '"':
		if plain := escaped.ReplaceAllString(inner, ""); !strings.ContainsAny(plain, `"\`) {
			return strings.TrimSpace(escaped.ReplaceAllString(inner, "$1"))
		}
	}
	return s
}

// escaped matches an escaped quote or backslash inside double quotes.
var escaped = regexp.MustCompile(`\\(["\\])`)
