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

// Recording is one command of the client with what it sent and read.
type Recording struct {
	Name    string   `json:"-"` // of the file, without its ending
	Command []string `json:"command"`
	// Before is what was done to the platform since the command before, other than
	// by the client: "kill APP TYPE INDEX SIDECAR".
	Before    []string   `json:"before,omitempty"`
	Exit      int        `json:"exit"`
	Exchanges []Exchange `json:"exchanges"`
}

// Exchange is one request with its answer.
type Exchange struct {
	Method string            `json:"method"`
	Path   string            `json:"path"` // with the query
	Header map[string]string `json:"header,omitempty"`
	Body   any               `json:"body,omitempty"` // a JSON value; a text; an Upload
	Answer Answer            `json:"answer"`
}

// Answer is what the client reads of an answer.
type Answer struct {
	Status   int      `json:"status"`
	Location string   `json:"location,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	Body     any      `json:"body,omitempty"`
}

// Reads tells whether the request changes nothing.
func (e Exchange) Reads() bool { return e.Method == "GET" || e.Method == "HEAD" }

// logs tells a request for log lines: how many there are depends on time alone.
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
	dec.UseNumber() // as the recorder sees them
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

// Settle leaves of questions that were asked again and again only the last
// answer, and puts the reading of logs, which goes on beside everything else, at
// the end.
func Settle(all []Exchange) []Exchange {
	var out, logs []Exchange
	segment := 0 // where the questions since the last change begin
	for _, e := range all {
		switch {
		case e.logs():
			logs = again(logs, 0, e)
		case e.Reads():
			out = again(out, segment, e)
		default:
			out = append(out, e)
			segment = len(out)
		}
	}
	return append(out, logs...)
}

// again puts e at the end, in place of the same question since from.
func again(all []Exchange, from int, e Exchange) []Exchange {
	same := func(o Exchange) bool { return o.Method == e.Method && o.Path == e.Path }
	if i := slices.IndexFunc(all[from:], same); i >= 0 {
		all = slices.Delete(all, from+i, from+i+1)
	}
	return append(all, e)
}

// Compare tells in what two recordings of one command differ: other changes, or
// another last answer to the same question. How often and in what order the
// client asks is a matter of time.
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
	asked, asks := questions(old), questions(now)
	for _, o := range asked {
		i := slices.IndexFunc(asks, func(n Exchange) bool { return n.Method == o.Method && b.clone().matchString(o.Path, n.Path) == nil })
		if i < 0 {
			return fmt.Errorf("%s %s is not asked any more", o.Method, o.Path)
		}
		if err := b.same(o, asks[i]); err != nil {
			return err
		}
		asks = slices.Delete(asks, i, i+1)
	}
	if len(asks) > 0 {
		return fmt.Errorf("%s %s was not asked", asks[0].Method, asks[0].Path)
	}
	return nil
}

func changes(r Recording) []Exchange {
	return slices.DeleteFunc(slices.Clone(r.Exchanges), Exchange.Reads)
}

// questions are the distinct ones with their last answers. Those for logs beside
// another command are asked or not, as time has it.
func questions(r Recording) []Exchange {
	var out []Exchange
	for _, e := range r.Exchanges {
		if e.Reads() && (!e.logs() || slices.Contains(r.Command, "logs")) {
			out = again(out, 0, e)
		}
	}
	return out
}
