// Package servicestest provides a service broker for tests. It implements the Open
// Service Broker API 2.17 and records requests, instances and bindings. Tests can make
// it fail or violate the specification.
package servicestest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// The kinds of requests.
const (
	Catalog     = "catalog"
	Provision   = "provision"
	Update      = "update"
	Deprovision = "deprovision"
	Bind        = "bind"
	Unbind      = "unbind"
	Last        = "last_operation"
	Fetch       = "fetch"
)

// Behaviour is how the broker handles a kind of request. With the zero value it handles
// the request correctly.
type Behaviour struct {
	Times    int  // how often, before the next Behaviour is used; 0: always
	Async    int  // responds 202, and stays in progress for this number of polls
	Fails    bool // reports a failure afterwards
	NoEffect bool // does not change anything, whatever it responds
	Status   int  // the status of the response (0: the correct one)
	Body     string
	Header   map[string]string
	Hang     bool // never responds
	Drop     bool // closes the connection without a response
}

// Request is a request that the broker received.
type Request struct {
	Kind   string
	Method string
	Path   string
	Query  map[string][]string
	Header http.Header
	Body   json.RawMessage
}

// Broker is a service broker. Create one with New.
type Broker struct {
	Username, Password string

	mu        sync.Mutex
	catalog   string                 // guarded by mu, like all fields below
	does      map[string][]Behaviour // by kind
	instances map[string]bool        // guids of existing instances
	bindings  map[string]string      // credentials by guid
	pending   map[string]*inProgress // by path of the resource
	requests  []Request
}

type inProgress struct {
	polls   int
	fails   bool
	deletes bool // a delete
}

// New returns a broker with this catalog (JSON).
func New(catalog string) *Broker {
	return &Broker{
		Username: "user", Password: "pass", catalog: catalog,
		does: map[string][]Behaviour{}, instances: map[string]bool{}, bindings: map[string]string{}, pending: map[string]*inProgress{},
	}
}

// On sets how the broker handles a kind of request from now on. Several behaviours
// apply one after the other; the last one stays in effect.
func (b *Broker) On(kind string, does ...Behaviour) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.does[kind] = does
}

// SetCatalog replaces the catalog.
func (b *Broker) SetCatalog(catalog string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.catalog = catalog
}

// Instances returns the guids of all instances, sorted.
func (b *Broker) Instances() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.instances))
}

// Bindings returns the guids of all bindings, sorted.
func (b *Broker) Bindings() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.bindings))
}

// Requests returns the received requests of a kind, or all requests for "".
func (b *Broker) Requests(kind string) []Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.requests), func(r Request) bool { return kind != "" && r.Kind != kind })
}

// Client returns a client that sends every request to this broker without a network. It
// works in virtual time.
func (b *Broker) Client() *http.Client { return &http.Client{Transport: transport{b}} }

type transport struct{ to http.Handler }

// RoundTrip passes the request to the handler.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	rec, done := httptest.NewRecorder(), make(chan error, 1)
	in := r.Clone(r.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	go func() {
		defer func() {
			if recover() != nil {
				done <- io.ErrUnexpectedEOF
			}
		}()
		t.to.ServeHTTP(rec, in)
		done <- nil
	}()
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case err := <-done:
		if err != nil {
			return nil, err
		}
		return rec.Result(), nil
	}
}

// ServeHTTP handles a request.
func (b *Broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, ok := kindOf(r)
	user, password, _ := r.BasicAuth()
	switch {
	case !ok:
		http.Error(w, `{}`, http.StatusNotFound)
		return
	case user != b.Username || password != b.Password:
		http.Error(w, `{}`, http.StatusUnauthorized)
		return
	case r.Header.Get("X-Broker-API-Version") == "":
		http.Error(w, `{"description": "no version"}`, http.StatusPreconditionFailed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	status, answer, does := b.handle(kind, r, body)
	switch {
	case does.Hang:
		<-r.Context().Done()
		return
	case does.Drop:
		panic(http.ErrAbortHandler)
	}
	for k, v := range does.Header {
		w.Header().Set(k, v)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer) // the client has disconnected
}

// kindOf returns the kind of a request.
func kindOf(r *http.Request) (string, bool) {
	path := strings.TrimPrefix(r.URL.Path, "/v2/")
	if path == "catalog" {
		return Catalog, r.Method == http.MethodGet
	}
	parts := strings.Split(path, "/")
	if parts[0] != "service_instances" {
		return "", false
	}
	if parts[len(parts)-1] == "last_operation" {
		return Last, r.Method == http.MethodGet
	}
	bind := len(parts) == 4
	kinds := map[string]string{
		http.MethodPut: Provision, http.MethodPatch: Update, http.MethodDelete: Deprovision, http.MethodGet: Fetch,
	}
	if bind {
		kinds = map[string]string{http.MethodPut: Bind, http.MethodDelete: Unbind, http.MethodGet: Fetch}
	}
	kind, ok := kinds[r.Method]
	return kind, ok
}

// handle records a request, handles it and returns the response.
func (b *Broker) handle(kind string, r *http.Request, body []byte) (int, string, Behaviour) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests = append(b.requests, Request{
		Kind: kind, Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Header: r.Header.Clone(), Body: body,
	})
	does := b.next(kind)
	status, answer := http.StatusOK, "{}"
	if !does.NoEffect {
		status, answer = b.apply(kind, r.URL.Path, does)
	}
	if does.Status != 0 {
		status = does.Status
	}
	if does.Body != "" {
		answer = does.Body
	}
	return status, answer, does
}

// next returns the behaviour for the request.
func (b *Broker) next(kind string) Behaviour {
	all := b.does[kind]
	if len(all) == 0 {
		return Behaviour{}
	}
	first := all[0]
	if first.Times > 0 {
		if all[0].Times--; all[0].Times == 0 {
			b.does[kind] = all[1:]
		}
	}
	return first
}

// apply handles the request. Repeating a request has no further effect.
func (b *Broker) apply(kind, path string, does Behaviour) (int, string) {
	guid := path[strings.LastIndex(path, "/")+1:]
	switch kind {
	case Catalog:
		return http.StatusOK, b.catalog
	case Last:
		return b.poll(strings.TrimSuffix(path, "/last_operation"))
	case Fetch:
		return b.fetch(path, guid)
	case Deprovision, Unbind:
		return b.remove(path, guid, does)
	}
	status := http.StatusCreated
	if b.instances[guid] || b.bindings[guid] != "" || kind == Update {
		status = http.StatusOK
	}
	answer := `{"dashboard_url": "http://broker.example/` + guid + `"}`
	if kind == Bind {
		b.bindings[guid] = fmt.Sprintf(`{"username": "u-%s", "password": "secret"}`, guid)
		answer = `{"credentials": ` + b.bindings[guid] + `}`
	} else {
		b.instances[guid] = true
	}
	if running := b.pending[path]; running != nil && !running.deletes {
		return http.StatusAccepted, `{"operation": "` + kind + `"}`
	}
	if does.Async > 0 && status == http.StatusCreated || does.Async > 0 && kind == Update {
		b.pending[path] = &inProgress{polls: does.Async, fails: does.Fails}
		return http.StatusAccepted, `{"operation": "` + kind + `"}`
	}
	return status, answer
}

func (b *Broker) remove(path, guid string, does Behaviour) (int, string) {
	if running := b.pending[path]; running != nil && running.deletes {
		return http.StatusAccepted, `{"operation": "delete"}`
	}
	if !b.instances[guid] && b.bindings[guid] == "" {
		return http.StatusGone, "{}"
	}
	if does.Async > 0 {
		b.pending[path] = &inProgress{polls: does.Async, fails: does.Fails, deletes: true}
		return http.StatusAccepted, `{"operation": "delete"}`
	}
	delete(b.instances, guid)
	delete(b.bindings, guid)
	delete(b.pending, path)
	return http.StatusOK, "{}"
}

// poll returns the response to a poll.
func (b *Broker) poll(path string) (int, string) {
	guid := path[strings.LastIndex(path, "/")+1:]
	running := b.pending[path]
	if running == nil {
		if b.instances[guid] || b.bindings[guid] != "" {
			return http.StatusOK, `{"state": "succeeded"}`
		}
		return http.StatusGone, "{}"
	}
	if running.polls > 0 {
		running.polls--
		return http.StatusOK, fmt.Sprintf(`{"state": "in progress", "description": "%d to go"}`, running.polls)
	}
	delete(b.pending, path)
	if running.fails {
		return http.StatusOK, `{"state": "failed", "description": "no room"}`
	}
	if running.deletes {
		delete(b.instances, guid)
		delete(b.bindings, guid)
	}
	return http.StatusOK, `{"state": "succeeded", "description": "made"}`
}

func (b *Broker) fetch(path, guid string) (int, string) {
	if b.pending[path] != nil {
		return http.StatusNotFound, `{"description": "not yet"}`
	}
	if c := b.bindings[guid]; c != "" {
		return http.StatusOK, `{"credentials": ` + c + `, "parameters": {"role": "reader"}}`
	}
	if b.instances[guid] {
		return http.StatusOK, `{"dashboard_url": "http://broker.example/of/` + guid + `", "parameters": {"size": 2}}`
	}
	return http.StatusNotFound, "{}"
}
