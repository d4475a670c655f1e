package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/bcrypt"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/console"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/marketplace"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

var update = flag.Bool("update", false, "write the golden files again")

const publicURL = "http://127.0.0.1:8484"

// testServer is a server with real packages, and a fake for running processes.
type testServer struct {
	t        testing.TB
	s        *Server
	local    http.Handler
	listener http.Handler // the listener, for requests with a token
	c        Config
	fake     *fakeProcesses
	broker   *fakeBroker // the built-in broker and all others
	exits    *runtime.ExitLog
	space    app.Space
	logged   *syncBuffer
	shutdown []bool
	stops    []func() // stop the loops
}

// stackOptions returns the options of stacks on a machine that has only a shell. Without
// it, every test server would read the package database of the real machine.
func stackOptions(t testing.TB, dir string) stack.Options {
	t.Helper()
	machine := filepath.Join(dir, "machine")
	testkit.WriteFile(t, filepath.Join(machine, "bin", "sh"), "")
	return stack.Options{Dir: filepath.Join(dir, "stacks"), Host: stack.HostOptions{Root: machine}}
}

func newTestServer(t testing.TB) *testServer {
	t.Helper()
	return newTestServerIn(t, firstStart(t))
}

// newTestServerIn returns a test server in a folder, which can contain the data of a previous
// test server.
func newTestServerIn(t testing.TB, dir string) *testServer {
	t.Helper()
	db := must(store.Open(filepath.Join(dir, "dew.db"), store.Options{NoSync: true}))(t)
	t.Cleanup(func() { _ = db.Close() })
	w := &testServer{t: t, fake: &fakeProcesses{}, exits: runtime.NewExitLog(db, 0), logged: &syncBuffer{}}
	log := slog.New(slog.NewTextHandler(w.logged, nil))
	stored := must(logstream.Open(filepath.Join(dir, "logs"), logstream.Options{}))(t)
	t.Cleanup(func() { _ = stored.Close() })
	reg := registry.New(db)
	w.space = must(reg.EnsureDefaults("dew.localhost"))(t)
	shelf := must(droplet.NewDroplets(db, filepath.Join(dir, "droplets")))(t)
	packages := must(droplet.NewPackages(db, droplet.PackageOptions{Dir: filepath.Join(dir, "packages"), MinFree: -1, Logger: log}))(t)
	builds := droplet.NewBuilds(db, packages, shelf, droplet.BuildOptions{
		Stacks: func(string) (stack.Stack, error) { return stack.Stack{}, nil }, Logger: log,
		StackStore: must(stack.Open(db, stackOptions(t, dir)))(t),
	})
	jobs := registry.NewJobs(db, log)
	accounts := must(auth.Open(authConfig(db, dir)))(t)
	uploads := filepath.Join(dir, "uploads")
	w.c = Config{
		DB: db, Registry: reg, Events: registry.NewEvents(db), Jobs: jobs, Packages: packages, Builds: builds, Shelf: shelf,
		Catalog:   must(droplet.NewCatalog(db, droplet.CatalogOptions{Packages: droplet.PackageOptions{Dir: filepath.Join(dir, "buildpacks")}}))(t),
		Processes: w.fake, Exits: w.exits, Crashed: func() []runtime.CrashFiles { return []runtime.CrashFiles{{Instance: "0123abcd-0123-0123-0123-0123"}} }, Logs: stored, Auth: accounts, Roles: auth.NewRoles(db), PublicURL: publicURL, Version: "1.2.3", Logger: log,
		About: v3.Status{Version: "1.2.3", Domain: "dew.localhost"}, UploadDir: uploads, MaxUpload: 1 << 20,
		Stats: func() runtime.Stats {
			return runtime.Stats{Starts: 3, Restarts: map[runtime.Cause]uint64{runtime.CauseExited: 2}, Checks: map[runtime.Outcome]uint64{runtime.CheckUnchecked: 5}}
		},
		Shutdown: func(apps bool) { w.shutdown = append(w.shutdown, apps) },
	}
	w.broker = newFakeBroker()
	w.c.Services = marketplace.New(marketplace.Config{
		DB: db, Registry: reg, Events: w.c.Events, Logger: log, Builtin: w.broker,
		Client: func(b services.ServiceBroker) services.Broker { return w.broker.named(b.Name) },
	})
	if err := w.c.Services.LoadBuiltinCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.c.Snapshots = &fakeSnapshots{}
	w.c.Console = must(console.New(console.Config{DB: db, Auth: accounts, Roles: w.c.Roles, Public: must(url.Parse(publicURL))(t), Version: "1.2.3", Logger: log}))(t)
	w.s = must(New(w.c))(t)
	w.local, w.listener = checkDescription(t, w.s.Local()), checkDescription(t, w.s.Handler())
	w.run(jobs.Run)
	w.run(builds.Run)
	w.run(w.c.Services.Run)
	return w
}

// began is a folder with the data of a first start. All tests start with a copy,
// because creating a key and hashing a password take longer than most tests.
var began string

func TestMain(m *testing.M) {
	var err error
	if began, err = os.MkdirTemp("", "dew-api-"); err != nil {
		panic(err)
	}
	db, err := store.Open(filepath.Join(began, "dew.db"), store.Options{NoSync: true})
	if err != nil {
		panic(err)
	}
	_, err = registry.New(db).EnsureDefaults("dew.localhost")
	if err == nil {
		_, err = auth.Open(authConfig(db, began))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		panic(err)
	}
	debug.SetGCPercent(400) // tests have little data; garbage collection would take a quarter of the time
	code := m.Run()
	_ = os.RemoveAll(began)
	os.Exit(code)
}

func authConfig(db *store.DB, dir string) auth.Config {
	return auth.Config{
		DB: db, Keys: filepath.Join(began, "keys"), AdminPassword: filepath.Join(dir, "admin-password"), Domain: "dew.localhost",
		PublicURL: publicURL, Logger: slog.New(slog.DiscardHandler), Cost: bcrypt.MinCost,
	}
}

// firstStart returns a copy of that folder for a test.
func firstStart(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"dew.db", "admin-password"} {
		if err := os.WriteFile(filepath.Join(dir, name), must(os.ReadFile(filepath.Join(began, name)))(t), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const password = "open sesame"

// user creates an account without a password, which is fast, and returns its GUID.
func (w *testServer) user(name string, groups ...string) string {
	w.t.Helper()
	u := must(w.c.Auth.Accounts().CreateUser(auth.NewUser{Name: name, Origin: "nowhere", Groups: groups}))(w.t)
	return must(w.c.Auth.Accounts().UpdateUser(u.GUID, func(u *auth.User) error { u.Origin = auth.OriginUAA; return nil }))(w.t).GUID
}

// grant assigns a role in an org or in a space to a user.
func (w *testServer) grant(user string, kind auth.RoleType, place string) auth.Role {
	w.t.Helper()
	role := auth.Role{User: user, Type: kind}
	if kind.OfOrg() {
		role.Org = place
	} else {
		role.Space = place
	}
	return must(w.c.Roles.Put(role))(w.t)
}

// login returns a token of a user.
func (w *testServer) login(name string) string {
	w.t.Helper()
	return must(w.c.Auth.UserToken(name))(w.t)
}

// client creates an OAuth client with authorities, and returns its token.
func (w *testServer) client(id string, authorities ...string) string {
	w.t.Helper()
	must(w.c.Auth.Accounts().CreateClient(auth.NewClient{
		ID: id, Secret: password, GrantTypes: []string{auth.GrantClient}, Authorities: authorities,
	}))(w.t)
	return w.token(url.Values{"grant_type": {"client_credentials"}}, id, password)
}

func (w *testServer) token(form url.Values, client, secret string) string {
	w.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/uaa/oauth/token", strings.NewReader(form.Encode()))
	r.Host = "127.0.0.1:8484"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(client, secret)
	got := httptest.NewRecorder()
	w.listener.ServeHTTP(got, r)
	var out struct {
		Token string `json:"access_token"`
	}
	if err := json.Unmarshal(got.Body.Bytes(), &out); err != nil || out.Token == "" {
		w.t.Fatalf("no token: %d %s", got.Code, got.Body)
	}
	return out.Token
}

// as sends a request with a token over the listener.
func (w *testServer) as(token, method, path, body string) *httptest.ResponseRecorder {
	w.t.Helper()
	return requestWithToken(w.listener, token, method, path, body)
}

func requestWithToken(listener http.Handler, token, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:8484"
	if token != "" {
		r.Header.Set("Authorization", "bearer "+token)
	}
	got := httptest.NewRecorder()
	listener.ServeHTTP(got, r)
	return got
}

// run runs a loop until the test stops.
func (w *testServer) run(loop func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- loop(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			w.t.Errorf("a loop ended: %v", err)
		}
	})
	w.stops = append(w.stops, stop)
	w.t.Cleanup(stop)
}

// must returns the value, or stops the test.
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// request sends a request over the socket.
func (w *testServer) request(method, path, body string) *httptest.ResponseRecorder {
	w.t.Helper()
	return w.send(httptest.NewRequest(method, path, strings.NewReader(body)))
}

func (w *testServer) send(r *http.Request) *httptest.ResponseRecorder {
	out := httptest.NewRecorder()
	w.local.ServeHTTP(out, r)
	return out
}

// download downloads the files of a droplet or package from the URL that the API names.
// It needs no token.
func (w *testServer) download(at string) *httptest.ResponseRecorder {
	w.t.Helper()
	to := w.want(302, "GET", at+"/download", "", nil).Get("Location")
	out := httptest.NewRecorder()
	r := httptest.NewRequest("GET", to, http.NoBody)
	w.listener.ServeHTTP(out, r)
	if out.Code != 200 {
		w.t.Fatalf("%s: %d %s", to, out.Code, out.Body)
	}
	return out
}

// want sends a request, checks its status, and decodes the response into out.
func (w *testServer) want(status int, method, path, body string, out any) http.Header {
	w.t.Helper()
	got := w.request(method, path, body)
	if got.Code != status {
		w.t.Fatalf("%s %s = %d %s, want %d", method, path, got.Code, got.Body, status)
	}
	if out != nil {
		if err := json.Unmarshal(got.Body.Bytes(), out); err != nil {
			w.t.Fatalf("%s %s answers what is not JSON of its shape: %v\n%s", method, path, err, got.Body)
		}
	}
	return got.Header()
}

// finish waits for the job that a response names.
func (w *testServer) finish(h http.Header) v3.Job {
	w.t.Helper()
	path, absolute := strings.CutPrefix(h.Get("Location"), publicURL)
	if !absolute || path == "" {
		w.t.Fatalf("Location = %q, want an absolute URL", h.Get("Location"))
	}
	var j v3.Job
	testkit.Eventually(w.t, "the job ends", func() error {
		j = v3.Job{}
		w.want(http.StatusOK, http.MethodGet, path, "", &j)
		if j.State == v3.JobProcessing || j.State == v3.JobPolling {
			return fmt.Errorf("job = %+v", j)
		}
		return nil
	})
	return j
}

func (w *testServer) createApp(name string) v3.App {
	w.t.Helper()
	var a v3.App
	body := fmt.Sprintf(`{"name":%q,"relationships":{"space":{"data":{"guid":%q}}}}`, name, w.space.GUID)
	w.want(http.StatusCreated, http.MethodPost, "/v3/apps", body, &a)
	return a
}

// startedApp creates an app with a droplet and starts it.
func (w *testServer) startedApp(name string) v3.App {
	w.t.Helper()
	a := w.createApp(name)
	w.giveDroplet(a.GUID, map[string]string{"web": "serve"})
	w.want(http.StatusOK, http.MethodPost, "/v3/apps/"+a.GUID+"/actions/start", "", &a)
	return a
}

func (w *testServer) giveDroplet(appGUID string, commands map[string]string) string {
	w.t.Helper()
	guid := "droplet-of-" + appGUID
	if err := w.c.Shelf.Put(droplet.Droplet{GUID: guid, App: appGUID, Stack: "host", Commands: commands}); err != nil {
		w.t.Fatal(err)
	}
	w.want(http.StatusOK, http.MethodPatch, "/v3/apps/"+appGUID+"/relationships/current_droplet", `{"data":{"guid":"`+guid+`"}}`, nil)
	return guid
}

func (w *testServer) log(appGUID string) *logstream.Log {
	w.t.Helper()
	return must(w.c.Logs.App(appGUID))(w.t)
}

// print appends lines of the web process to an app's log.
func (w *testServer) print(appGUID string, texts ...string) {
	w.t.Helper()
	es := make([]logstream.Envelope, len(texts))
	for i, text := range texts {
		es[i] = logstream.Envelope{
			Source: logstream.Source{Type: "APP/PROC/WEB", InstanceID: "0123abcd-0123-0123-0123-0123"}, Stream: logstream.Out, Text: []byte(text),
		}
	}
	if err := w.log(appGUID).Append(es...); err != nil {
		w.t.Fatal(err)
	}
}

func eventTypes(es []v3.Event) []string {
	var out []string
	for _, e := range es {
		out = append(out, e.Type)
	}
	return out
}

// fakeProcesses returns the running processes that a test sets.
type fakeProcesses struct {
	mu        sync.Mutex
	slots     map[string][]runtime.Status
	signals   []string
	restarted []string
	panics    bool
	err       error
}

func (f *fakeProcesses) Instances(process string) []runtime.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics {
		panic("a bug")
	}
	return f.slots[process]
}

func (f *fakeProcesses) Usage(_ context.Context, process string, _ int) (runtime.Usage, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return runtime.Usage{CPU: 0.25, Entitled: 0.5, Memory: 64 << 20, Disk: 1 << 20, LogRate: 2048, Parts: []runtime.PartUsage{{Memory: 48 << 20}, {Sidecar: "config", Memory: 16 << 20, Limit: 32 << 20}}}, len(f.slots[process]) > 0
}

func (f *fakeProcesses) Signal(_ context.Context, process string, index int, sidecar string, sent runtime.SentSignal) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signals = append(f.signals, fmt.Sprintf("%s/%d/%s/%d", process, index, sidecar, sent.Number))
	return f.err
}

func (f *fakeProcesses) RestartInstance(process string, index int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if index >= len(f.slots[process]) {
		return fmt.Errorf("instance %d: %w", index, runtime.ErrNoInstance)
	}
	f.restarted = append(f.restarted, fmt.Sprintf("%s/%d", process, index))
	return nil
}

func (f *fakeProcesses) set(process string, slots ...runtime.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slots == nil {
		f.slots = map[string][]runtime.Status{}
	}
	for i := range slots {
		slots[i].Slot = runtime.SlotID{Process: process, Index: i}
	}
	f.slots[process] = slots
}

// syncBuffer collects log lines from many goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

var (
	someGUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	someTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	someNano = regexp.MustCompile(`"timestamp":"\d{19}"`)
)

// golden compares a body with the file of that name. GUIDs are numbered in the order of
// their appearance, and times have no digits.
func golden(t *testing.T, name string, body []byte) {
	t.Helper()
	seen := map[string]string{}
	text := someGUID.ReplaceAllStringFunc(string(body), func(guid string) string {
		if seen[guid] == "" {
			seen[guid] = fmt.Sprintf("guid-%d", len(seen)+1)
		}
		return seen[guid]
	})
	text = someTime.ReplaceAllString(text, "some-time")
	text = someNano.ReplaceAllString(text, `"timestamp":"some-nanoseconds"`)
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(text), "", "  "); err != nil {
		t.Fatalf("%s is not JSON: %v\n%s", name, err, text)
	}
	file := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(file, append(bytes.TrimSpace(pretty.Bytes()), '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("cannot read the golden file: %v (go test ./api -update)", err)
	}
	if diff := cmp.Diff(strings.TrimSpace(pretty.String()), strings.TrimSpace(string(want))); diff != "" {
		t.Errorf("%s differs (-got +want):\n%s", name, diff)
	}
}

// longTests reports whether the long versions of the tests are enabled.
func longTests() bool { return os.Getenv("DEW_PROOF") != "" }

func read(t testing.TB, r io.Reader) []byte {
	t.Helper()
	return must(io.ReadAll(r))(t)
}

// anyList is a page of any resources.
type anyList = v3.List[json.RawMessage]

func mustRead(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}
