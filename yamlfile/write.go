package yamlfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// Text writes a map as readable YAML, with quotes around texts that YAML would parse as
// another type.
func Text(m yaml.MapSlice) ([]byte, error) {
	w := textWriter{}
	w.out.WriteString("---\n")
	w.mapping(0, m)
	return w.out.Bytes(), w.err
}

// JSON is a JSON value inside YAML, where it is also valid.
type JSON json.RawMessage

// MarshalYAML returns the JSON unchanged.
func (j JSON) MarshalYAML() ([]byte, error) { return j, nil }

// textWriter writes rendered maps line by line.
type textWriter struct {
	out bytes.Buffer
	err error
}

func (w *textWriter) line(indent int, text string) {
	w.out.WriteString(strings.Repeat(" ", indent) + text + "\n")
}

func (w *textWriter) mapping(indent int, items yaml.MapSlice) {
	for _, item := range items {
		key := w.scalar(item.Key) + ":"
		switch v := item.Value.(type) {
		case yaml.MapSlice:
			if len(v) == 0 {
				w.line(indent, key+" {}")
				continue
			}
			w.line(indent, key)
			w.mapping(indent+2, v)
		case []yaml.MapSlice:
			w.line(indent, key)
			for _, entry := range v {
				w.entry(indent, entry)
			}
		case []string:
			w.texts(indent, key, v)
		case JSON:
			w.line(indent, key+" "+string(v))
		default:
			w.line(indent, key+" "+w.scalar(v))
		}
	}
}

// entry writes a map that is an entry of a list: its first line has the dash.
func (w *textWriter) entry(indent int, m yaml.MapSlice) {
	from := w.out.Len()
	w.mapping(indent+2, m)
	if w.out.Len() > from {
		w.out.Bytes()[from+indent] = '-'
	}
}

func (w *textWriter) texts(indent int, key string, list []string) {
	if len(list) == 0 {
		w.line(indent, key+" []")
		return
	}
	w.line(indent, key)
	for _, s := range list {
		w.line(indent, "- "+w.scalar(s))
	}
}

// plainText matches texts that need no quotes, unless they are YAML words.
var (
	plainText = regexp.MustCompile(`^([A-Za-z/][A-Za-z0-9_./-]*|[0-9]+M)$`)
	yamlWord  = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|y|n|null|nan|inf)$`)
)

func (w *textWriter) scalar(v any) string {
	if p, ok := v.(*string); ok {
		if p == nil {
			return "null"
		}
		v = *p
	}
	s, ok := v.(string)
	if !ok {
		return fmt.Sprint(v) // a number or a boolean
	}
	if plainText.MatchString(s) && !yamlWord.MatchString(s) {
		return s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil && w.err == nil {
		w.err = err
	}
	return strings.TrimSpace(b.String())
}

// FromPlain returns a plain value as a node at a line: the opposite of Plain.
func FromPlain(v any, line int) (*Node, error) {
	n := &Node{Line: line}
	switch v := v.(type) {
	case nil, bool, int64, uint64, float64, string:
		n.Value = v
	case int:
		n.Value = int64(v)
	case []any:
		n.Kind = List
		for _, i := range v {
			item, err := FromPlain(i, line)
			if err != nil {
				return nil, err
			}
			n.Items = append(n.Items, item)
		}
	case map[string]any:
		n.Kind = Map
		for _, k := range slices.Sorted(maps.Keys(v)) {
			value, err := FromPlain(v[k], line)
			if err != nil {
				return nil, err
			}
			n.Fields = append(n.Fields, Field{Name: k, Line: line, Value: value})
		}
	default:
		return nil, fmt.Errorf("has a value of type %T, which YAML does not support", v)
	}
	return n, nil
}

// ScalarText returns a scalar as text. It returns false for other values.
func ScalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int:
		return strconv.Itoa(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return "", false
		}
		if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
			return strconv.FormatFloat(v, 'g', -1, 64), true
		}
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}
