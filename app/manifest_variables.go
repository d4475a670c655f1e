package app

import (
	"fmt"
	"strings"

	"github.com/dewrun/dew/yamlfile"
)

// ParseVariables reads a file of variables: a YAML map.
func ParseVariables(file []byte) (map[string]any, error) {
	n, err := readYAML(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read variables: %w", err)
	}
	if n.Null() {
		return map[string]any{}, nil
	}
	if n.Kind != yamlfile.Map {
		return nil, fmt.Errorf("cannot read variables: %w", &ManifestError{Line: n.Line, Message: "must be a map of names and values, not " + n.Noun()})
	}
	return n.Plain().(map[string]any), nil
}

// ParseVariable reads name=value, where the value is YAML: 2 is a number.
func ParseVariable(s string) (name string, value any, err error) {
	name, text, ok := strings.Cut(s, "=")
	if !ok || !yamlfile.IsVariable(name) {
		return "", nil, fmt.Errorf("%q is not a valid variable: write name=value", s)
	}
	n, err := readYAML([]byte(text))
	if err != nil {
		return "", nil, fmt.Errorf("cannot read variable %s: %w", name, err)
	}
	return name, n.Plain(), nil
}
