//go:build integration

package main

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	doraPassword   = "not-a-real-p4ssword"
	clientSecret   = "not-a-real-s3cret"
	serving        = "./testapp serve 0.0.0.0:8080"
	sleepy         = "sleep 1000000"
	sidecarKilled  = "APP/PROC/WEB/SIDECAR/CONFIG-SERVER: Exited with status 137"
	oneRunning     = "instances: 1/1"
	startFailed    = "Start unsuccessful"
	badCredentials = "Credentials were rejected, please try again."
)

// The stock client does its work, from the first login to the last logout: as an
// administrator, as a developer of one space, as a client without a user.
func TestCF(t *testing.T) {
	s := newStock(t)
	s.tape.Hide(doraPassword, "$password-dora")
	s.tape.Hide(clientSecret, "$password-client")
	s.layOut()
	for _, part := range []struct {
		name string
		run  func()
	}{
		{"login", s.logsIn},
		{"places", s.makesPlaces},
		{"accounts", s.makesAccounts},
		{"push", s.pushes},
		{"lifecycle", s.startsAndStops},
		{"scale", s.scales},
		{"env", s.setsVariables},
		{"logs", s.readsLogs},
		{"looks", s.looks},
		{"curl", s.curls},
		{"routes", s.routes},
		{"failures", s.fails},
		{"sidecar", s.sidecarProcedure},
		{"rights", s.staysInside},
		{"client", s.comesAsClient},
		{"end", s.cleansUp},
	} {
		if t.Failed() && os.Getenv("DEW_RECORD") == "1" {
			t.Fatal("not recorded further: what follows a failure says nothing")
		}
		t.Logf("---- %s", part.name)
		part.run()
	}
	s.finish()
}

// layOut makes the folders that are pushed.
func (s *stock) layOut() {
	s.t.Helper()
	program := s.readFile(filepath.Join(programs, "testapp"))
	s.tape.Pushes("testapp", program)
	s.write("site/testapp", program)
	s.write("site/hello.txt", []byte("hello\n"))
	s.write("site/.cfignore", []byte("*.secret\n"))
	s.write("site/not.secret", []byte("stays at home\n"))
	s.write("small/hello.txt", []byte("hello\n"))
	s.write("site.yml", []byte("applications:\n- name: site\n  path: site\n  command: "+serving+"\n  memory: 128M\n  env:\n    COLOUR: green\n"))
	s.write("broken.yml", []byte("applications:\n- name: broken\n  path: small\n  memory: lots\n  sidecars:\n  - name: aide\n    command: run\n"))
	s.zip("site.zip", map[string][]byte{"testapp": program, "hello.txt": []byte("hello\n"), "zipped.txt": []byte("from a zip\n")})
}

func (s *stock) readFile(path string) []byte {
	s.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func (s *stock) write(name string, data []byte) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stock) zip(name string, files map[string][]byte) {
	s.t.Helper()
	f, err := os.Create(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	w := zip.NewWriter(f)
	for name, data := range files {
		p, err := w.Create(name)
		if err == nil {
			_, err = p.Write(data)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stock) logsIn() {
	s.says(s.cf(0, "api", s.url), "API endpoint: "+s.url, `^API version: +3\.\d+\.\d+$`)
	s.says(s.cf(1, "auth", "admin", "wrong"), badCredentials)
	s.says(s.cf(1, "apps"), "Not logged in. Use 'cf login' or 'cf login --sso' to log in.")
	s.says(s.cf(0, "login", "-u", "admin", "-p", s.adminPassword(), "-o", "local", "-s", "dev"),
		"Targeted org local.", "Targeted space dev.", "user: admin")
	s.says(s.cf(0, "auth", "admin", s.adminPassword()), "OK")
	s.says(s.cf(0, "target", "-o", "local"), "org: local", "space: dev")
	s.says(s.cf(0, "target"), "user: admin", "org: local", "space: dev")
}

func (s *stock) makesPlaces() {
	s.says(s.cf(0, "orgs"), "local", "!acme")
	s.says(s.cf(0, "create-org", "acme"), "OK")
	s.says(s.cf(0, "create-org", "acme"), "Organization 'acme' already exists.", "OK")
	s.says(s.cf(0, "orgs"), "acme", "local")
	s.says(s.cf(0, "create-space", "garden", "-o", "acme"),
		"Assigning role SpaceManager to user admin in org acme / space garden as admin...",
		"Assigning role SpaceDeveloper to user admin in org acme / space garden as admin...")
	s.says(s.cf(0, "create-space", "garden", "-o", "acme"), "Space 'garden' already exists.", "OK")
	s.says(s.cf(0, "target", "-o", "acme", "-s", "garden"), "org: acme", "space: garden")
	s.says(s.cf(0, "spaces"), "garden", "!dev")
	s.says(s.cf(0, "org", "acme", "--guid"), `^[0-9a-f-]{36}$`)
	s.says(s.cf(0, "org", "acme"), "name: acme", "domains: apps.internal, dew.localhost", "spaces: garden")
	s.says(s.cf(0, "space", "garden", "--guid"), `^[0-9a-f-]{36}$`)
	s.says(s.cf(0, "space", "garden"), "name: garden", "org: acme")
	s.says(s.cf(1, "space", "nowhere"), "Space 'nowhere' not found.", "FAILED")
}

func (s *stock) makesAccounts() {
	s.says(s.cf(0, "create-user", "dora", doraPassword), "OK")
	s.says(s.cf(0, "create-user", "dora", doraPassword), "User 'dora' already exists.", "OK")
	s.says(s.cf(0, "set-space-role", "dora", "acme", "garden", "SpaceDeveloper"), "OK")
	s.says(s.cf(0, "space-users", "acme", "garden"), "SPACE DEVELOPER", "dora (uaa)", "admin (uaa)")
	s.says(s.cf(0, "curl", "/uaa/oauth/clients", "-X", "POST", "-d",
		`{"client_id":"ci","client_secret":"`+clientSecret+`","authorized_grant_types":["client_credentials"],"authorities":["cloud_controller.admin"]}`),
		`^.*"client_id": ?"ci".*$`)
	s.says(s.cf(0, "domains"), `^dew\.localhost +shared`)
	s.says(s.cf(0, "buildpacks"), `^[0-9]+ .*binary_buildpack`)
	s.says(s.cf(0, "stacks"), `^host\b`)
	s.says(s.cf(0, "feature-flags"), `^diego_docker +(enabled|disabled)`)
	s.says(s.cf(0, "logout"), "OK")
	s.says(s.cf(0, "login", "-u", "dora", "-p", doraPassword), "Targeted org acme.", "Targeted space garden.")
	s.says(s.cf(0, "spaces"), "garden", "!dev")
	s.says(s.cf(0, "orgs"), "acme", "!local")
}

func (s *stock) pushes() {
	s.says(s.cf(0, "create-app", "shelf"), "OK")
	s.says(s.cf(0, "create-app", "shelf"), `^.*(already exists|unique in space).*$`, "OK")
	s.says(s.cf(1, "start", "shelf"), `^App can ?not start with ?out a package to stage or a droplet to run\.$`, "FAILED")

	site := []string{"push", "site", "--no-manifest", "-p", "site", "-c", serving, "-m", "128M", "-k", "256M", "-i", "1", "-b", "binary_buildpack", "-t", "60", "-u", "port"}
	r := s.cf(0, site...)
	s.says(r, "name: site", "requested state: started", "routes: site.dew.localhost", "type: web", oneRunning, "start command: "+serving,
		`^memory usage: +128M$`, `^#0 +running `, "!"+startFailed)
	s.answers("site.dew.localhost")
	s.says(s.cf(0, site...), "All files found in remote cache; nothing to upload.", oneRunning)
	s.write("site/hello.txt", []byte("hello again\n"))
	s.write("site/empty/.keep", nil)
	s.says(s.cf(0, site...), "Uploading files...", oneRunning)
	s.says(s.cf(0, "push", "site", "--no-manifest", "-p", "site.zip"), oneRunning, "routes: site.dew.localhost")
	s.says(s.cf(0, "push", "-f", "site.yml", "-m", "96M"), `^memory usage: +96M$`, oneRunning, `^.*COLOUR: green$`)

	s.says(s.cf(0, "push", "bare", "--no-manifest", "-p", "small", "-c", sleepy, "-u", "process", "-m", "32M", "-b", "binary_buildpack", "--no-route", "--no-start"),
		"name: bare", "requested state: stopped", `^routes: *$`, "instances: 0/1", `^#0 +down `)
	s.says(s.cf(0, "start", "bare"), oneRunning, "requested state: started")
	s.says(s.cf(0, "push", "wanderer", "--no-manifest", "-p", "small", "-c", sleepy, "-u", "process", "-m", "32M", "-b", "binary_buildpack", "--random-route", "--no-start"),
		`^routes: +wanderer-[a-z0-9-]+\.dew\.localhost$`)
	s.says(s.cf(0, "push", "checked", "--no-manifest", "-p", "small", "-c", serving, "-u", "http", "--endpoint", "/health", "-b", "binary_buildpack", "--no-start"),
		"requested state: stopped")
	s.says(s.cf(0, "get-health-check", "checked"), `^web +http +/health +1$`)
}

// answers wants the app behind a route to say hello.
func (s *stock) answers(host string) {
	s.t.Helper()
	s.eventually("a route to "+host, func() error {
		body, err := s.get(host, "/")
		if err == nil && body != "hello\n" {
			err = fmt.Errorf("answer %q", body)
		}
		return err
	})
}

func (s *stock) get(host, path string) (string, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.frontAddress()+path, http.NoBody)
	if err != nil {
		return "", err
	}
	r.Host = host
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// frontAddress is where app routes are served.
func (s *stock) frontAddress() string {
	s.t.Helper()
	if s.front != "" {
		return s.front
	}
	out, err := s.dewCommand("status", "--json").Output()
	var st struct{ Router string }
	if err == nil {
		err = json.Unmarshal(out, &st)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.front = st.Router
	return s.front
}

func (s *stock) startsAndStops() {
	s.says(s.cf(0, "app", "site"), "name: site", "requested state: started", "routes: site.dew.localhost", oneRunning, "sidecars:")
	s.says(s.cf(0, "app", "site", "--guid"), `^[0-9a-f-]{36}$`)
	s.says(s.cf(0, "apps"), `^site +started +web:1/1 +site\.dew\.localhost$`, `^bare +started +web:1/1 *$`, `^shelf +stopped +web:0/1 *$`)
	s.says(s.cf(0, "stop", "site"), "OK")
	s.says(s.cf(0, "stop", "site"), "App site is already stopped.", "OK")
	s.says(s.cf(0, "start", "site"), oneRunning)
	s.says(s.cf(0, "start", "site"), "App 'site' is already started.", "OK")
	s.says(s.cf(0, "restart", "site"), oneRunning)
	s.says(s.cf(0, "restage", "bare"), oneRunning)
	s.says(s.cf(0, "restart-app-instance", "site", "0"), "OK")
	s.eventuallySays("running", "app", "site")
	s.says(s.cf(1, "restart-app-instance", "site", "7"), "FAILED")
	s.says(s.cf(0, "stop", "bare"), "OK")
}

func (s *stock) scales() {
	s.says(s.cf(0, "scale", "site"), `^memory usage: +96M$`, oneRunning)
	s.cf(0, "scale", "site", "-i", "2")
	s.eventuallySays("2/2", "app", "site")
	s.says(s.cf(0, "app", "site"), "instances: 2/2", `^#1 +running `)
	s.says(s.cf(0, "scale", "site", "-i", "1"), oneRunning)
	s.says(s.cf(0, "scale", "site", "-m", "64M", "-k", "200M", "-f"), `^memory usage: +64M$`, oneRunning, `^#0 +running .* of 64M .* of 200M`)
	s.says(s.cf(1, "scale", "site", "--process", "worker", "-i", "2"), "Process worker not found", "FAILED")
}

func (s *stock) setsVariables() {
	s.says(s.cf(0, "set-env", "site", "SHAPE", "round"), "OK")
	s.says(s.cf(0, "env", "site"), "COLOUR: green", "SHAPE: round", `^.*"application_name": "site".*$`)
	s.says(s.cf(0, "unset-env", "site", "SHAPE"), "OK")
	s.says(s.cf(0, "unset-env", "site", "SHAPE"), "Env variable SHAPE was not set.", "OK")
	s.says(s.cf(0, "env", "site"), "COLOUR: green", "!SHAPE: round")
}

func (s *stock) readsLogs() {
	s.eventuallySays("listening on 0.0.0.0:8080", "logs", "site", "--recent")
	s.says(s.cf(0, "logs", "site", "--recent"),
		`^ *\S+ \[APP/PROC/WEB/0\] OUT listening on 0\.0\.0\.0:8080$`, `^ *\S+ \[API/0\] OUT Created app with guid [0-9a-f-]{36}$`,
		`^ *\S+ \[CELL/0\] OUT Container became healthy`, `^ *\S+ \[STG/0\] OUT `)
	s.follow("listening on", "logs", "site")
}

func (s *stock) looks() {
	s.says(s.cf(0, "events", "site"), `^\S+ +audit\.app\.process\.scale +dora`, `^\S+ +audit\.app\.start +dora`, `^\S+ +audit\.app\.apply_manifest +dora`)
	s.says(s.cf(0, "droplets", "site"), `^[0-9a-f-]{36} \(current\) +staged `)
	s.says(s.cf(0, "packages", "site"), `^[0-9a-f-]{36} +ready `)
	s.says(s.cf(0, "create-app-manifest", "site", "-p", "written.yml"), "OK")
	text := string(s.readFile(filepath.Join(s.dir, "written.yml")))
	for _, want := range []string{"applications:\n- name: site\n", serving, "COLOUR: green", "route: site.dew.localhost", "memory: 64M"} {
		if !strings.Contains(text, want) {
			s.t.Errorf("the manifest lacks %q:\n%s", want, text)
		}
	}
}

func (s *stock) curls() {
	s.says(s.cf(0, "curl", "/v3/apps?names=site"), `"name":"site"`)
	guid := strings.TrimSpace(s.eventuallySays("-", "app", "shelf", "--guid"))
	s.says(s.cf(0, "curl", "-X", "PATCH", "/v3/apps/"+guid, "-d", `{"metadata":{"labels":{"tier":"front"}}}`), `"labels":{"tier":"front"}`)
	s.says(s.cf(0, "curl", "/v3/apps/"+guid+"/sidecars", "-d", `{"name":"aide","command":"sleep 1000000","process_types":["web"],"memory_in_mb":16}`), `"name":"aide"`)
	s.says(s.cf(0, "curl", "/v3/apps/no-such-app"), "App not found")
	s.says(s.cf(22, "curl", "-f", "/v3/apps/no-such-app"), "!"+"OK")
	s.says(s.cf(0, "curl", "/v3/no_such_thing"), "Unknown request")
}

func (s *stock) routes() {
	s.says(s.cf(0, "routes"), "garden site dew.localhost http http1 8080 site")
	s.says(s.cf(0, "create-route", "dew.localhost", "--hostname", "second", "--path", "/deep"), "Route second.dew.localhost/deep has been created.", "OK")
	s.says(s.cf(0, "create-route", "dew.localhost", "--hostname", "second", "--path", "/deep"), `^.*Route already exists.*$`, "OK")
	s.says(s.cf(0, "map-route", "site", "dew.localhost", "--hostname", "second", "--path", "/deep"), "OK")
	s.says(s.cf(0, "map-route", "site", "dew.localhost", "--hostname", "third"), "Creating route third.dew.localhost for org acme / space garden as dora...", "OK")
	s.says(s.cf(0, "map-route", "site", "dew.localhost", "--hostname", "third"), `^.*already mapped to.*$`, "OK")
	s.answers("third.dew.localhost")
	s.says(s.cf(0, "routes"), "garden second dew.localhost /deep http http1 8080 site", "garden third dew.localhost http http1 8080 site")
	s.says(s.cf(0, "unmap-route", "site", "dew.localhost", "--hostname", "third"), "OK")
	s.says(s.cf(0, "delete-route", "dew.localhost", "--hostname", "third", "-f"), "OK")
	s.says(s.cf(0, "delete-route", "dew.localhost", "--hostname", "third", "-f"), "Unable to delete. Route with host 'third', domain 'dew.localhost', and path '/' not found.", "OK")
	s.says(s.cf(1, "create-route", "nowhere.example"), "Domain 'nowhere.example' not found.", "FAILED")
}

func (s *stock) fails() {
	s.says(s.cf(1, "app", "nobody"), "App 'nobody' not found.", "FAILED")
	s.says(s.cf(1, "push", "-f", "broken.yml"), `^.*(memory|process_types).*$`, "FAILED")
	s.says(s.cf(1, "push", "doomed", "--no-manifest", "-p", "small", "-c", "echo doomed; exit 7", "-u", "process", "-m", "32M", "-b", "binary_buildpack", "--no-route"),
		startFailed, "FAILED", `^#0 +crashed `)
	s.says(s.cf(0, "delete", "doomed", "-f"), "OK")
	s.says(s.cf(0, "delete", "doomed", "-f"), "App 'doomed' does not exist.", "OK")
	s.says(s.cf(0, "rename", "bare", "plain"), "OK")
	s.says(s.cf(0, "app", "plain", "--guid"), `^[0-9a-f-]{36}$`)
	s.says(s.cf(1, "rename", "plain", "site"), "FAILED")
	s.says(s.cf(0, "delete", "plain", "-f", "-r"), "OK")
	s.says(s.cf(0, "delete", "site", "-f", "-r"), "OK")
}

// sidecarProcedure is what people read who want an app with a sidecar: create the
// app, put a manifest into its root, apply it, push; and kill the sidecar to see
// both come back and the exit on record.
func (s *stock) sidecarProcedure() {
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(s.dir, "sample", "build")+"/", "../../examples/config-sidecar/app", "../../examples/config-sidecar/config-server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"app", "config-server"} {
		s.tape.Pushes(name, s.readFile(filepath.Join(s.dir, "sample/build", name)))
	}
	s.write("sample/manifest.yml", s.readFile("../../examples/config-sidecar/manifest.yml"))
	home := s.dir
	s.dir = filepath.Join(home, "sample")
	defer func() { s.dir = home }()

	s.says(s.cf(0, "create-app", "config-sidecar"), "OK")
	s.says(s.cf(0, "apply-manifest", "-f", "manifest.yml"), "OK", `^.*command: ./config-server$`)
	s.says(s.cf(0, "push", "config-sidecar"), "sidecars: config-server", oneRunning, "routes: config-sidecar.dew.localhost")
	s.config()
	id, leaves := only(s.t, s.running("sidecar-0"))
	killPID(s.t, leaves["sidecar-0"][0])
	s.before = append(s.before, "kill config-sidecar web 0 config-server")
	s.eventuallySays(sidecarKilled, "logs", "config-sidecar", "--recent")
	s.eventually("another instance runs", func() error {
		if _, there := s.running("sidecar-0")[id]; there {
			return fmt.Errorf("instance %s is still there", id)
		}
		return nil
	})
	s.eventuallySays("running", "app", "config-sidecar")
	s.config()
	s.says(s.cf(0, "logs", "config-sidecar", "--recent"),
		`^ *\S+ \[API/0\] OUT App instance exited with guid [0-9a-f-]{36} payload: \{"instance":"[0-9a-f-]{28}","index":0,"cellid":"[0-9a-f-]{36}","reason":"CRASHED","exitdescription":"`+
			sidecarKilled+`","crashcount":1,"crashtimestamp":\d+,"version":"[0-9a-f-]{36}"\}$`,
		`^ *\S+ \[APP/PROC/WEB/0\] OUT GET /config$`, `^ *\S+ \[APP/PROC/WEB/SIDECAR/CONFIG-SERVER/0\] OUT GET /config/$`)
	s.says(s.cf(0, "events", "config-sidecar"), `^\S+ +app\.crash +config-sidecar +index: 0, reason: CRASHED, .*`+sidecarKilled)
	s.says(s.cf(0, "delete", "config-sidecar", "-f", "-r"), "OK")
}

// config wants the app to answer with what its sidecar says.
func (s *stock) config() {
	s.t.Helper()
	s.eventually("the sidecar's answer", func() error {
		body, err := s.get("config-sidecar.dew.localhost", "/config")
		if err == nil && !strings.Contains(body, `"scope":"some-service.admin"`) {
			err = fmt.Errorf("answer %q", body)
		}
		return err
	})
}

// running are the instances that have a process in a leaf.
func (s *stock) running(leaf string) map[string]map[string][]int {
	out := map[string]map[string][]int{}
	for id, leaves := range s.leaves() {
		if len(leaves[leaf]) > 0 {
			out[id] = leaves
		}
	}
	return out
}

// staysInside is a developer who tries what is not hers.
func (s *stock) staysInside() {
	const refused = "You are not authorized to perform the requested action"
	s.says(s.cf(1, "create-org", "mine"), refused, "FAILED")
	s.says(s.cf(1, "create-space", "mine", "-o", "acme"), refused, "FAILED")
	s.says(s.cf(1, "target", "-o", "local"), "Organization 'local' not found.", "FAILED")
	s.says(s.cf(1, "delete-space", "garden", "-o", "acme", "-f"), refused, "FAILED")
	s.says(s.cf(1, "create-user", "eve", doraPassword), "FAILED")
	s.says(s.cf(1, "delete-org", "acme", "-f"), refused, "FAILED")
	s.says(s.cf(0, "logout"), "OK")
}

func (s *stock) comesAsClient() {
	s.says(s.cf(1, "auth", "ci", "wrong", "--client-credentials"), badCredentials)
	s.says(s.cf(0, "auth", "ci", clientSecret, "--client-credentials"), "OK")
	s.says(s.cf(0, "target", "-o", "acme", "-s", "garden"), "user: ci", "org: acme", "space: garden")
	s.says(s.cf(0, "apps"), `^shelf +stopped`)
	s.says(s.cf(0, "create-space", "shed", "-o", "acme"), "OK")
	s.says(s.cf(0, "logout"), "OK")
}

func (s *stock) cleansUp() {
	s.says(s.cf(0, "login", "-u", "admin", "-p", s.adminPassword(), "-o", "acme", "-s", "garden"), "Targeted space garden.")
	s.says(s.cf(0, "push", "tool", "--no-manifest", "-p", "small", "-c", sleepy, "-u", "process", "-m", "32M", "-b", "binary_buildpack", "-i", "2"),
		"routes: tool.dew.localhost", "requested state: started", `^instances: +[12]/2$`)
	s.eventuallySays("2/2", "app", "tool")
	s.says(s.cf(0, "apps"), `^tool +started +web:2/2 +tool\.dew\.localhost$`, `^shelf +stopped +web:0/1 *$`)
	s.says(s.cf(0, "restage", "tool"), `^instances: +[12]/2$`)
	s.says(s.cf(0, "unset-space-role", "dora", "acme", "garden", "SpaceDeveloper"), "OK")
	s.says(s.cf(0, "delete-user", "dora", "-f"), "OK")
	s.says(s.cf(0, "delete-space", "garden", "-o", "acme", "-f"), "OK")
	s.says(s.cf(0, "delete-org", "acme", "-f"), "OK")
	s.says(s.cf(0, "orgs"), "local", "!acme")
	s.says(s.cf(0, "logout"), "OK")
	s.says(s.cf(1, "orgs"), "Not logged in. Use 'cf login' or 'cf login --sso' to log in.")
}
