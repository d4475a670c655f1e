package smoke

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/dewrun/dew/app"
)

// maxFile is how long a smoke.yml may be; no sane one comes near.
const maxFile = 256 << 10

// SpecError says what is wrong with a smoke.yml, where, and what is allowed.
type SpecError struct {
	File    string
	Line    int    // 0: nobody knows
	Key     string // "checks[0].http.port"
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

// node is YAML with its lines.
type node = app.YAML

// parseYAML reads one document, as manifests are read.
func parseYAML(b []byte) (*node, error) {
	if len(b) > maxFile {
		return nil, &SpecError{Message: fmt.Sprintf("it has %d bytes, at most %d are allowed", len(b), maxFile)}
	}
	n, err := app.ReadYAML(b)
	if e := (*app.ManifestError)(nil); errors.As(err, &e) {
		return nil, &SpecError{Line: e.Line, Key: e.Key, Message: e.Message}
	}
	return n, err
}

// noun says what a node is, for messages.
func noun(n *node) string {
	switch n.Kind {
	case app.YAMLList:
		return "a list"
	case app.YAMLMap:
		return "a map"
	}
	switch v := n.Value.(type) {
	case nil:
		return "nothing"
	case string:
		return strconv.Quote(shorten(v))
	default:
		return fmt.Sprint(v)
	}
}
