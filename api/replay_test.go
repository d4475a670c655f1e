package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/api/cftest"
	"github.com/dewrun/dew/app"
)

// arrival bounds the wait for a recorded answer: only another answer reaches it.
const arrival = 20 * time.Second

// What the stock client sent to a real daemon once is sent again, and what it
// reads of the answers is what it read then. `CF_BIN=… DEW_RECORD=1 go test -tags
// integration -run TestCF ./cmd/dewd` records anew.
func TestReplay(t *testing.T) {
	t.Parallel()
	all := must(cftest.Load("testdata/cf"))(t)
	if len(all) == 0 {
		t.Fatal("there are no recordings")
	}
	p := newPlatform(t)
	if err := p.c.Registry.EnsureRouterGroup(app.PortRange{First: 20000, Last: 20099}); err != nil { // as dewd has it
		t.Fatal(err)
	}
	b := cftest.NewBindings()
	for name, value := range map[string]string{
		"$url": publicURL, "$host": strings.TrimPrefix(publicURL, "http://"), "$dir": "/somewhere",
		"$password-admin": p.password, "$password-dora": "only-for-the-replay", "$password-client": "only-for-the-replay-too",
	} {
		b.Set(name, value)
	}
	for _, r := range all {
		for _, what := range r.Before {
			if err := p.happen(what); err != nil {
				t.Fatalf("%s: %s: %v", r.Name, what, err)
			}
		}
		for i, e := range r.Exchanges {
			if err := p.replay(b, e); err != nil {
				t.Fatalf("%s, exchange %d: cf %s\n%s %s: %v", r.Name, i, strings.Join(r.Command, " "), e.Method, e.Path, err)
			}
		}
	}
}

// replay sends one request. A question is asked until the recorded answer comes:
// the client asked again, too, and only its last answer was kept.
func (p *platform) replay(b *cftest.Bindings, e cftest.Exchange) error {
	for end := time.Now().Add(arrival); ; time.Sleep(time.Millisecond) {
		r, err := b.Request("http://replay", e)
		if err != nil {
			return err
		}
		got, err := p.read(r)
		if err == nil {
			err = b.Match(e.Answer, got)
		}
		if err == nil || !e.Reads() || time.Now().After(end) {
			return err
		}
	}
}

// read sends a request and leaves of the answer what the client reads.
func (p *platform) read(r *http.Request) (cftest.Answer, error) {
	got := p.send(r)
	a := cftest.Answer{Status: got.Code, Location: got.Header().Get("Location"), Warnings: got.Header().Values("X-Cf-Warnings")}
	var err error
	a.Body, err = cftest.Reduce(r.Method, r.URL.RequestURI(), got.Code, got.Header().Get("Content-Type"), got.Body.Bytes())
	if err != nil {
		return a, err
	}
	// As a recording is read: lists and numbers of the same types.
	raw, err := json.Marshal(a.Body)
	if err != nil {
		return a, err
	}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	return a, dec.Decode(&a.Body)
}

// happen does to the platform what was done beside the client.
func (p *platform) happen(what string) error {
	words := strings.Fields(what)
	if len(words) != 5 || words[0] != "kill" {
		return fmt.Errorf("not understood")
	}
	index, err := strconv.Atoi(words[3])
	if err != nil {
		return err
	}
	apps, err := p.c.Registry.Apps()
	if err != nil {
		return err
	}
	for _, a := range apps {
		if a.Name != words[1] {
			continue
		}
		processes, err := p.c.Registry.Processes(a.GUID)
		if err != nil {
			return err
		}
		for _, pr := range processes {
			if pr.Type == words[2] {
				return p.sup.Signal(p.t.Context(), pr.GUID, index, words[4], syscall.SIGKILL)
			}
		}
	}
	return fmt.Errorf("there is no such process")
}
