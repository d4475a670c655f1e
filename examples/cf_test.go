//go:build integration

package examples_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// cfClient is the stock cf client, logged in.
type cfClient struct {
	t   *testing.T
	bin string
	dir string // working directory
}

func newCFClient(t *testing.T) *cfClient {
	t.Helper()
	bin := os.Getenv("CF_BIN")
	if bin == "" {
		t.Skip("CF_BIN is not set: give the path of a stock cf client, version 8")
	}
	password, err := os.ReadFile(filepath.Join(dewd.dir, "root", "admin-password"))
	if err != nil {
		t.Fatal(err)
	}
	s := &cfClient{t: t, bin: bin}
	s.cf(0, "api", dewd.status.API)
	s.cf(0, "auth", "admin", strings.TrimSpace(string(password)))
	s.cf(0, "target", "-o", "local", "-s", "dev")
	return s
}

// cf runs a command that must exit with a status, and returns its output.
func (s *cfClient) cf(status int, args ...string) string {
	s.t.Helper()
	r := dewd.within(5*patience, s.dir, s.bin, args...)
	if r.code != status {
		s.t.Fatalf("cf %s: status %d, want %d\n%s%s", strings.Join(args, " "), r.code, status, r.out, r.err)
	}
	return r.out + r.err
}

// outputMatches waits until the output of a command matches.
func (s *cfClient) outputMatches(pattern string, args ...string) {
	s.t.Helper()
	expression := regexp.MustCompile(pattern)
	eventually(s.t, "cf "+strings.Join(args, " "), func() error {
		if out := s.cf(0, args...); !expression.MatchString(out) {
			return fmt.Errorf("nothing matches %s:\n%s", pattern, out)
		}
		return nil
	})
}

// killConfigServer is a command that a user types in a shell of the container.
const killConfigServer = `for p in /proc/[0-9]*; do [ "$(cat $p/comm)" != config-server ] || kill -9 ${p#/proc/}; done`

// The app with the config sidecar is created, gets its manifest, is pushed and
// responds. A user kills the sidecar in a shell of the container, and the log records
// it.
func TestCFSidecarSample(t *testing.T) {
	const name = "config-sidecar"
	s := newCFClient(t)
	s.dir = sample(t)
	deleteLater(t, name)
	s.cf(0, "create-app", name)
	s.cf(0, "apply-manifest", "-f", "manifest.yml")
	s.cf(0, "push", name)
	waitForConfig(t, name)
	old := running(t, name, "web", 1)[0]
	// The instance stops, and the session with it. The status of the session is not
	// defined.
	dewd.within(patience, "", s.bin, "ssh", name, "-c", killConfigServer)
	s.outputMatches(`\[API/0\] OUT App instance exited with guid `+guidOf(t, name)+` payload: \{"instance":"`+old+`","index":0,"cellid":"[^"]+","reason":"CRASHED",`+
		`"exitdescription":"APP/PROC/WEB/SIDECAR/CONFIG-SERVER: Exited with status 137","crashcount":1,"crashtimestamp":\d+,"version":"[^"]+"\}`, "logs", name, "--recent")
	waitReplaced(t, name, 0, old)
	waitForConfig(t, name)
	s.outputMatches(`\[APP/PROC/WEB/0\] OUT GET /config\n`, "logs", name, "--recent")
	s.outputMatches(`\[APP/PROC/WEB/SIDECAR/CONFIG-SERVER/0\] OUT GET /config/\n`, "logs", name, "--recent")
}

// The Java app has the debug sidecar in its jar. A route to the sidecar's port works after
// a restart, and a thread dump is in the log. Without memory for the sidecar, the app does
// not start.
func TestCFDebugSidecar(t *testing.T) {
	const name = "java-threaddump"
	s := newCFClient(t)
	s.dir = threadDumpJar(t)
	deleteLater(t, name)
	s.cf(0, "push", name)
	waitForPage(t, name, "/", "hello from Java\n")

	var routes struct{ Resources []struct{ GUID string } }
	if err := json.Unmarshal([]byte(s.cf(0, "curl", "/v3/routes?hosts="+name)), &routes); err != nil || len(routes.Resources) != 1 {
		t.Fatalf("routes %+v, %v; want one", routes, err)
	}
	guid := strings.TrimSpace(s.cf(0, "app", name, "--guid"))
	body := fmt.Sprintf(`{"destinations":[{"app":{"guid":%q,"process":{"type":"web"}},"port":8081,"protocol":"http1"}]}`, guid)
	if out := s.cf(0, "curl", "-X", "PATCH", "/v3/routes/"+routes.Resources[0].GUID+"/destinations", "-d", body); !strings.Contains(out, `"port":8081`) {
		t.Errorf("the destination is not as asked: %s", out)
	}
	waitForPage(t, name, "/", "hello from Java\n") // until the restart nothing changes
	s.cf(0, "restart", name)
	eventually(t, "the sidecar asks who is there", func() error {
		if p := get(t, name, "/threaddump"); p.status != http.StatusUnauthorized {
			return fmt.Errorf("answer %d %q", p.status, p.body)
		}
		return nil
	})
	if p := getAs(t, name, "/threaddump", "debug", s.generatedPassword(name)); p.status != http.StatusOK || !strings.Contains(p.body, "for a thread dump") {
		t.Errorf("/threaddump answers %d %q", p.status, p.body)
	}
	s.outputMatches(`\[APP/PROC/WEB/0\] OUT Full thread dump`, "logs", name, "--recent")

	const refused = "sidecar 'debug' of process 'web' has no memory value"
	s.cf(0, "delete", name, "-f", "-r")
	if out := s.cf(1, "push", "-f", "manifest-without-memory.yml"); !strings.Contains(out, refused) {
		t.Errorf("the push does not say why:\n%s", out)
	}
	s.outputMatches(`\[API/0\] ERR `+refused, "logs", name, "--recent")
}

// generatedPassword returns the password that the sidecar logged last.
func (s *cfClient) generatedPassword(app string) string {
	s.t.Helper()
	matches := regexp.MustCompile(`user debug has the password (\S+)`).FindAllStringSubmatch(s.cf(0, "logs", app, "--recent"), -1)
	if len(matches) == 0 {
		s.t.Fatal("the log does not tell the password")
	}
	return matches[len(matches)-1][1]
}

// getAs requests a path of an app from the router, with a user and a password.
func getAs(t *testing.T, host, path, user, password string) page {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, dewd.status.Router+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host + "." + dewd.status.Domain
	req.SetBasicAuth(user, password)
	return ask(t, http.DefaultTransport, req)
}

// The service of the app with the database is created in the background and bound. After
// a restage it is in the app's environment.
func TestCFDatabaseApp(t *testing.T) {
	const name, db = "users-database", "db"
	s := newCFClient(t)
	s.dir = program(t, name, "  env: {DB_CONNECTION: postgres, DB_PORT: 9}\n") // so that it starts before a service is bound
	if out := s.cf(0, "marketplace"); !regexp.MustCompile(`(?m)^postgres +small, large `).MatchString(out) {
		t.Errorf("the marketplace has no postgres:\n%s", out)
	}
	t.Cleanup(func() { dewd.dew("", "delete-service", db, "-f", "--wait") })
	if out := s.cf(0, "create-service", "postgres", "small", db); !strings.Contains(out, "Create in progress") {
		t.Errorf("create-service says %s", out)
	}
	deleteLater(t, name)
	s.cf(0, "push", name)
	s.outputMatches(`status: +create succeeded`, "service", db)
	if out := s.cf(0, "bind-service", name, db); !strings.Contains(out, "cf restage "+name) {
		t.Errorf("bind-service says %s", out)
	}
	wantErrorPage(t, name, "/migrate") // the app does not have the credentials yet
	s.cf(0, "restage", name)
	if p := usersPage(t, name, "/migrate"); p["migrated"] != true {
		t.Errorf("/migrate answers %v", p)
	}
	usersAreListed(t, name)
	if p := usersPage(t, name, "/users/delete"); fmt.Sprint(p) != "map[users:[]]" {
		t.Errorf("/users/delete answers %v", p)
	}
	if p := usersPage(t, name, "/users"); p["count"] != 0.0 {
		t.Errorf("/users answers %v, want none", p)
	}
	if out := s.cf(0, "env", name); !strings.Contains(out, `"postgres": [`) {
		t.Errorf("VCAP_SERVICES lacks the database:\n%s", out)
	}
}
