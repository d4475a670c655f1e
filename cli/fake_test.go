package cli

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(asDew) != "" {
		os.Exit(Main(context.Background(), "test"))
	}
	debug.SetGCPercent(400) // a command has little data; garbage collection would take a quarter of the time
	home, err := os.MkdirTemp("", "dew-cli-")
	if err != nil {
		panic(err)
	}
	for name, value := range map[string]string{"DEW_HOME": home, "DEW_API": "", "DEW_USERNAME": "", "DEW_PASSWORD": "", "DEW_RUN": ""} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	status := m.Run()
	_ = os.RemoveAll(home)
	os.Exit(status)
}

// The fake daemon reports this URL. No server listens there, not even a real daemon of
// this machine.
const unusedURL = "http://127.0.0.1:1"

// fakeDaemon answers on a socket with v3 types and records the requests. It has at most
// one app, "shop".
type fakeDaemon struct {
	t   *testing.T
	run string // folder of the socket

	mu          sync.Mutex
	requests    []string // such as "POST /v3/builds"
	bodies      map[string]string
	queries     map[string]url.Values
	app         *v3.App
	other       *v3.App // app-2, with one process
	process     v3.Process
	deployed    []v3.Process // the new processes of a deployment
	sidecars    []v3.Sidecar
	stats       []v3.InstanceStats
	stats2      []v3.InstanceStats // stats of app-2
	live        v3.LiveApps
	successor   string // instance that starts when the first one gets a signal
	routes      []v3.Route
	pool        map[string]int64 // sha1 to size
	sent        map[string]string
	folder      map[string]string // files uploaded as a buildpack
	hadBits     bool
	builds      []v3.Build
	buildGone   bool       // the build was deleted with its app
	outcome     v3.Build   // result of the next build, shown from the second request on
	ahead       []v3.Build // other builds to stage first
	lines       []v3.LogCacheEnvelope
	crashes     []v3.Crash
	unwritten   int // number of requests for crashes before they are stored
	env         map[string]string
	refuse      map[string]v3.Error // "POST /v3/apps" to the error of a 422 response
	gone        bool
	pid         int
	lateLines   []string   // log lines that staging writes
	query       url.Values // query of the last log request
	report      v3.LogReport
	accounts    fakeAccounts
	services    *fakeServices
	tasks       []v3.Task
	sshDisabled string                // reason why SSH is disabled
	changeTask  func(v3.Task) v3.Task // changes the response for a task; nil: the task is complete
	rollouts    rollouts
	records     *fakeRecords
	others      []*otherApp // further apps
}

// newDaemon starts a fake daemon. Its tests can run in parallel as long as they select the
// daemon with --run: they share DEW_HOME, and have targets of their own in its config file.
func newDaemon(t *testing.T) *fakeDaemon {
	t.Helper()
	run := testkit.ShortDir(t)
	d := &fakeDaemon{
		t: t, run: run, bodies: map[string]string{}, queries: map[string]url.Values{}, pool: map[string]int64{}, sent: map[string]string{}, env: map[string]string{}, refuse: map[string]v3.Error{},
		process: v3.Process{GUID: "app-1", Type: "web", Version: "v1", Instances: 1, MemoryInMB: 256, DiskInMB: 1024, HealthCheck: v3.HealthCheck{Type: "port"}, Relationships: v3.ProcessRelationships{App: v3.To("app-1")}},
		stats:   []v3.InstanceStats{{Type: "web", State: v3.StateRunning, Uptime: 5, MemQuota: 256 << 20, DiskQuota: 1 << 30, Version: "v1", Usage: v3.Usage{CPU: 0.031, Mem: 12 << 20, Disk: 4 << 20}}},
		outcome: v3.Build{State: v3.BuildStaged, Droplet: &v3.GUID{GUID: "droplet-1"}},
	}
	d.accounts, d.services = newFakeAccounts(), newFakeServices()
	d.records = newFakeRecords()
	l, err := net.Listen("unix", filepath.Join(run, client.Socket))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: d.handler()}}
	s.Start()
	t.Cleanup(s.Close)
	return d
}

// newRemoteDaemon is newDaemon for tests that log in, which changes DEW_HOME for all.
func newRemoteDaemon(t *testing.T) *fakeDaemon {
	t.Helper()
	clearHome(t)
	return newDaemon(t)
}

// clearHome gives the test an empty DEW_HOME.
func clearHome(t *testing.T) {
	t.Helper()
	t.Setenv("DEW_HOME", t.TempDir())
}

// withApp adds the app to the daemon.
func (d *fakeDaemon) withApp(state string) *fakeDaemon {
	d.app = &v3.App{GUID: "app-1", Name: "shop", State: state, Lifecycle: v3.Lifecycle{Type: "buildpack"}}
	return d
}

func (d *fakeDaemon) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, fn func(r *http.Request, body []byte) any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, fn) })
	}
	d.appRoutes(handle)
	d.accounts.routes(d, handle)
	d.pushRoutes(handle)
	d.otherRoutes(handle)
	d.taskRoutes(handle)
	d.deployRoutes(handle)
	d.bitsRoutes(handle)
	d.services.answers(d, handle)
	d.records.answers(d, handle)
	d.dropletAnswers(handle)
	handle("GET /dew/v1/live", func(*http.Request, []byte) any { return d.live })
	mux.HandleFunc("GET /stream/v1/apps/app-1", d.stream)
	mux.HandleFunc("GET /stream/v1/apps/{guid}", d.otherStream)
	mux.HandleFunc("GET /stream/v1/services/{guid}", d.serviceLines)
	handle("GET /stream/v1/apps/app-1/verify", func(*http.Request, []byte) any { return d.report })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		d.serve(w, r, func(*http.Request, []byte) any {
			if r.URL.Path == "/" {
				return v3.Root{Links: v3.RootLinks{CloudControllerV3: &v3.RootLink{Meta: v3.RootMeta{Version: "3.180.0"}}}}
			}
			return answer{404, v3.Errors{Errors: []v3.Error{{Code: 10000, Title: "CF-NotFound", Detail: "Unknown request"}}}}
		})
	})
	return mux
}

// answer is a response with its own status.
type answer struct {
	status int
	body   any
}

// job is a response that names a job.
type job struct{}

func (d *fakeDaemon) serve(w http.ResponseWriter, r *http.Request, fn func(*http.Request, []byte) any) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		d.t.Error(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := r.Method + " " + r.URL.Path
	d.requests = append(d.requests, key)
	d.bodies[key], d.queries[key] = string(body), r.URL.Query()
	if d.gone {
		panic(http.ErrAbortHandler)
	}
	if denied := d.accounts.guard(r); denied != nil {
		w.WriteHeader(denied.status)
		d.encode(w, denied.body)
		return
	}
	if e, ok := d.refuse[key]; ok {
		w.WriteHeader(http.StatusUnprocessableEntity)
		d.encode(w, v3.Errors{Errors: []v3.Error{e}})
		return
	}
	if labelled := d.records.relabel(r, body); labelled != nil {
		fn = func(*http.Request, []byte) any { return labelled }
	}
	switch v := fn(r, body).(type) {
	case job:
		w.Header().Set("Location", "http://127.0.0.1:8484/v3/jobs/job-1")
		w.WriteHeader(http.StatusAccepted)
	case jobLocation:
		w.Header().Set("Location", "http://127.0.0.1:8484/v3/jobs/"+string(v))
		w.WriteHeader(http.StatusAccepted)
	case rawText:
		fmt.Fprint(w, v)
	case answer:
		w.WriteHeader(v.status)
		if v.status != http.StatusNoContent {
			d.encode(w, v.body)
		}
	default:
		d.encode(w, v)
	}
}

func (d *fakeDaemon) encode(w io.Writer, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		d.t.Error(err)
	}
}

func notFound(detail string) answer {
	return answer{404, v3.Errors{Errors: []v3.Error{{Code: v3.CodeNotFound, Title: v3.TitleNotFound, Detail: detail}}}}
}

func listOf[T any](all ...T) v3.List[T] { return v3.List[T]{Resources: append([]T{}, all...)} }

func (d *fakeDaemon) appRoutes(handle func(string, func(*http.Request, []byte) any)) {
	handle("GET /v3/apps", func(r *http.Request, _ []byte) any {
		if got := r.URL.Query().Get("space_guids"); got != "space-1" && !r.URL.Query().Has("guids") {
			d.t.Errorf("apps of space %q are asked for", got)
		}
		var all []v3.App
		for _, a := range d.allApps() {
			if names := r.URL.Query().Get("names"); names == "" || names == a.Name {
				all = append(all, a)
			}
		}
		return listOf(all...)
	})
	handle("POST /v3/apps", func(_ *http.Request, body []byte) any {
		d.withApp(v3.AppStopped)
		return answer{201, *d.app}
	})
	handle("PATCH /v3/apps/app-1", func(*http.Request, []byte) any { return *d.app })
	handle("DELETE /v3/apps/app-1", func(*http.Request, []byte) any { d.app = nil; return job{} })
	for action, state := range map[string]string{"start": v3.AppStarted, "stop": v3.AppStopped, "restart": v3.AppStarted} {
		handle("POST /v3/apps/app-1/actions/"+action, func(*http.Request, []byte) any { d.app.State = state; return *d.app })
	}
	handle("GET /v3/apps/app-1/processes", func(*http.Request, []byte) any { return listOf(append([]v3.Process{d.process}, d.deployed...)...) })
	handle("GET /v3/apps/app-2/processes", func(*http.Request, []byte) any {
		return listOf(v3.Process{GUID: "app-2", Type: "web"})
	})
	handle("GET /v3/processes/app-2/stats", func(*http.Request, []byte) any { return v3.Stats{Resources: d.stats2} })
	handle("GET /v3/processes", func(r *http.Request, _ []byte) any {
		p := d.process
		if r.URL.Query().Get("embed") == "process_instances" {
			for _, s := range d.stats {
				p.EmbeddedInstances = append(p.EmbeddedInstances, v3.ProcessInstance{Index: s.Index, State: s.State})
			}
		}
		return listOf(p)
	})
	handle("GET /v3/processes/app-1.1", func(*http.Request, []byte) any { return d.deployed[0] })
	handle("GET /v3/processes/app-1.1/sidecars", func(*http.Request, []byte) any { return listOf(d.sidecars...) })
	handle("GET /v3/processes/app-1", func(*http.Request, []byte) any {
		p, command := d.process, "./shop"
		p.Command = &command
		return p
	})
	handle("GET /v3/processes/app-1/stats", func(*http.Request, []byte) any { return v3.Stats{Resources: append([]v3.InstanceStats{}, d.stats...)} })
	handle("GET /v3/processes/app-1/sidecars", func(*http.Request, []byte) any { return listOf(d.sidecars...) })
	handle("POST /v3/apps/app-1/processes/web/actions/scale", func(*http.Request, []byte) any { return d.process })
	handle("DELETE /v3/apps/app-1/processes/web/instances/{index}", func(*http.Request, []byte) any { return answer{204, nil} })
	handle("GET /v3/apps/app-1/routes", func(*http.Request, []byte) any { return listOf(d.routes...) })
	d.wayRoutes(handle)
	handle("DELETE /v3/routes/{guid}", func(*http.Request, []byte) any { return job{} })
	handle("GET /v3/apps/app-1/env", func(*http.Request, []byte) any {
		return v3.Env{Environment: d.env, System: map[string]any{"VCAP_SERVICES": map[string]any{}}, Application: map[string]any{"VCAP_APPLICATION": map[string]any{"name": "shop"}}}
	})
	handle("PATCH /v3/apps/app-1/environment_variables", func(*http.Request, []byte) any { return v3.EnvVars{} })
}

func (d *fakeDaemon) pushRoutes(handle func(string, func(*http.Request, []byte) any)) {
	handle("POST /v3/spaces/space-1/manifest_diff", func(*http.Request, []byte) any {
		return v3.ManifestDiff{Diff: []v3.Difference{
			{Op: "replace", Path: "/applications/0/memory", Was: "128M", Value: "256M"},
			{Op: "replace", Path: "/applications/0/env/TOKEN", Was: "old-secret", Value: "new-secret"},
		}}
	})
	handle("POST /v3/spaces/space-1/actions/apply_manifest", func(*http.Request, []byte) any {
		if d.app == nil {
			d.withApp(v3.AppStopped)
		}
		return job{}
	})
	handle("POST /v3/resource_matches", func(_ *http.Request, body []byte) any {
		var requests, have v3.ResourceMatches
		d.decode(body, &requests)
		have.Resources = []v3.Resource{}
		for _, r := range requests.Resources {
			if size, ok := d.pool[r.Checksum.Value]; ok && size == r.Size {
				have.Resources = append(have.Resources, r)
			}
			d.pool[r.Checksum.Value] = r.Size
		}
		return have
	})
	handle("POST /dew/v1/spaces/space-1/buildpacks", func(r *http.Request, body []byte) any {
		d.upload(r, body)
		d.folder, d.sent = d.sent, nil
		return answer{201, v3.UploadedFolder{Name: "folder:" + r.URL.Query().Get("name") + "@1234"}}
	})
	handle("POST /v3/packages", func(*http.Request, []byte) any {
		return answer{201, v3.Package{GUID: "package-1", State: v3.PackageAwaitingUpload}}
	})
	handle("POST /v3/packages/package-1/upload", d.upload)
	handle("GET /v3/packages/package-1", func(*http.Request, []byte) any { return v3.Package{GUID: "package-1", State: v3.PackageReady} })
	handle("GET /v3/apps/app-1/packages", func(*http.Request, []byte) any {
		if len(d.sent) == 0 {
			return listOf[v3.Package]()
		}
		return listOf(v3.Package{GUID: "package-1", State: v3.PackageReady})
	})
	handle("GET /v3/apps/app-1/builds", func(*http.Request, []byte) any { return listOf(d.builds...) })
	handle("POST /v3/builds", func(*http.Request, []byte) any {
		return answer{201, v3.Build{GUID: "build-1", State: v3.BuildStaging}}
	})
	handle("GET /v3/builds", func(r *http.Request, _ []byte) any {
		return listOf(append(slices.Clone(d.ahead), v3.Build{GUID: "build-1", State: v3.BuildStaging})...)
	})
	handle("GET /v3/builds/build-1", func(*http.Request, []byte) any {
		if d.buildGone {
			return answer{404, v3.Errors{Errors: []v3.Error{{Code: 10010, Title: "CF-ResourceNotFound", Detail: "Build not found"}}}}
		}
		for _, text := range d.lateLines {
			d.say("STG", "0", text)
		}
		d.lateLines = nil
		b := d.outcome
		b.GUID, b.Package = "build-1", v3.GUID{GUID: "package-1"}
		if b.State == v3.BuildStaged {
			d.builds = append(d.builds, b)
		}
		return b
	})
	handle("PATCH /v3/apps/app-1/relationships/current_droplet", func(*http.Request, []byte) any { return v3.CurrentDroplet{} })
	handle("GET /v3/apps/app-1/droplets/current", func(*http.Request, []byte) any {
		if len(d.builds) == 0 {
			return notFound(v3.DetailDropletNotFound)
		}
		return v3.Droplet{
			GUID: "droplet-1", Stack: "host", ProcessTypes: map[string]string{"web": "node server.js"},
			Buildpacks: []v3.DropletBuildpack{{Name: "nodejs_buildpack", BuildpackName: "nodejs"}},
		}
	})
}

func (d *fakeDaemon) otherRoutes(handle func(string, func(*http.Request, []byte) any)) {
	handle("GET /v3/jobs/job-1", func(*http.Request, []byte) any { return v3.Job{GUID: "job-1", State: v3.JobComplete} })
	handle("GET /v3/audit_events", func(*http.Request, []byte) any {
		return listOf(v3.Event{
			Type: "app.crash", CreatedAt: v3.At(time.Unix(1763160000, 0)), Actor: v3.Party{Name: "web"},
			Data: map[string]any{"index": 0, "reason": "CRASHED", "exit_description": "APP/PROC/WEB: Exited with status 1"},
		})
	})
	handle("GET /api/v1/read/app-1", func(r *http.Request, _ []byte) any { return d.read(r) })
	handle("GET /dew/v1/status", func(*http.Request, []byte) any {
		return v3.Status{Version: "1", PID: d.pid, StartedAt: time.Now(), Root: "/r", Router: "http://127.0.0.1:8080", Domain: "dew.localhost", API: unusedURL}
	})
	handle("GET /dew/v1/apps/app-1/crashes", func(r *http.Request, _ []byte) any {
		if d.unwritten > 0 {
			d.unwritten--
			return v3.Crashes{}
		}
		return pageOfCrashes(r, d.crashes)
	})
	handle("POST /dew/v1/processes/app-1/kill", func(*http.Request, []byte) any {
		if len(d.stats) > 0 && d.successor != "" {
			d.stats[0].InstanceGUID = d.successor
		}
		return answer{202, struct{}{}}
	})
	handle("POST /dew/v1/shutdown", func(*http.Request, []byte) any { d.gone = true; return answer{202, struct{}{}} })
}

func (d *fakeDaemon) decode(body []byte, v any) {
	if err := json.Unmarshal(body, v); err != nil {
		d.t.Errorf("cannot read %s: %v", body, err)
	}
}

// upload stores the uploaded files: matched files as "known", the others by content.
func (d *fakeDaemon) upload(r *http.Request, body []byte) any {
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err := r.ParseMultipartForm(1 << 20); err != nil {
		d.t.Error(err)
	}
	var known []v3.Resource
	d.decode([]byte(r.FormValue("resources")), &known)
	d.sent = map[string]string{}
	for _, k := range known {
		d.sent[k.Path] = "known " + k.Mode
	}
	f, h, err := r.FormFile("bits")
	d.hadBits = err == nil
	if !d.hadBits {
		return v3.Package{GUID: "package-1", State: v3.PackageProcessingUpload}
	}
	z, err := zip.NewReader(f, h.Size)
	if err != nil {
		d.t.Error(err)
		return notFound("broken")
	}
	for _, e := range z.File {
		c, err := e.Open()
		if err != nil {
			d.t.Error(err)
			continue
		}
		text, err := io.ReadAll(c)
		if err != nil {
			d.t.Error(err)
		}
		d.sent[e.Name] = fmt.Sprintf("%s %s", e.Mode(), text)
	}
	return v3.Package{GUID: "package-1", State: v3.PackageProcessingUpload}
}

// say adds a line to the log.
func (d *fakeDaemon) say(source, index, text string) {
	at := time.Now().UnixNano()
	if n := len(d.lines); n > 0 {
		at = max(at, d.lines[n-1].Timestamp+1)
	}
	d.lines = append(d.lines, v3.LogCacheEnvelope{
		Timestamp: at, SourceID: "app-1", InstanceID: index, Tags: map[string]string{"source_type": source}, Log: &v3.LogCacheLog{Payload: []byte(text), Type: "OUT"},
	})
}

func (d *fakeDaemon) read(r *http.Request) v3.LogCacheRead {
	q := r.URL.Query()
	number := func(name string) int64 {
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil {
			d.t.Errorf("%s: %v", name, err)
		}
		return n
	}
	start := number("start_time")
	batch := slices.DeleteFunc(slices.Clone(d.lines), func(e v3.LogCacheEnvelope) bool { return e.Timestamp < start })
	if q.Get("descending") == "true" {
		slices.Reverse(batch)
	}
	return v3.LogCacheRead{Envelopes: v3.LogCacheBatch{Batch: batch[:min(int(number("limit")), len(batch))]}}
}

// stream sends two lines and stays open until the reader disconnects. A request that
// does not follow gets the newest lines of the log.
func (d *fakeDaemon) stream(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("follow") == "false" {
		d.newest(w, r)
		return
	}
	for i, text := range []string{"hello", "bye"} {
		b, err := json.Marshal(v3.Line{Seq: uint64(i + 1), Time: time.Unix(1763160000, 0).UTC(), Source: "APP/PROC/WEB/SIDECAR/CONFIG SERVER", Stream: "OUT", Text: []byte(text)})
		if err != nil {
			d.t.Error(err)
		}
		fmt.Fprintf(w, "id: %d\ndata: %s\n\n", i+1, b)
	}
	_ = http.NewResponseController(w).Flush() // the reader can have disconnected
	<-r.Context().Done()
}

// body returns the last body of a request.
func (d *fakeDaemon) body(key string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bodies[key]
}

// count returns how often a request was sent.
func (d *fakeDaemon) count(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, a := range d.requests {
		if a == key {
			n++
		}
	}
	return n
}

// result is the output and the exit status of a command.
type result struct {
	out, talk string
	status    int
	err       error
}

// dew runs the command line against the fake daemon.
func (d *fakeDaemon) dew(args ...string) result {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	return runDew(ctx, append([]string{"--run", d.run}, args...)...)
}

func runDew(ctx context.Context, args ...string) result { return runDewWithInput(ctx, "", args...) }

// runDewWithInput is runDew with a user who types text at the terminal.
func runDewWithInput(ctx context.Context, text string, args ...string) result {
	var out, talk bytes.Buffer
	c := &console.Console{Out: &out, Err: &talk, In: strings.NewReader(text), Interactive: text != ""}
	err := newApp("dev", c).RunContext(ctx, append([]string{"dew"}, args...))
	return result{out: out.String(), talk: talk.String(), status: command.StatusOf(err), err: err}
}

// must fails the test if the exit status is different, or if a text is missing in the
// output.
func (r result) must(t *testing.T, status int, texts ...string) {
	t.Helper()
	all := r.out + r.talk
	if r.err != nil {
		all += command.Explain(r.err)
	}
	if r.status != status {
		t.Fatalf("status is %d, want %d\n%s", r.status, status, all)
	}
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("%q is missing in\n%s", text, all)
		}
	}
}
