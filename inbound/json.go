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
	// ErrSyntax says that a body is not JSON.
	ErrSyntax = errors.New("invalid JSON")
	// ErrUTF8 says that a text is not UTF-8. encoding/json and others would put U+FFFD
	// in the place of what they cannot read, so that two names become one.
	ErrUTF8 = errors.New("invalid UTF-8")
	// ErrDuplicateKey says that an object has two values for one key. encoding/json
	// takes the last one, other programs the first.
	ErrDuplicateKey = errors.New("duplicate key")
)

// strict reads as encoding/json does, but refuses duplicate keys and invalid UTF-8,
// including \u escapes that are no character. encoding/json matches the fields of a
// struct without regard to case, so "name" and "NAME" are duplicates there. In a map
// they are two keys.
var strict = json.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsonv1.ReportErrorsWithLegacySemantics(false), // they say more about the syntax
	jsontext.AllowDuplicateNames(false),
	jsontext.AllowInvalidUTF8(false),
)

// JSON checks a body that encoding/json is about to decode into v, a pointer. It
// changes neither. The error is ErrSyntax, ErrUTF8 or ErrDuplicateKey; values of the
// wrong type are left to the decoder.
func JSON(raw []byte, v any) error {
	err := json.Unmarshal(raw, reflect.New(reflect.TypeOf(v).Elem()).Interface(), strict)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*jsontext.SyntacticError](err); !ok {
		err = text(raw) // a wrong type was in the way of the rest
	}
	return refusal(raw, err)
}

// text checks one JSON value without regard to types.
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

// refusal is what is wrong with the syntax, or nil.
func refusal(raw []byte, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jsontext.ErrDuplicateName):
		if at, ok := errors.AsType[*jsontext.SyntacticError](err); ok && at.JSONPointer != "" {
			return fmt.Errorf("%w %q", ErrDuplicateKey, at.JSONPointer.LastToken())
		}
		return ErrDuplicateKey
	case stdjson.Valid(raw): // which does not look at the encoding
		return ErrUTF8
	}
	return ErrSyntax
}

// URL checks that the path of a request and the parameters behind it are UTF-8.
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

// Shorten keeps a text that a client sent from filling an answer or a log.
func Shorten(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
