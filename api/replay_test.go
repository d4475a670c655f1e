package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/dewrun/dew/api/cftest"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/netpolicy"
	"github.com/dewrun/dew/netpolicy/desired"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services/servicestest"
	"github.com/dewrun/dew/testkit"
)

// The requests that the stock client once sent to a real daemon are repeated. The parts
// of the responses that the client reads must be the same. Every folder is one script
// with its own daemon. `CF_BIN=… DEW_RECORD=1 go test -tags integration -run TestCF
// ./cmd/dewd` records them again.
func TestReplay(t *testing.T) {
	t.Parallel()
	for script, all := range must(recorded())(t) {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			newReplayPlatform(t, script).replay(all)
		})
	}
}

// Every command of the client is in a recording, or is listed with a reason.
func TestReplayedCommands(t *testing.T) {
	t.Parallel()
	var all []cftest.Recording
	for _, one := range must(recorded())(t) {
		all = append(all, one...)
	}
	missing, needless := cftest.Unscripted(all)
	if len(missing)+len(needless) > 0 {
		t.Errorf("no recording has the commands %v; recorded, though said to be left out, are %v", missing, needless)
	}
}

// recorded returns the recordings by script. A script without recordings is an error.
var recorded = sync.OnceValues(func() (map[string][]cftest.Recording, error) {
	folders, err := os.ReadDir("testdata/cf")
	out := map[string][]cftest.Recording{}
	for _, e := range folders {
		all, err := cftest.Load(filepath.Join("testdata/cf", e.Name()))
		if err != nil || len(all) == 0 {
			return nil, fmt.Errorf("there are no recordings in %s: %w", e.Name(), err)
		}
		out[e.Name()] = all
	}
	if err == nil && len(out) == 0 {
		err = errors.New("there are no recordings")
	}
	return out, err
})

// replayPlatform is a platform that replays the recordings of one script.
type replayPlatform struct {
	*wholePlatform
	b       *cftest.Bindings
	brokers []*servicestest.Broker
}

func newReplayPlatform(t *testing.T, script string) *replayPlatform {
	t.Helper()
	p := newPlatform(t)
	if err := p.c.Registry.EnsureRouterGroup(app.PortRange{First: 20010, Last: 20011}); err != nil { // as dewd configures it
		t.Fatal(err)
	}
	policies := desired.Reader{Registry: p.c.Registry, Policies: netpolicy.NewStore(p.c.DB)}
	flag := ""
	if script == cftest.WithoutPolicies {
		flag = desired.Off
	}
	if _, err := policies.Enforce(flag, false); err != nil { // as dewd does at the first start on a root
		t.Fatal(err)
	}
	r := &replayPlatform{wholePlatform: p, b: cftest.NewBindings()}
	for i, catalog := range []string{"first", "second"} {
		broker := must(cftest.NewBroker(catalogs, catalog))(t)
		server := httptest.NewServer(broker)
		t.Cleanup(server.Close)
		r.brokers = append(r.brokers, broker)
		r.b.Set(fmt.Sprintf("$broker%d", i+1), server.URL)
	}
	for name, value := range map[string]string{
		"$url": publicURL, "$host": strings.TrimPrefix(publicURL, "http://"), "$dir": "/somewhere", "$password-admin": p.password,
		"$nobody1": "11111111-2222-3333-4444-555555555555",
	} {
		r.b.Set(name, value)
	}
	for _, who := range []string{"dora", "eva", "new", "client"} {
		r.b.Set("$password-"+who, "only-for-the-replay-of-"+who)
	}
	return r
}

// catalogs is the folder of the catalogs of the recorded brokers.
const catalogs = "testdata/broker"

func (p *replayPlatform) replay(all []cftest.Recording) {
	p.t.Helper()
	for _, r := range all {
		for _, what := range r.Before {
			if err := p.happen(what); err != nil {
				p.t.Fatalf("%s: %s: %v", r.Name, what, err)
			}
		}
		for i, e := range r.Exchanges {
			if err := p.replayExchange(e); err != nil {
				p.t.Fatalf("%s, exchange %d: cf %s\n%s %s: %v", r.Name, i, strings.Join(r.Command, " "), e.Method, e.Path, err)
			}
		}
	}
}

// replayExchange sends one request. It repeats a read until the recorded response arrives,
// because the client repeated it and only its last response was recorded.
func (p *replayPlatform) replayExchange(e cftest.Exchange) error {
	return testkit.Until(func() error {
		r, err := p.b.Request("http://replay", e)
		if err != nil {
			return testkit.Finally(err)
		}
		got, err := p.read(r)
		if err == nil {
			err = p.b.Match(e.Answer, got)
		}
		if err != nil && !e.Reads() {
			return testkit.Finally(err)
		}
		return err
	})
}

// read sends a request and reduces the response to the parts that the client reads.
func (p *replayPlatform) read(r *http.Request) (cftest.Answer, error) {
	got := p.send(r)
	a := cftest.Answer{Status: got.Code, Location: got.Header().Get("Location"), Warnings: got.Header().Values("X-Cf-Warnings")}
	var err error
	a.Body, err = cftest.Reduce(r.Method, r.URL.RequestURI(), got.Code, got.Header().Get("Content-Type"), got.Body.Bytes())
	if err != nil {
		return a, err
	}
	// Decode it like a recording, so that lists and numbers have the same types.
	raw, err := json.Marshal(a.Body)
	if err != nil {
		return a, err
	}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	return a, dec.Decode(&a.Body)
}

// happen repeats an action that was done outside the client.
func (p *replayPlatform) happen(what string) error {
	words := strings.Fields(what)
	switch {
	case len(words) == 5 && words[0] == "kill":
		return p.kill(words[1], words[2], words[3], words[4])
	case len(words) == 3 && words[0] == "await":
		return p.await(words[1], words[2])
	}
	return cftest.SetBehaviour(p.brokers, catalogs, what)
}

// process finds a process by the name of its app and its type.
func (p *replayPlatform) process(name, kind string) (app.Process, error) {
	apps, err := p.c.Registry.Apps()
	if err != nil {
		return app.Process{}, err
	}
	for _, a := range apps {
		if a.Name != name {
			continue
		}
		processes, err := p.c.Registry.Processes(a.GUID)
		if err != nil {
			return app.Process{}, err
		}
		if i := slices.IndexFunc(processes, func(pr app.Process) bool { return pr.Type == kind }); i >= 0 {
			return processes[i], nil
		}
	}
	return app.Process{}, fmt.Errorf("there is no such process")
}

func (p *replayPlatform) kill(name, kind, number, sidecar string) error {
	index, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	pr, err := p.process(name, kind)
	if err != nil {
		return err
	}
	return p.sup.Signal(p.t.Context(), pr.GUID, index, sidecar, runtime.SentSignal{Number: int(syscall.SIGKILL), User: "admin"})
}

// await waits until the number of instances of an app run and no deployment is active.
func (p *replayPlatform) await(name, number string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	pr, err := p.process(name, "web")
	if err != nil {
		return err
	}
	admin := p.admin()
	return testkit.Until(func() error {
		active, _ := admin.get("/v3/deployments?status_values=ACTIVE&app_guids=" + pr.App)["resources"].([]any)
		running := 0
		for _, s := range p.sup.Instances(pr.GUID) {
			if s.State == runtime.Running {
				running++
			}
		}
		if len(active) > 0 || running != n {
			return fmt.Errorf("%s has %d instances that run and %d deployments that go on, want %d and none", name, running, len(active), n)
		}
		return nil
	})
}
