package cftest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime/multipart"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Bindings are the values of a recording's placeholders in this run.
type Bindings struct{ values map[string]string }

// NewBindings returns empty Bindings.
func NewBindings() *Bindings { return &Bindings{values: map[string]string{}} }

// Set sets the value of a placeholder.
func (b *Bindings) Set(placeholder, value string) { b.values[placeholder] = value }

func (b *Bindings) clone() *Bindings { return &Bindings{values: maps.Clone(b.values)} }

var (
	placeholder = regexp.MustCompile(`\$(url|host|dir|start|time|number|instance|sum|password-[a-z]+|[a-z_]+[0-9]+)`)
	anything    = map[string]bool{"$time": true, "$number": true, "$instance": true, "$sum": true, "$start": true}
)

// Fill returns the text with its placeholders replaced by their values.
func (b *Bindings) Fill(s string) (string, error) {
	var errs []error
	out := placeholder.ReplaceAllStringFunc(s, func(name string) string {
		v, known := b.values[name]
		if name == "$start" {
			return "1"
		}
		if !known {
			errs = append(errs, fmt.Errorf("no answer has told what %s is", name))
		}
		return v
	})
	return out, errors.Join(errs...)
}

func (b *Bindings) fill(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case string:
		return b.Fill(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			if out[i], err = b.fill(v[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			if k, err = b.Fill(k); err != nil {
				return nil, err
			}
			if out[k], err = b.fill(x); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// Request returns the recorded request as it must be sent to the server at base.
func (b *Bindings) Request(base string, e Exchange) (*http.Request, error) {
	path, err := b.Fill(e.Path)
	if err != nil {
		return nil, err
	}
	body, contentType, err := b.body(e)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequest(e.Method, base+path, bytes.NewReader(body)) //nolint:noctx // the caller gives it one
	if err != nil {
		return nil, err
	}
	for k, v := range e.Header {
		if v, err = b.Fill(v); err != nil {
			return nil, err
		}
		r.Header.Set(k, v)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r, nil
}

// body returns the request's body, and its content type if that is created with it.
func (b *Bindings) body(e Exchange) (body []byte, contentType string, err error) {
	v, err := b.fill(e.Body)
	if err != nil || v == nil {
		return nil, "", err
	}
	if parts, ok := v.(map[string]any); ok && e.Header["Content-Type"] == "multipart/form-data" {
		return form(parts)
	}
	if s, ok := v.(string); ok {
		return []byte(s), "", nil
	}
	body, err = json.Marshal(v)
	return body, "", err
}

// form returns the parts of an upload as the client sends them: values first.
func form(parts map[string]any) (body []byte, contentType string, err error) {
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for _, name := range slices.SortedFunc(maps.Keys(parts), func(a, b string) int { return strings.Compare(b, a) }) {
		if err := part(w, name, parts[name]); err != nil {
			return nil, "", err
		}
	}
	err = w.Close()
	return buf.Bytes(), w.FormDataContentType(), err
}

func part(w *multipart.Writer, name string, v any) error {
	file, ok := v.(map[string]any)
	if !ok {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return w.WriteField(name, string(text))
	}
	filename, _ := file["filename"].(string)
	files, _ := file["files"].(map[string]any)
	p, err := w.CreateFormFile(name, filename)
	if err != nil {
		return err
	}
	if strings.HasSuffix(filename, ".tgz") {
		return tarred(p, files)
	}
	return zipped(p, files)
}

func tarred(out io.Writer, files map[string]any) error {
	z := gzip.NewWriter(out)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, _ := files[name].(map[string]any)
		mode, _ := f["mode"].(string)
		text, _ := f["text"].(string)
		h := &tar.Header{Name: name, Mode: int64(fileMode(mode).Perm()), Size: int64(len(text)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), z.Close())
}

func zipped(out io.Writer, files map[string]any) error {
	z := zip.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, _ := files[name].(map[string]any)
		mode, _ := f["mode"].(string)
		text, _ := f["text"].(string)
		h := &zip.FileHeader{Name: name}
		h.SetMode(fileMode(mode))
		w, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return z.Close()
}

// fileMode parses the output of fs.FileMode.String.
func fileMode(s string) fs.FileMode {
	var m fs.FileMode
	for i, c := range []byte(s[max(0, len(s)-9):]) {
		if c != '-' {
			m |= 1 << (8 - i)
		}
	}
	if strings.HasPrefix(s, "d") {
		m |= fs.ModeDir
	}
	if strings.HasPrefix(s, "L") {
		m |= fs.ModeSymlink
	}
	return m
}

// Match reports how a response differs from the recorded one. It stores the values of
// new placeholders and compares those of known ones. If the responses differ, it stores
// nothing.
func (b *Bindings) Match(want, got Answer) error {
	try := b.clone()
	if want.Status != got.Status {
		return fmt.Errorf("status %d, recorded %d; body %s", got.Status, want.Status, show(got.Body))
	}
	if err := try.matchString(want.Location, got.Location); err != nil {
		return fmt.Errorf("the Location: %w", err)
	}
	if err := try.match("", texts(want.Warnings), texts(got.Warnings)); err != nil {
		return fmt.Errorf("warnings: %w", err)
	}
	if err := try.match("", want.Body, got.Body); err != nil {
		return fmt.Errorf("%w\ngot      %s\nrecorded %s", err, show(got.Body), show(want.Body))
	}
	b.values = try.values
	return nil
}

// same is Match for whole exchanges.
func (b *Bindings) same(want, got Exchange) error {
	if want.Method != got.Method {
		return fmt.Errorf("%s %s, recorded %s %s", got.Method, got.Path, want.Method, want.Path)
	}
	if err := b.matchString(want.Path, got.Path); err != nil {
		return err
	}
	if err := b.match("", want.Body, got.Body); err != nil {
		return fmt.Errorf("%s %s: request: %w\ngot      %s\nrecorded %s", got.Method, got.Path, err, show(got.Body), show(want.Body))
	}
	if err := b.Match(want.Answer, got.Answer); err != nil {
		return fmt.Errorf("%s %s: %w", got.Method, got.Path, err)
	}
	return nil
}

func texts(ss []string) any {
	out := []any{}
	for _, s := range ss {
		out = append(out, s)
	}
	return out
}

func show(v any) string {
	s, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(s)
}

func (b *Bindings) match(at string, want, got any) error {
	switch w := want.(type) {
	case map[string]any:
		return b.matchObject(at, w, got)
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Errorf("%s: %d items wanted, got %s", at, len(w), show(got))
		}
		for i := range w {
			if err := b.match(fmt.Sprintf("%s[%d]", at, i), w[i], g[i]); err != nil {
				return err
			}
		}
		return nil
	case string:
		return b.matchText(at, w, got)
	}
	if show(want) != show(got) {
		return fmt.Errorf("%s: %s, recorded %s", at, show(got), show(want))
	}
	return nil
}

func (b *Bindings) matchObject(at string, want map[string]any, got any) error {
	g, ok := got.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: %s is no object", at, show(got))
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		v, there := g[k]
		if !there {
			return fmt.Errorf("%s.%s is missing", at, k)
		}
		if err := b.match(at+"."+k, want[k], v); err != nil {
			return err
		}
	}
	// For an instance in transition, only the transition was recorded.
	if state, _ := want["state"].(string); strings.Contains(state, "|") {
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(g)) {
		if _, there := want[k]; !there {
			return fmt.Errorf("%s.%s was not recorded: %s", at, k, show(g[k]))
		}
	}
	return nil
}

func (b *Bindings) matchText(at, want string, got any) error {
	if _, number := got.(json.Number); number && want == "$number" {
		return nil
	}
	g, ok := got.(string)
	if !ok {
		return fmt.Errorf("%s: %s, recorded %q", at, show(got), want)
	}
	if ways := strings.Split(want, "|"); strings.HasSuffix(at, ".state") && len(ways) > 1 {
		// In the same transition both times, or finished now.
		if g == want || slices.Contains(ways, g) || slices.ContainsFunc(ways, func(w string) bool { return slices.Contains(strings.Split(g, "|"), w) }) {
			return nil
		}
	}
	if err := b.matchString(want, g); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// matchString compares a text with a recorded one that has placeholders.
func (b *Bindings) matchString(want, got string) error {
	names := placeholder.FindAllString(want, -1)
	if len(names) == 0 {
		if want != got {
			return fmt.Errorf("%q, recorded %q", got, want)
		}
		return nil
	}
	if names[0] == want && !b.isBound(want) && got != "" {
		b.values[want] = got
		return nil
	}
	if plain, err := b.Fill(want); err == nil && plain == got && !slices.ContainsFunc(names, func(n string) bool { return anything[n] }) {
		return nil
	}
	var form strings.Builder
	for i, text := range placeholder.Split(want, -1) {
		form.WriteString(regexp.QuoteMeta(text))
		if i >= len(names) {
			break
		}
		if b.isBound(names[i]) {
			form.WriteString("(" + regexp.QuoteMeta(b.values[names[i]]) + ")")
		} else {
			form.WriteString("(.+?)")
		}
	}
	re, err := regexp.Compile(`(?s)^` + form.String() + `$`)
	if err != nil {
		return fmt.Errorf("%q cannot be compared: %w", want, err)
	}
	m := re.FindStringSubmatch(got)
	if m == nil {
		return fmt.Errorf("%q, recorded %q (%s)", got, want, b.known(names))
	}
	for i, name := range names {
		if was, known := b.values[name]; known && !anything[name] && was != m[i+1] {
			return fmt.Errorf("%q, recorded %q: %s is %s", got, want, name, was)
		}
		b.values[name] = m[i+1]
	}
	return nil
}

// isBound reports whether a placeholder stands for one value that is already known.
func (b *Bindings) isBound(name string) bool {
	_, known := b.values[name]
	return known && !anything[name]
}

func (b *Bindings) known(names []string) string {
	var out []string
	for _, n := range names {
		if v, ok := b.values[n]; ok && !anything[n] {
			out = append(out, n+" is "+v)
		}
	}
	return strings.Join(out, ", ")
}
