package smoke

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// answer is the response to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// verify returns an error if the response does not match the check.
func (h *HTTPCheck) verify(a answer) error {
	var wrong []error
	if !slices.Contains(h.Status, a.status) {
		wrong = append(wrong, fmt.Errorf("the status is %d, want %s", a.status, numbersText(h.Status)))
	}
	for _, name := range sortedKeys(h.Header) {
		if got, want := a.header.Get(name), h.Header[name]; !headerFits(got, want) {
			wrong = append(wrong, fmt.Errorf("the header %s is %q, want %q", name, shorten(got), want))
		}
	}
	wrong = append(wrong, h.Text.verify("the body", a.body))
	if len(h.JSON) > 0 {
		wrong = append(wrong, verifyJSON(h.JSON, a.body))
	}
	err := errors.Join(wrong...)
	if err == nil {
		return nil
	}
	return &mismatch{err: err, about: "the body is " + quoted(a.body)}
}

// headerFits compares a header. It ignores parameters such as charset if none are
// expected.
func headerFits(got, want string) bool {
	bare, _, _ := strings.Cut(got, ";")
	return got == want || !strings.Contains(want, ";") && strings.TrimSpace(bare) == want
}

// mismatch is the error for an unexpected value, with the whole value.
type mismatch struct {
	err   error
	about string
}

func (m *mismatch) Error() string {
	return strings.ReplaceAll(m.err.Error(), "\n", "; ") + ": " + m.about
}

func (m *mismatch) Unwrap() error { return m.err }

// verify returns an error if a text does not match. what names the text in the error.
func (t Text) verify(what, text string) error {
	var wrong []error
	for _, want := range t.Contains {
		if !strings.Contains(text, want) {
			wrong = append(wrong, fmt.Errorf("%s does not contain %q", what, want))
		}
	}
	if t.Equals != nil && strings.TrimRight(text, "\r\n") != strings.TrimRight(*t.Equals, "\r\n") {
		wrong = append(wrong, fmt.Errorf("%s is not %q", what, *t.Equals))
	}
	for _, re := range t.Matches {
		if !re.MatchString(text) {
			wrong = append(wrong, fmt.Errorf("%s does not match %s", what, re))
		}
	}
	return errors.Join(wrong...)
}

func verifyJSON(checks []JSONCheck, body string) error {
	doc, err := decodeJSON(body)
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	var wrong []error
	for _, c := range checks {
		wrong = append(wrong, c.verify(doc))
	}
	return errors.Join(wrong...)
}

// verify checks the value at a path. If the path matches several values, it checks their
// list.
func (c JSONCheck) verify(doc any) error {
	found := c.expr.Get(doc)
	var got any = found
	switch len(found) {
	case 0:
		return fmt.Errorf("%s does not exist in the body, want %s", c.Path, jsonText(c.Want))
	case 1:
		got = found[0]
	}
	if same(got, c.Want) {
		return nil
	}
	return fmt.Errorf("%s is %s, want %s", c.Path, jsonText(got), jsonText(c.Want))
}

// same compares values as in JSON: 1 and 1.0 are the same number.
func same(a, b any) bool {
	x, xerr := decodeJSON(jsonText(a))
	y, yerr := decodeJSON(jsonText(b))
	return xerr == nil && yerr == nil && reflect.DeepEqual(x, y)
}

// decodeJSON parses one document. Integers stay integers.
func decodeJSON(text string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("unexpected data after the JSON value")
	}
	return unNumber(v), nil
}

// unNumber converts numbers to Go types, for paths that compare them.
func unNumber(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		if i := int64(f); float64(i) == f {
			return i
		}
		return f
	case []any:
		for i := range v {
			v[i] = unNumber(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = unNumber(v[k])
		}
	}
	return v
}

func jsonText(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}

// verify compares an exit record with the expected one.
func (e ExitCheck) verify(description, reason string) error {
	var wrong []error
	if e.Description != "" && description != e.Description {
		wrong = append(wrong, fmt.Errorf("the exit record says %q, want %q", description, e.Description))
	}
	if e.Reason != "" && reason != e.Reason {
		wrong = append(wrong, fmt.Errorf("the exit record's reason is %q, want %q", reason, e.Reason))
	}
	return errors.Join(wrong...)
}

func numbersText(all []int) string {
	texts := make([]string, len(all))
	for i, n := range all {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, " or ")
}

// quoted returns a text quoted for a message.
func quoted(s string) string {
	const most = 300
	if s == "" {
		return `""`
	}
	if r := []rune(s); len(r) > most {
		return strconv.Quote(string(r[:most])) + "…"
	}
	return strconv.Quote(s)
}

// quotedEnd returns the last part of a text, quoted for a message.
func quotedEnd(s string) string {
	const most = 200
	if r := []rune(s); len(r) > most {
		return "…" + strconv.Quote(string(r[len(r)-most:]))
	}
	return quoted(s)
}
