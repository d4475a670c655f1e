package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/droplet/stack"
)

// badInputServer is a org server for tests with bad input. It changes only through requests, because
// all its loops are stopped.
type badInputServer struct {
	*orgServer
	t      testing.TB
	doc    rest.Object
	before []byte // content of the store file
	made   int    // number of generated names
}

func newBadInputServer(t testing.TB, h *orgServer) *badInputServer {
	t.Helper()
	for _, stop := range h.stops {
		stop()
	}
	h.local = h.s.Local() // bad requests do not match the description
	u := &badInputServer{orgServer: h, t: t, doc: plainCopy(t, rest.Document(publicURL, "1", description()))}
	u.before = u.store()
	h.guids["/v3/stacks/"] = stack.GUID("host")
	for _, noun := range []string{"buildpacks", "organization_quotas", "security_groups", "isolation_segments"} {
		var made v3.GUID
		got := u.request("POST", "/v3/"+noun, string(must(json.Marshal(u.good("POST /v3/"+noun)))(t)))
		if err := json.Unmarshal(got.Body.Bytes(), &made); err != nil || got.Code != http.StatusCreated {
			t.Fatalf("POST /v3/%s = %d %s", noun, got.Code, got.Body)
		}
		h.guids["/v3/"+noun+"/"] = made.GUID
	}
	u.before = u.store()
	return u
}

// file returns the path of the store file. Only requests write to it.
func (u *badInputServer) file() string { return filepath.Join(filepath.Dir(u.c.UploadDir), "dew.db") }

func (u *badInputServer) store() []byte {
	u.t.Helper()
	return must(os.ReadFile(u.file()))(u.t)
}

// written reports whether the store was written since before: every transaction writes
// its number at the start of the file.
func (u *badInputServer) written() bool {
	u.t.Helper()
	f := must(os.Open(u.file()))(u.t)
	defer func() { _ = f.Close() }()
	head := make([]byte, min(8<<10, len(u.before)))
	must(io.ReadFull(f, head))(u.t)
	return !bytes.HasPrefix(u.before, head)
}

// endingRecorder records a response and ends a stream at its first part.
type endingRecorder struct {
	*httptest.ResponseRecorder
	cancel context.CancelFunc
}

func (r endingRecorder) Flush() {
	r.ResponseRecorder.Flush()
	r.cancel()
}

// try sends a request that can be invalid in any way. The response must not be a server
// error, and a refused request must change nothing.
func (u *badInputServer) try(what, method, path string, body []byte) int {
	u.t.Helper()
	r := httptest.NewRequest(method, "/", bytes.NewReader(body))
	r.URL = must(url.Parse(path))(u.t)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	got := endingRecorder{httptest.NewRecorder(), cancel}
	u.local.ServeHTTP(got, r.WithContext(ctx))
	if got.Code >= http.StatusInternalServerError {
		u.t.Errorf("%s: %s %.300s %.300q = %d %s", what, method, path, body, got.Code, got.Body)
	}
	if !u.written() {
		return got.Code
	}
	after := u.store()
	if got.Code >= http.StatusBadRequest {
		if diff := cmp.Diff(u.dump(u.before), u.dump(after)); diff != "" {
			u.t.Errorf("%s: %s %.300s %.300q = %d %s, and the store has changed (-before +after):\n%.2000s",
				what, method, path, body, got.Code, got.Body, diff)
		}
	}
	u.before = after
	return got.Code
}

// dump returns the whole content of a store, by bucket and key.
func (u *badInputServer) dump(file []byte) map[string]string {
	u.t.Helper()
	path := filepath.Join(u.t.TempDir(), "copy.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		u.t.Fatal(err)
	}
	db := must(bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true}))(u.t)
	defer func() { _ = db.Close() }()
	out := map[string]string{}
	var walk func(prefix string, b *bbolt.Bucket) error
	walk = func(prefix string, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if inner := b.Bucket(k); inner != nil {
				return walk(prefix+"/"+string(k), inner)
			}
			out[prefix+"/"+string(k)] = string(v)
			return nil
		})
	}
	err := db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walk(string(name), b) })
	})
	if err != nil {
		u.t.Fatal(err)
	}
	return out
}

// place returns the method and the path for a pattern.
func (u *badInputServer) place(pattern string) (method, path string) {
	u.t.Helper()
	method, path = u.methodAndPath(u.t, pattern)
	return method, strings.NewReplacer("/feature_flags/ssh", "/feature_flags/diego_docker", "/environment_variable_groups/ssh", "/environment_variable_groups/running").Replace(path)
}

// good returns a valid body for an endpoint, from goodBodies or generated from the
// description. Its names are new.
func (u *badInputServer) good(pattern string) any {
	u.t.Helper()
	text, known := goodBodies[pattern]
	if !known {
		return u.sample(u.schemaAt(pattern), []string{""})
	}
	var v any
	if err := json.Unmarshal([]byte(u.fill(text)), &v); err != nil {
		u.t.Fatalf("the good body of %s is bad: %v", pattern, err)
	}
	return v
}

// fill replaces the placeholders in a text with GUIDs of the org server and a new name.
func (u *badInputServer) fill(text string) string {
	u.made++
	words := []string{"META", `{"labels":{"a":"b"},"annotations":{"a":null}}`, "NEW", "new-" + strconv.Itoa(u.made)}
	for _, noun := range slices.Sorted(maps.Keys(u.guids)) {
		words = append(words, "<"+noun+">", u.guids[noun])
	}
	return strings.NewReplacer(words...).Replace(text)
}

// schemaAt returns the schema of an endpoint's body, or nil if the endpoint reads no
// JSON.
func (u *badInputServer) schemaAt(pattern string) rest.Object {
	method, path, _ := strings.Cut(pattern, " ")
	op := u.doc["paths"].(rest.Object)[strings.TrimSuffix(path, "{$}")].(rest.Object)[strings.ToLower(method)].(rest.Object)
	body, ok := op["requestBody"].(rest.Object)
	if !ok {
		return nil
	}
	kind, ok := body["content"].(rest.Object)[rest.MediaJSON].(rest.Object)
	if !ok {
		return nil
	}
	return kind["schema"].(rest.Object)
}

// sample generates a value for a schema at a path of keys. It uses GUIDs of the org server.
func (u *badInputServer) sample(schema rest.Object, at []string) any {
	if ref, ok := schema["$ref"].(string); ok {
		return u.sample(u.doc["components"].(rest.Object)["schemas"].(rest.Object)[ref[strings.LastIndex(ref, "/")+1:]].(rest.Object), at)
	}
	if choices, ok := schema["anyOf"].([]any); ok {
		return u.sample(choices[0].(rest.Object), at)
	}
	switch schema["type"] {
	case "object":
		out := rest.Object{}
		properties, _ := schema["properties"].(rest.Object)
		for name, s := range properties {
			out[name] = u.sample(s.(rest.Object), append(slices.Clone(at), name))
		}
		if more, ok := schema["additionalProperties"].(rest.Object); ok {
			out["key"] = u.sample(more, append(slices.Clone(at), "key"))
		}
		return out
	case "array":
		return []any{u.sample(schema["items"].(rest.Object), at)}
	case "integer", "number":
		return 64
	case "boolean":
		return true
	case "string":
		return u.word(at)
	}
	return rest.Object{"key": "value"}
}

// word returns a text that is likely valid at a path of keys.
func (u *badInputServer) word(at []string) string {
	last := at[len(at)-1]
	if last == "guid" {
		for _, noun := range at {
			for known, guid := range u.guids {
				if strings.EqualFold(strings.ReplaceAll(known, " ", "_"), noun) || known == "/v3/"+noun+"s/" {
					return guid
				}
			}
		}
	}
	if good, ok := map[string]string{
		"stack": "host", "strategy": "rolling", "signal": "TERM", "url": "https://x.example.com", "protocol": "http1", "endpoint": "/",
		"username": "somebody", "origin": "uaa", "droplet_guid": u.guids["Droplet"], "method": "GET", "href": "https://x.example.com",
		"user": "vcap", "key": "value",
	}[last]; ok {
		return good
	}
	u.made++
	return "new-" + strconv.Itoa(u.made)
}
