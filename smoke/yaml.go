package smoke

import (
	"errors"
	"strconv"

	"github.com/dewrun/dew/yamlfile"
)

// maxFile is the maximum size of a smoke.yml in bytes.
const maxFile = 256 << 10

// SpecError says what is wrong with a smoke.yml, where, and which values are allowed.
type SpecError struct {
	File    string
	Line    int    // 0 if unknown
	Key     string // such as "checks[0].http.port"
	Message string
}

func (e *SpecError) Error() string {
	where := e.File
	if e.Line > 0 {
		where += ", line " + strconv.Itoa(e.Line)
	}
	if e.Key != "" {
		where += ": " + e.Key
	}
	return where + ": " + e.Message
}

// readYAML reads a smoke.yml. The error is a *SpecError.
func readYAML(file string, b []byte) (*yamlfile.Node, error) {
	n, err := yamlfile.Read(b, maxFile)
	if e, ok := errors.AsType[*yamlfile.Error](err); ok {
		return nil, &SpecError{File: file, Line: e.Line, Key: e.Key, Message: e.Message}
	}
	return n, err
}

// shorten returns the start of a text that is too long for a message.
func shorten(s string) string { return yamlfile.Shorten(s) }
