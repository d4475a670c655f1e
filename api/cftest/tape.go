package cftest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha1" //nolint:gosec // the protocol's own choice
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Raw is an exchange as it went over the wire.
type Raw struct {
	Request  *http.Request // its body is in Body
	Body     []byte
	Status   int
	Header   http.Header
	Answered []byte
}

// bigFile is the size above which a pushed file is recorded as a stand-in.
const bigFile = 4 << 10

// Tape turns raw exchanges into recorded ones. It numbers resources in the order of
// appearance, over all commands.
type Tape struct {
	fixed  []namedText    // longest first
	random *regexp.Regexp // matches generated names
	ids    map[string]string
	counts map[string]int
	sums   map[string]filePlaceholder // by sha1 of big files
}

type namedText struct{ text, name string }

// filePlaceholder is the recorded replacement of a big file.
type filePlaceholder struct{ text, sum string }

// NewTape returns a Tape. random matches names that differ each time.
func NewTape(random string) *Tape {
	return &Tape{random: regexp.MustCompile(random), ids: map[string]string{}, counts: map[string]int{}, sums: map[string]filePlaceholder{}}
}

// Hide replaces a text by a placeholder from now on, such as an address, a folder or a
// password.
func (t *Tape) Hide(text, placeholder string) {
	t.fixed = append(t.fixed, namedText{text, placeholder})
	slices.SortStableFunc(t.fixed, func(a, b namedText) int { return cmp.Compare(len(b.text), len(a.text)) })
}

// Pushes registers a big file that is pushed, so that its checksums and sizes are
// replaced by those of its stand-in.
func (t *Tape) Pushes(name string, data []byte) {
	text := "stand-in for " + name + "\n"
	t.sums[sumOf(data)] = filePlaceholder{text: text, sum: sumOf([]byte(text))}
}

func sumOf(b []byte) string {
	sum := sha1.Sum(b) //nolint:gosec // the protocol's own choice
	return hex.EncodeToString(sum[:])
}

var (
	aGUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anID  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}\b`)
	aTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	aNano = regexp.MustCompile(`\b\d{19}\b`)
	aSum  = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
	// aTemporary matches the file names that the client generates.
	aTemporary = regexp.MustCompile(`^(cf-cli)-\d+$`)
	inPath     = regexp.MustCompile(`/v3/([a-z_]+)/([0-9a-f]{8}-[0-9a-f-]{27})`)
	inAccount  = regexp.MustCompile(`"(id|user_id)":\s*"([0-9a-f]{8}-[0-9a-f-]{27})"`)
)

// singular are the nouns whose singular is not formed by removing an s.
var singular = map[string]string{"processes": "process", "service_route_bindings": "route_binding"}

// learn names the guids of a response by the paths they occur in.
func (t *Tape) learn(raw string) {
	for _, m := range inAccount.FindAllStringSubmatch(raw, -1) {
		t.name(m[2], "user")
	}
	for _, m := range inPath.FindAllStringSubmatch(raw, -1) {
		t.name(m[2], cmp.Or(singular[m[1]], strings.TrimSuffix(m[1], "s")))
	}
}

func (t *Tape) name(id, kind string) string {
	if t.ids[id] == "" {
		t.counts[kind]++
		t.ids[id] = "$" + kind + strconv.Itoa(t.counts[kind])
	}
	return t.ids[id]
}

// Normal returns the text with placeholders.
func (t *Tape) Normal(s string) string {
	for _, p := range t.fixed {
		s = strings.ReplaceAll(s, p.text, p.name)
		s = strings.ReplaceAll(s, url.QueryEscape(p.text), p.name)
	}
	s = aGUID.ReplaceAllStringFunc(s, func(id string) string { return t.name(id, "guid") })
	s = anID.ReplaceAllString(s, "$$instance")
	s = t.random.ReplaceAllStringFunc(s, func(text string) string { return t.name(text, "random") })
	s = aTime.ReplaceAllString(s, "$$time")
	s = aSum.ReplaceAllString(s, "$$sum")
	return aNano.ReplaceAllStringFunc(s, func(n string) string {
		if n == "6795364578871345152" { // the client's value for the start of all logs
			return n
		}
		return "$number"
	})
}

func (t *Tape) normal(v any) any {
	switch v := v.(type) {
	case string:
		return t.Normal(v)
	case []any:
		for i := range v {
			v[i] = t.normal(v[i])
		}
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[t.Normal(k)] = t.normal(x)
		}
		return out
	}
	return v
}

// Record turns an exchange into its recorded form.
func (t *Tape) Record(r Raw) (Exchange, error) {
	path := r.Request.URL.RequestURI()
	t.learn(path)
	t.learn(r.Header.Get("Location"))
	t.learn(string(r.Answered))
	t.secrets(path, r.Answered)
	body, err := t.body(r)
	if err != nil {
		return Exchange{}, fmt.Errorf("cannot record the request %s %s: %w", r.Request.Method, path, err)
	}
	answered, err := Reduce(r.Request.Method, path, r.Status, r.Header.Get("Content-Type"), r.Answered)
	if err != nil {
		return Exchange{}, err
	}
	e := Exchange{Method: r.Request.Method, Path: t.Normal(stablePath(path)), Header: map[string]string{}, Body: body}
	for _, k := range []string{"Accept", "Content-Type", "Authorization"} {
		v := r.Request.Header.Get(k)
		if kind, _, err := mime.ParseMediaType(v); err == nil && kind == "multipart/form-data" {
			v = kind
		}
		if v != "" {
			e.Header[k] = t.Normal(v)
		}
	}
	e.Answer = Answer{Status: r.Status, Location: t.Normal(r.Header.Get("Location")), Body: t.normal(t.replaceSums(answered))}
	for _, w := range r.Header.Values("X-Cf-Warnings") {
		e.Answer.Warnings = append(e.Answer.Warnings, t.Normal(w))
	}
	return e, nil
}

// secrets hides secrets from the response that has them on, and the addresses of other
// servers.
func (t *Tape) secrets(path string, answered []byte) {
	var v struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
		Links   struct {
			SSH struct {
				Href string
				Meta struct {
					Fingerprint string `json:"host_key_fingerprint"`
				}
			} `json:"app_ssh"`
		}
	}
	if path != "/" && !strings.HasPrefix(path, "/uaa/oauth/token") || json.Unmarshal(answered, &v) != nil {
		return // an error response has none
	}
	inside := Claims(v.Access)
	jti, _ := inside["jti"].(string)
	if user, ok := inside["user_id"].(string); ok {
		t.name(user, "user")
	}
	for _, p := range []namedText{
		{v.Access, "token"}, {jti, "jti"}, {v.Refresh, "refresh"}, {v.Links.SSH.Href, "ssh"}, {v.Links.SSH.Meta.Fingerprint, "fingerprint"},
	} {
		if p.text != "" && t.ids[p.text] == "" {
			t.Hide(p.text, t.name(p.text, p.name))
		}
	}
}

// body returns the request's body as a value.
func (t *Tape) body(r Raw) (any, error) {
	if len(r.Body) == 0 {
		return nil, nil
	}
	kind, params, err := mime.ParseMediaType(r.Request.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	switch kind {
	case "multipart/form-data":
		return t.upload(multipart.NewReader(bytes.NewReader(r.Body), params["boundary"]))
	case "application/json":
		v, err := decode(r.Body)
		if err != nil {
			return t.Normal(string(r.Body)), nil //nolint:nilerr // a broken body is recorded as the text it is
		}
		return t.normal(t.replaceSums(v)), nil
	}
	return t.Normal(string(r.Body)), nil
}

// replaceSums replaces the checksums and sizes of big files by those of their
// stand-ins.
func (t *Tape) replaceSums(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = t.replaceSums(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = t.replaceSums(v[k])
		}
		sum, _ := v["checksum"].(map[string]any)
		value, _ := sum["value"].(string)
		if in, ok := t.sums[value]; ok {
			sum["value"], v["size_in_bytes"] = in.sum, json.Number(strconv.Itoa(len(in.text)))
		}
	}
	return v
}

// upload returns the parts of a form with files: the names of its values, and the
// contents of a zip.
func (t *Tape) upload(form *multipart.Reader) (any, error) {
	out := map[string]any{}
	for {
		p, err := form.NextPart()
		if err == io.EOF { //nolint:errorlint // that is how NextPart ends
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(p)
		if err != nil {
			return nil, err
		}
		if p.FileName() == "" {
			v, err := decode(b)
			if err != nil {
				return nil, err
			}
			out[p.FormName()] = t.normal(t.replaceSums(v))
			continue
		}
		files, err := t.unpack(b)
		if err != nil {
			return nil, err
		}
		out[p.FormName()] = map[string]any{"filename": aTemporary.ReplaceAllString(p.FileName(), "$1"), "files": files}
	}
}

// unpack returns the files of a zip, or of a tar compressed with gzip.
func (t *Tape) unpack(b []byte) (any, error) {
	if bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		return untar(b)
	}
	return t.unzip(b)
}

func untar(b []byte) (any, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF { //nolint:errorlint // that is how Next ends
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(io.LimitReader(r, bigFile))
		if err != nil {
			return nil, err
		}
		out[h.Name] = map[string]any{"mode": h.FileInfo().Mode().String(), "text": string(data)}
	}
}

// unzip returns the files of a zip: their mode and text.
func (t *Tape) unzip(b []byte) (any, error) {
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		if in, ok := t.sums[sumOf(data)]; ok {
			data = []byte(in.text)
		}
		if len(data) > bigFile {
			return nil, fmt.Errorf("%s has %d bytes: say Pushes, so that it gets a stand-in", f.Name, len(data))
		}
		out[f.Name] = map[string]any{"mode": f.Mode().String(), "text": string(data)}
	}
	return out, nil
}
