package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dewrun/dew/api/rest"
)

// descriptionChecker compares the requests and responses of all tests of this package with the API
// description.
type descriptionChecker struct {
	mux *http.ServeMux // only used to find patterns
	all map[string]rest.Shape

	mu       sync.Mutex // guards the fields below
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by their place in the description
	passed   map[[sha256.Size]byte]bool    // hashes of texts that were valid at a place
}

var theWitness = sync.OnceValues(func() (*descriptionChecker, error) {
	v := &descriptionChecker{mux: http.NewServeMux(), all: operations(), compiler: newCompiler(), schemas: map[string]*jsonschema.Schema{}, passed: map[[sha256.Size]byte]bool{}}
	for pattern := range v.all {
		v.mux.Handle(pattern, http.NotFoundHandler())
	}
	b, err := json.Marshal(rest.Document(publicURL, "1", description()))
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return v, v.compiler.AddResource("mem:description", doc)
})

// checkDescription wraps a handler so that all requests and responses are compared.
func checkDescription(t testing.TB, handler http.Handler) http.Handler {
	if _, test := t.(*testing.T); !test { // benchmarks must not be slowed down, and fuzzing can send invalid JSON
		return handler
	}
	v := must(theWitness())(t)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, recorded := w.(*httptest.ResponseRecorder)
		if !recorded { // the test reads the response as a stream
			handler.ServeHTTP(w, r)
			return
		}
		var sent bytes.Buffer
		if r.Body != nil {
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(r.Body, &sent), r.Body}
		}
		clone := r.Clone(r.Context())
		handler.ServeHTTP(w, r)
		if err := v.compare(clone, sent.Bytes(), got); err != nil {
			t.Errorf("%s %s is not as described: %v\n%.2000s", clone.Method, clone.URL, err, got.Body)
		}
	})
}

// compare returns an error if a request or its response does not match the description.
func (v *descriptionChecker) compare(r *http.Request, sent []byte, got *httptest.ResponseRecorder) error {
	_, pattern := v.mux.Handler(r)
	o, known := v.all[pattern]
	if !known || !strings.HasPrefix(pattern, r.Method+" ") { // no endpoint matches
		return nil
	}
	_, path, _ := strings.Cut(pattern, " ")
	place := []string{"paths", strings.TrimSuffix(path, "{$}"), strings.ToLower(r.Method)}
	if got.Code >= http.StatusBadRequest {
		if _, own := o.Responses[got.Code]; own && !strings.HasPrefix(got.Body.String(), `{"errors":`) { // an error with a shape of its own
			return v.check(got.Body.Bytes(), append(place, "responses", fmt.Sprint(got.Code), "content", rest.MediaJSON, "schema")...)
		}
		return v.check(got.Body.Bytes(), "components", "schemas", "Errors")
	}
	cs, ok := o.Responses[got.Code]
	switch {
	case !ok:
		return fmt.Errorf("nothing says that it answers %d", got.Code)
	case len(cs) == 0 && got.Body.Len() > 0:
		return fmt.Errorf("it has a body with status %d", got.Code)
	case o.Job && got.Code == http.StatusAccepted && !strings.HasPrefix(got.Header().Get("Location"), publicURL):
		return fmt.Errorf("Location = %q, want where the job is", got.Header().Get("Location"))
	case len(cs) > 0:
		kind, _, _ := strings.Cut(got.Header().Get("Content-Type"), ";")
		if err := v.checkContent(cs, kind, got.Body.Bytes(), append(place, "responses", fmt.Sprint(got.Code))); err != nil {
			return fmt.Errorf("the answer: %w", err)
		}
	}
	for name := range r.URL.Query() {
		if !o.HasParam(name) {
			return fmt.Errorf("nothing says that there is a query parameter %q", name)
		}
	}
	if len(o.Bodies) > 0 && o.Bodies[0].Of != nil {
		if err := v.check(sent, append(place, "requestBody", "content", rest.MediaJSON, "schema")...); err != nil {
			return fmt.Errorf("the request: %w: %s", err, sent)
		}
	}
	return nil
}

func (v *descriptionChecker) checkContent(cs []rest.Content, kind string, body []byte, place []string) error {
	for _, c := range cs {
		if c.Kind != kind {
			continue
		}
		if c.Of == nil {
			return nil
		}
		return v.check(body, append(place, "content", kind, "schema")...)
	}
	return fmt.Errorf("nothing says that it is %q", kind)
}

// check compares JSON with the schema at a place of the description. The same error
// response occurs thousands of times and is checked only once.
func (v *descriptionChecker) check(b []byte, place ...string) error {
	sum := sha256.Sum256(append([]byte(strings.Join(place, " ")+"\n"), b...))
	v.mu.Lock()
	passed := v.passed[sum]
	v.mu.Unlock()
	if passed {
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	s, err := v.schema(place)
	if err != nil {
		return err
	}
	if err := s.Validate(value); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.passed[sum] = true
	return nil
}

func (v *descriptionChecker) schema(place []string) (*jsonschema.Schema, error) {
	at := "mem:description#"
	for _, part := range place {
		at += "/" + pointerPart.Replace(part)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.schemas[at]; s != nil {
		return s, nil
	}
	s, err := v.compiler.Compile(at)
	if err == nil {
		v.schemas[at] = s
	}
	return s, err
}

func newCompiler() *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	return c
}

// pointerPart escapes a key for a JSON pointer in a URL.
var pointerPart = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
