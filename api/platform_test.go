package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/runtimetest"
	"github.com/dewrun/dew/runtime/supervisor"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/builtin"
	"github.com/dewrun/dew/services/marketplace"
	"github.com/dewrun/dew/store"
)

// wholePlatform is the server with all its real parts except containers. Tests send
// requests over the listener, with a token.
type wholePlatform struct {
	t        testing.TB
	c        Config
	listener http.Handler
	sup      *supervisor.Supervisor
	fake     *runtimetest.Fake
	broker   *fakeBroker
	password string // password of admin
}

func newPlatform(t testing.TB) *wholePlatform {
	t.Helper()
	dir := firstStart(t)
	db := must(store.Open(filepath.Join(dir, "dew.db"), store.Options{NoSync: true}))(t)
	t.Cleanup(func() { _ = db.Close() })
	log := slog.New(slog.DiscardHandler)
	stored := must(logstream.Open(filepath.Join(dir, "logs"), logstream.Options{}))(t)
	t.Cleanup(func() { _ = stored.Close() })
	reg := registry.New(db)
	shelf := must(droplet.NewDroplets(db, filepath.Join(dir, "droplets")))(t)
	packages := must(droplet.NewPackages(db, droplet.PackageOptions{Dir: filepath.Join(dir, "packages"), MinFree: -1, Logger: log}))(t)
	stacks := func(string) (stack.Stack, error) { return stack.Stack{Name: "host"}, nil }
	lines := appLogs{runtime.AppLogs{Logs: stored}}
	builds := droplet.NewBuilds(db, packages, shelf, droplet.BuildOptions{
		Stacks: stacks, Logger: log, Say: lines.stage, Version: "dev", StackStore: must(stack.Open(db, stackOptions(t, dir)))(t),
	})
	p := &wholePlatform{t: t, fake: runtimetest.NewFake()}
	p.sup = must(supervisor.New(supervisor.Config{
		Engine: fakeStarts{p.fake}, Registry: reg, Droplets: shelf, Stacks: stacks, Logs: lines, DB: db, Cell: "cell",
		Subnet: netip.MustParsePrefix("10.201.0.0/20"), PublicURL: publicURL, Logger: log,
	}))(t)
	reg.Listen(p.sup.Sync)
	reg.ListenTasks(p.sup.SyncTask)
	accounts := must(auth.Open(authConfig(db, dir)))(t)
	p.password = strings.TrimSpace(string(must(os.ReadFile(filepath.Join(dir, "admin-password")))(t)))
	p.c = Config{
		DB: db, Registry: reg, Events: registry.NewEvents(db), Jobs: registry.NewJobs(db, log), Packages: packages, Builds: builds, Shelf: shelf,
		Catalog:   must(droplet.NewCatalog(db, droplet.CatalogOptions{Packages: droplet.PackageOptions{Dir: filepath.Join(dir, "buildpacks")}}))(t),
		Processes: p.sup, Exits: p.sup.Exits(), Logs: stored, Auth: accounts, Roles: auth.NewRoles(db), PublicURL: publicURL, Version: "1.2.3", Logger: log, BrokerWait: time.Second, // as dewd configures it
		UploadDir: filepath.Join(dir, "uploads"), SSH: &platform.SSHEndpoint{Address: "127.0.0.1:2222", Fingerprint: "0123456789abcdefABCDEF+/0123456789abcdefABC"},
	}
	p.broker = newFakeBroker()
	p.c.Services = marketplace.New(marketplace.Config{DB: db, Registry: reg, Events: p.c.Events, Logger: log, Builtin: databases{p.broker}})
	if err := p.c.Services.LoadBuiltinCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.listener = must(New(p.c))(t).Handler()
	w := &testServer{t: t}
	for _, loop := range []func(context.Context) error{p.c.Jobs.Run, builds.Run, p.sup.Run, p.c.Services.Run} {
		w.run(loop)
	}
	return p
}

// databases is a fake of the built-in broker with the real catalog.
type databases struct{ *fakeBroker }

// Catalog returns the real catalog, which needs no database.
func (databases) Catalog(ctx context.Context) ([]services.CatalogOffering, error) {
	return new(builtin.Broker).Catalog(ctx)
}

// fakeStarts starts apps although their files are fakes. A program of the app keeps
// running, and a shell command does what it says.
type fakeStarts struct{ *runtimetest.Fake }

func (e fakeStarts) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	s.Image = ""
	s.Processes = slices.Clone(s.Processes)
	for i := range s.Processes {
		switch c := s.Processes[i].Command; {
		case strings.HasPrefix(c, "./"):
			s.Processes[i].Command = "stand-in"
		case c == "true":
			s.Processes[i].Command = "exit 0"
		}
	}
	return e.Fake.Start(ctx, s)
}

// appLogs stores the lines of each app.
type appLogs struct{ runtime.AppLogs }

func (l appLogs) stage(guid, line string) {
	_ = l.Append(guid, logstream.Envelope{Source: logstream.Source{Type: "STG"}, Stream: logstream.Out, Text: []byte(line)})
}

func (p *wholePlatform) send(r *http.Request) *httptest.ResponseRecorder {
	r.RemoteAddr, r.Host = "127.0.0.1:4711", strings.TrimPrefix(publicURL, "http://")
	out := httptest.NewRecorder()
	p.listener.ServeHTTP(out, r)
	return out
}

// grant requests a token as the client does. If client is nil, the form contains the
// credentials.
func (p *wholePlatform) grant(client *url.Userinfo, form url.Values) (status int, answer map[string]any) {
	p.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/uaa/oauth/token", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	if client != nil {
		secret, _ := client.Password()
		r.SetBasicAuth(client.Username(), secret)
	}
	got := p.send(r)
	if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil {
		p.t.Fatalf("a grant answers what is not JSON: %v\n%s", err, got.Body)
	}
	return got.Code, answer
}

// login returns a visit with the token of a user.
func (p *wholePlatform) login(name, password string) *tokenClient {
	p.t.Helper()
	status, answer := p.grant(url.UserPassword("cf", ""), url.Values{"grant_type": {"password"}, "username": {name}, "password": {password}})
	token, _ := answer["access_token"].(string)
	if status != http.StatusOK || token == "" {
		p.t.Fatalf("login of %s: %d %v", name, status, answer)
	}
	return &tokenClient{p: p, token: token}
}

func (p *wholePlatform) admin() *tokenClient {
	p.t.Helper()
	return &tokenClient{p: p, token: must(p.c.Auth.UserToken(auth.AdminName))(p.t)}
}

// tokenClient sends requests with a token.
type tokenClient struct {
	p     *wholePlatform
	token string
}

// request sends a request as the client does: with a content type, even if there is no
// body.
func (v *tokenClient) request(method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(body, "applications:") {
		r.Header.Set("Content-Type", "application/x-yaml")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Authorization", "bearer "+v.token)
	return v.p.send(r)
}

// want sends a request, checks its status and decodes the response.
func (v *tokenClient) want(status int, method, path, body string) (answer map[string]any, header http.Header) {
	v.p.t.Helper()
	got := v.request(method, path, body)
	if got.Code != status {
		v.p.t.Fatalf("%s %s = %d %s, want %d", method, path, got.Code, got.Body, status)
	}
	if got.Body.Len() > 0 {
		if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil {
			v.p.t.Fatalf("%s %s answers what is not an object: %v\n%s", method, path, err, got.Body)
		}
	}
	return answer, got.Header()
}

// get sends a GET request and decodes the response.
func (v *tokenClient) get(path string) map[string]any {
	v.p.t.Helper()
	answer, _ := v.want(http.StatusOK, http.MethodGet, path, "")
	return answer
}
