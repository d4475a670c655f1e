package cftest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WithoutPolicies is the script whose daemon has no network policies, and so not the
// default security group.
const WithoutPolicies = "records"

// Recording is one command of the client with its requests and responses.
type Recording struct {
	Name    string   `json:"-"` // file name without its extension
	Command []string `json:"command"`
	// Before lists the actions since the previous command that the client did not do:
	// "kill APP TYPE INDEX SIDECAR".
	Before    []string   `json:"before,omitempty"`
	Exit      int        `json:"exit"`
	Exchanges []Exchange `json:"exchanges"`
}

// Exchange is one request with its response.
type Exchange struct {
	Method string            `json:"method"`
	Path   string            `json:"path"` // with the query
	Header map[string]string `json:"header,omitempty"`
	Body   any               `json:"body,omitempty"` // a JSON value, a text or an Upload
	Answer Answer            `json:"answer"`
}

// Answer holds the parts of a response that the client reads.
type Answer struct {
	Status   int      `json:"status"`
	Location string   `json:"location,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	Body     any      `json:"body,omitempty"`
}

// Reads reports whether the request changes nothing.
func (e Exchange) Reads() bool { return e.Method == "GET" || e.Method == "HEAD" }

// logs reports whether the request is for log lines, whose number depends only on time.
func (e Exchange) logs() bool { return strings.HasPrefix(e.Path, "/api/v1/") }

// Load reads the recordings of a folder in the order of their names.
func Load(dir string) ([]Recording, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("cannot list recordings: %w", err)
	}
	slices.Sort(files)
	out := make([]Recording, len(files))
	for i, file := range files {
		if out[i], err = LoadFile(file); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// LoadFile reads one recording.
func LoadFile(file string) (Recording, error) {
	r := Recording{Name: strings.TrimSuffix(filepath.Base(file), ".json")}
	b, err := os.ReadFile(file)
	if err != nil {
		return r, fmt.Errorf("cannot read a recording: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber() // as the recorder reads them
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return r, fmt.Errorf("cannot read recording %s: %w", r.Name, err)
	}
	return r, nil
}

// Save writes a recording into a folder, under its name.
func Save(dir string, r Recording) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("cannot encode recording %s: %w", r.Name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, r.Name+".json"), b.Bytes(), 0o644); err != nil { //nolint:forbidigo // a recording is no state
		return fmt.Errorf("cannot write recording %s: %w", r.Name, err)
	}
	return nil
}

// Settle keeps only the last response of repeated reads. It moves reads of logs to the
// end, because they run in parallel to everything else.
func Settle(all []Exchange) []Exchange {
	var out, logs []Exchange
	segment := 0 // index of the first read since the last change
	for _, e := range all {
		switch {
		case e.logs():
			logs = replaceRead(logs, 0, e)
		case e.Reads():
			out = replaceRead(out, segment, e)
		default:
			out = append(out, e)
			segment = len(out)
		}
	}
	return append(out, logs...)
}

// replaceRead appends e, in place of the same read since from.
func replaceRead(all []Exchange, from int, e Exchange) []Exchange {
	same := func(o Exchange) bool { return o.Method == e.Method && o.Path == e.Path }
	if i := slices.IndexFunc(all[from:], same); i >= 0 {
		all = slices.Delete(all, from+i, from+i+1)
	}
	return append(all, e)
}

// Compare reports how two recordings of one command differ: in changes, or in the last
// response to the same read. Number and order of the reads depend on time.
func Compare(old, now Recording) error {
	if old.Exit != now.Exit {
		return fmt.Errorf("exit status %d, was %d", now.Exit, old.Exit)
	}
	b := NewBindings()
	was, is := changes(old), changes(now)
	for i := range min(len(was), len(is)) {
		if err := b.same(was[i], is[i]); err != nil {
			return err
		}
	}
	if len(was) != len(is) {
		return fmt.Errorf("%d changing requests, were %d", len(is), len(was))
	}
	before, after := reads(old), reads(now)
	for _, o := range before {
		i := slices.IndexFunc(after, func(n Exchange) bool { return n.Method == o.Method && b.clone().matchString(o.Path, n.Path) == nil })
		if i < 0 {
			return fmt.Errorf("%s %s is no longer requested", o.Method, o.Path)
		}
		if err := b.same(o, after[i]); err != nil {
			return err
		}
		after = slices.Delete(after, i, i+1)
	}
	if len(after) > 0 {
		return fmt.Errorf("%s %s was not requested before", after[0].Method, after[0].Path)
	}
	return nil
}

func changes(r Recording) []Exchange {
	return slices.DeleteFunc(slices.Clone(r.Exchanges), Exchange.Reads)
}

// reads returns the distinct reads with their last responses. Reads of logs during
// another command are left out, because they depend on time.
func reads(r Recording) []Exchange {
	var out []Exchange
	for _, e := range r.Exchanges {
		if e.Reads() && (!e.logs() || slices.Contains(r.Command, "logs")) {
			out = replaceRead(out, 0, e)
		}
	}
	return out
}
