package inbound

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

var (
	// ErrSyntax means that a body is not JSON.
	ErrSyntax = errors.New("invalid JSON")
	// ErrUTF8 means that a text is not UTF-8. encoding/json and others would replace
	// invalid bytes with U+FFFD, so that two names become equal.
	ErrUTF8 = errors.New("invalid UTF-8")
	// ErrDuplicateKey means that an object has two values for one key. encoding/json
	// uses the last one, other programs the first.
	ErrDuplicateKey = errors.New("duplicate key")
)

// strict decodes like encoding/json, but refuses duplicate keys and invalid UTF-8,
// including \u escapes that are not characters. encoding/json matches the fields of a
// struct ignoring case, so "name" and "NAME" are duplicates there. In a map they are
// two keys.
var strict = json.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsonv1.ReportErrorsWithLegacySemantics(false), // they have more details about the syntax
	jsontext.AllowDuplicateNames(false),
	jsontext.AllowInvalidUTF8(false),
)

// JSON checks a body that encoding/json will decode into v, a pointer. It changes
// neither. The error is ErrSyntax, ErrUTF8 or ErrDuplicateKey; values of the wrong type
// are left to the decoder.
func JSON(raw []byte, v any) error {
	err := json.Unmarshal(raw, reflect.New(reflect.TypeOf(v).Elem()).Interface(), strict)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*jsontext.SyntacticError](err); !ok {
		err = text(raw) // a wrong type prevented the check of the rest
	}
	return refusal(raw, err)
}

// text checks one JSON value and ignores types.
func text(raw []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	if err := d.SkipValue(); err != nil {
		return err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return ErrSyntax
	}
	return nil
}

// refusal returns the error in the syntax, or nil.
func refusal(raw []byte, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jsontext.ErrDuplicateName):
		if at, ok := errors.AsType[*jsontext.SyntacticError](err); ok && at.JSONPointer != "" {
			return fmt.Errorf("%w %q", ErrDuplicateKey, at.JSONPointer.LastToken())
		}
		return ErrDuplicateKey
	case stdjson.Valid(raw): // Valid does not check the encoding
		return ErrUTF8
	}
	return ErrSyntax
}

// URL checks that the path and the query parameters of a request are UTF-8.
func URL(u *url.URL) error {
	if !utf8.ValidString(u.Path) {
		return fmt.Errorf("the path has %w", ErrUTF8)
	}
	for name, values := range u.Query() {
		if !utf8.ValidString(name) || slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
			return fmt.Errorf("parameter %q has %w", name, ErrUTF8)
		}
	}
	return nil
}

// Shorten truncates a client's text, so that it cannot fill a response or a log.
func Shorten(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
