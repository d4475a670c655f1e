package versions

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// errNoKey says that a JSON document does not have a key.
var errNoKey = errors.New("no such key")

// jsonText finds the text at a path of keys in a JSON document, and its line. The last
// of equal keys counts, as for most readers.
func jsonText(text string, path ...string) (value string, line int, err error) {
	dec := json.NewDecoder(strings.NewReader(text))
	if !json.Valid([]byte(text)) {
		return "", 0, errors.New("the file is not JSON")
	}
	err = errNoKey
	if first, _ := dec.Token(); first != json.Delim('{') {
		return "", 0, errors.New("the file is not a JSON object")
	}
	f := finder{dec: dec, text: text}
	if bad := f.object(path); bad != nil {
		return "", f.line, bad
	}
	if !f.found {
		return "", 0, err
	}
	return f.value, f.line, nil
}

type finder struct {
	dec   *json.Decoder
	text  string
	value string
	line  int
	found bool
}

// object reads an object after its opening brace. path is nil outside of the path.
func (f *finder) object(path []string) error {
	for f.dec.More() {
		key, err := f.dec.Token()
		if err != nil {
			return err
		}
		var rest []string
		on := len(path) > 0 && key == path[0]
		if on {
			rest, f.found = path[1:], false
		}
		if err := f.entry(rest, on); err != nil {
			return err
		}
	}
	_, err := f.dec.Token()
	return err
}

// entry reads the value of a key.
func (f *finder) entry(rest []string, on bool) error {
	if !on || len(rest) > 0 {
		return f.nested(rest)
	}
	var v any
	if err := f.dec.Decode(&v); err != nil {
		return err
	}
	f.line = 1 + strings.Count(f.text[:f.dec.InputOffset()], "\n")
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("the value must be text in quotes")
	}
	f.value, f.found = s, true
	return nil
}

// nested reads a value in which the rest of the path can be.
func (f *finder) nested(rest []string) error {
	if len(rest) == 0 {
		var skip json.RawMessage
		return f.dec.Decode(&skip)
	}
	first, err := f.dec.Token()
	if err != nil {
		return err
	}
	switch first {
	case json.Delim('{'):
		return f.object(rest)
	case json.Delim('['):
		for f.dec.More() {
			var skip json.RawMessage
			if err := f.dec.Decode(&skip); err != nil {
				return err
			}
		}
		_, err := f.dec.Token()
		return err
	}
	return nil
}
