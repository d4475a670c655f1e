//go:build integration

package main

import (
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

// The cf CLI works from the first login to the last logout. It is used by an
// administrator, by a developer of one space, and by a client without a user.
func TestCF(t *testing.T) {
	s := newStock(t, "core")
	s.hide(doraPassword, "$password-dora")
	s.hide(clientSecret, "$password-client")
	s.layOut()
	s.parts(
		part{"login", s.logsIn},
		part{"places", s.makesPlaces},
		part{"accounts", s.makesAccounts},
		part{"push", s.pushes},
		part{"lifecycle", s.startsAndStops},
		part{"scale", s.scales},
		part{"env", s.setsVariables},
		part{"logs", s.readsLogs},
		part{"looks", s.looks},
		part{"curl", s.curls},
		part{"routes", s.routes},
		part{"failures", s.fails},
		part{"sidecar", s.sidecarProcedure},
		part{"rights", s.staysInside},
		part{"client", s.comesAsClient},
		part{"end", s.cleansUp},
	)
	s.finish()
}

// layOut creates the folders that are pushed.
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
	s.zip("site.zip", packed{"testapp", program}, packed{"hello.txt", []byte("hello\n")}, packed{"zipped.txt", []byte("from a zip\n")})
}

func (s *stock) logsIn() {
	s.cf("api $url", "API endpoint: "+s.url, `^API version: +3\.\d+\.\d+$`)
	s.refuses("auth admin wrong", badCredentials)
	s.refuses("apps", "Not logged in. Use 'cf login' or 'cf login --sso' to log in.")
	s.cf("login -u admin -p $password-admin -o local -s dev",
		"Targeted org local.", "Targeted space dev.", "user: admin")
	s.cf("auth admin $password-admin", "OK")
	s.cf("target -o local", "org: local", "space: dev")
	s.cf("target", "user: admin", "org: local", "space: dev")
}

func (s *stock) makesPlaces() {
	s.cf("orgs", "local", "!acme")
	s.cf("create-org acme", "OK")
	s.cf("create-org acme", "Organization 'acme' already exists.", "OK")
	s.cf("orgs", "acme", "local")
	s.cf("create-space garden -o acme",
		"Assigning role SpaceManager to user admin in org acme / space garden as admin...",
		"Assigning role SpaceDeveloper to user admin in org acme / space garden as admin...")
	s.cf("create-space garden -o acme", "Space 'garden' already exists.", "OK")
	s.cf("target -o acme -s garden", "org: acme", "space: garden")
	s.cf("spaces", "garden", "!dev")
	s.cf("org acme --guid", `^[0-9a-f-]{36}$`)
	s.cf("org acme", "name: acme", "domains: apps.internal, dew.localhost", "spaces: garden")
	s.cf("space garden --guid", `^[0-9a-f-]{36}$`)
	s.cf("space garden", "name: garden", "org: acme")
	s.refuses("space nowhere", "Space 'nowhere' not found.")
}

func (s *stock) makesAccounts() {
	s.cf("create-user dora $password-dora", "OK")
	s.cf("create-user dora $password-dora", "User 'dora' already exists.", "OK")
	s.cf("set-space-role dora acme garden SpaceDeveloper", "OK")
	s.cf("space-users acme garden", "SPACE DEVELOPER", "dora (uaa)", "admin (uaa)")
	s.cf(`curl /uaa/oauth/clients -X POST -d '{"client_id":"ci","client_secret":"$password-client","authorized_grant_types":["client_credentials"],"authorities":["cloud_controller.admin"]}'`,
		`^.*"client_id": ?"ci".*$`)
	s.cf("domains", `^dew\.localhost +shared`)
	s.cf("buildpacks", `^[0-9]+ .*binary_buildpack`)
	s.cf("stacks", `^host\b`)
	s.cf("feature-flags", `^diego_docker +(enabled|disabled)`)
	s.cf("logout", "OK")
	s.cf("login -u dora -p $password-dora", "Targeted org acme.", "Targeted space garden.")
	s.cf("spaces", "garden", "!dev")
	s.cf("orgs", "acme", "!local")
}

func (s *stock) pushes() {
	s.cf("create-app shelf", "OK")
	s.cf("create-app shelf", `^.*(already exists|unique in space).*$`, "OK")
	s.refuses("start shelf", `^App can ?not start with ?out a package to stage or a droplet to run\.$`)

	const site = "push site --no-manifest -p site -c '" + serving + "' -m 128M -k 256M -i 1 -b binary_buildpack -t 60 -u port"
	s.cf(site, "name: site", "requested state: started", "routes: site.dew.localhost", "type: web", oneRunning, "start command: "+serving,
		`^memory usage: +128M$`, `^#0 +running `, "!"+startFailed)
	s.answers("site.dew.localhost")
	s.cf(site, "All files found in remote cache; nothing to upload.", oneRunning)
	s.write("site/hello.txt", []byte("hello again\n"))
	s.write("site/empty/.keep", nil)
	s.cf(site, "Uploading files...", oneRunning)
	s.cf("push site --no-manifest -p site.zip", oneRunning, "routes: site.dew.localhost")
	s.cf("push -f site.yml -m 96M", `^memory usage: +96M$`, oneRunning, `^.*COLOUR: green$`)

	s.cf("push bare --no-manifest -p small -c '"+sleepy+"' -u process -m 32M -b binary_buildpack --no-route --no-start",
		"name: bare", "requested state: stopped", `^routes: *$`, "instances: 0/1", `^#0 +down `)
	s.cf("start bare", oneRunning, "requested state: started")
	s.cf("push wanderer --no-manifest -p small -c '"+sleepy+"' -u process -m 32M -b binary_buildpack --random-route --no-start",
		`^routes: +wanderer-[a-z0-9-]+\.dew\.localhost$`)
	s.cf("push checked --no-manifest -p small -c '"+serving+"' -u http --endpoint /health -b binary_buildpack --no-start",
		"requested state: stopped")
	s.cf("get-health-check checked", `^web +http +/health +1$`)
}

// answers checks that the app at a route answers hello.
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

// frontAddress returns the address of app routes.
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
	s.cf("app site", "name: site", "requested state: started", "routes: site.dew.localhost", oneRunning, "sidecars:")
	s.cf("app site --guid", `^[0-9a-f-]{36}$`)
	s.cf("apps", `^site +started +web:1/1 +site\.dew\.localhost$`, `^bare +started +web:1/1 *$`, `^shelf +stopped +web:0/1 *$`)
	s.cf("stop site", "OK")
	s.cf("stop site", "App site is already stopped.", "OK")
	s.cf("start site", oneRunning)
	s.cf("start site", "App 'site' is already started.", "OK")
	s.cf("restart site", oneRunning)
	s.cf("restage bare", oneRunning)
	s.cf("restart-app-instance site 0", "OK")
	s.eventuallySays("^#0 +running ", "app site")
	s.refuses("restart-app-instance site 7", "Instance 7 of process web not found")
	s.cf("stop bare", "OK")
}

func (s *stock) scales() {
	s.cf("scale site", `^memory usage: +96M$`, oneRunning)
	s.cf("scale site -i 2")
	s.eventuallySays("instances: 2/2", "app site")
	s.cf("app site", "instances: 2/2", `^#1 +running `)
	s.cf("scale site -i 1", oneRunning)
	s.cf("scale site -m 64M -k 200M -f", `^memory usage: +64M$`, oneRunning, `^#0 +running .* of 64M .* of 200M`)
	s.refuses("scale site --process worker -i 2", "Process worker not found")
}

func (s *stock) setsVariables() {
	s.cf("set-env site SHAPE round", "OK")
	s.cf("env site", "COLOUR: green", "SHAPE: round", `^.*"application_name": "site".*$`)
	s.cf("unset-env site SHAPE", "OK")
	s.cf("unset-env site SHAPE", "Env variable SHAPE was not set.", "OK")
	s.cf("env site", "COLOUR: green", "!SHAPE: round")
}

func (s *stock) readsLogs() {
	s.eventuallySays("listening on 0.0.0.0:8080", "logs site --recent")
	s.cf("logs site --recent",
		`^ *\S+ \[APP/PROC/WEB/0\] OUT listening on 0\.0\.0\.0:8080$`, `^ *\S+ \[API/0\] OUT Created app with guid [0-9a-f-]{36}$`,
		`^ *\S+ \[CELL/0\] OUT Container became healthy`, `^ *\S+ \[STG/0\] OUT `)
	s.follow("listening on", "logs site")
}

func (s *stock) looks() {
	s.cf("events site", `^\S+ +audit\.app\.process\.scale +dora`, `^\S+ +audit\.app\.start +dora`, `^\S+ +audit\.app\.apply_manifest +dora`)
	s.cf("droplets site", `^[0-9a-f-]{36} \(current\) +staged `)
	s.cf("packages site", `^[0-9a-f-]{36} +ready `)
	s.cf("create-app-manifest site -p written.yml", "OK")
	text := string(s.readFile(filepath.Join(s.dir, "written.yml")))
	for _, want := range []string{"applications:\n- name: site\n", serving, "COLOUR: green", "route: site.dew.localhost", "memory: 64M"} {
		if !strings.Contains(text, want) {
			s.t.Errorf("the manifest lacks %q:\n%s", want, text)
		}
	}
}

func (s *stock) curls() {
	s.cf("curl /v3/apps?names=site", `"name":"site"`)
	guid := strings.TrimSpace(s.live(0, "app shelf --guid"))
	s.cf("curl -X PATCH /v3/apps/"+guid+` -d '{"metadata":{"labels":{"tier":"front"}}}'`, `"labels":{"tier":"front"}`)
	s.cf("curl /v3/apps/"+guid+`/sidecars -d '{"name":"aide","command":"sleep 1000000","process_types":["web"],"memory_in_mb":16}'`, `"name":"aide"`)
	s.cf("curl /v3/apps/no-such-app", "App not found")
	s.exits(22, "curl -f /v3/apps/no-such-app", "!OK")
	s.cf("curl /v3/no_such_thing", "Unknown request")
}

func (s *stock) routes() {
	s.cf("routes", "garden site dew.localhost http http1 8080 site")
	s.cf("create-route dew.localhost --hostname second --path /deep", "Route second.dew.localhost/deep has been created.", "OK")
	s.cf("create-route dew.localhost --hostname second --path /deep", `^.*Route already exists.*$`, "OK")
	s.cf("map-route site dew.localhost --hostname second --path /deep", "OK")
	s.cf("map-route site dew.localhost --hostname third", "Creating route third.dew.localhost for org acme / space garden as dora...", "OK")
	s.cf("map-route site dew.localhost --hostname third", `^.*already mapped to.*$`, "OK")
	s.answers("third.dew.localhost")
	s.cf("routes", "garden second dew.localhost /deep http http1 8080 site", "garden third dew.localhost http http1 8080 site")
	s.cf("unmap-route site dew.localhost --hostname third", "OK")
	s.cf("delete-route dew.localhost --hostname third -f", "OK")
	s.cf("delete-route dew.localhost --hostname third -f", "Unable to delete. Route with host 'third', domain 'dew.localhost', and path '/' not found.", "OK")
	s.refuses("create-route nowhere.example", "Domain 'nowhere.example' not found.")
}

func (s *stock) fails() {
	s.refuses("app nobody", "App 'nobody' not found.")
	s.refuses("push -f broken.yml", `^.*(memory|process_types).*$`)
	s.refuses("push doomed --no-manifest -p small -c 'echo doomed; exit 7' -u process -m 32M -b binary_buildpack --no-route",
		startFailed, "FAILED", `^#0 +crashed `)
	s.cf("delete doomed -f", "OK")
	s.cf("delete doomed -f", "App 'doomed' does not exist.", "OK")
	s.cf("rename bare plain", "OK")
	s.cf("app plain --guid", `^[0-9a-f-]{36}$`)
	s.refuses("rename plain site", "App with the name 'site' already exists.")
	s.cf("delete plain -f -r", "OK")
	s.cf("delete site -f -r", "OK")
}

// sidecarProcedure follows the documentation of sidecars: create the app, put a
// manifest into its root, apply it, push. Then it kills the sidecar; both processes
// restart, and the exit is recorded.
func (s *stock) sidecarProcedure() {
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(s.dir, "sample", "build")+"/", "./app", "./config-server")
	build.Dir = "../../examples/config-sidecar"
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

	s.cf("create-app config-sidecar", "OK")
	s.cf("apply-manifest -f manifest.yml", "OK", `^.*command: ./config-server$`)
	s.cf("push config-sidecar", "sidecars: config-server", oneRunning, "routes: config-sidecar.dew.localhost")
	s.config()
	id, leaves := only(s.t, s.running("sidecar-0"))
	killPID(s.t, leaves["sidecar-0"][0])
	s.before = append(s.before, "kill config-sidecar web 0 config-server")
	s.eventuallySays(sidecarKilled, "logs config-sidecar --recent")
	s.eventually("another instance runs", func() error {
		if _, there := s.running("sidecar-0")[id]; there {
			return fmt.Errorf("instance %s is still there", id)
		}
		return nil
	})
	s.eventuallySays("^#0 +running ", "app config-sidecar")
	s.config()
	s.cf("logs config-sidecar --recent",
		`^ *\S+ \[API/0\] OUT App instance exited with guid [0-9a-f-]{36} payload: \{"instance":"[0-9a-f-]{28}","index":0,"cellid":"[0-9a-f-]{36}","reason":"CRASHED","exitdescription":"`+
			sidecarKilled+`","crashcount":1,"crashtimestamp":\d+,"version":"[0-9a-f-]{36}"\}$`,
		`^ *\S+ \[APP/PROC/WEB/0\] OUT GET /config$`, `^ *\S+ \[APP/PROC/WEB/SIDECAR/CONFIG-SERVER/0\] OUT GET /config/$`)
	s.cf("events config-sidecar", `^\S+ +app\.crash +config-sidecar +index: 0, reason: CRASHED, .*`+sidecarKilled)
	s.cf("delete config-sidecar -f -r", "OK")
}

// config checks that the app answers with the text of its sidecar.
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

// running returns the instances that have a process in a leaf.
func (s *stock) running(leaf string) map[string]map[string][]int {
	out := map[string]map[string][]int{}
	for id, leaves := range s.leaves() {
		if len(leaves[leaf]) > 0 {
			out[id] = leaves
		}
	}
	return out
}

// staysInside is a developer who tries actions without permission.
func (s *stock) staysInside() {
	const refused = "You are not authorized to perform the requested action"
	s.refuses("create-org mine", refused)
	s.refuses("create-space mine -o acme", refused)
	s.refuses("target -o local", "Organization 'local' not found.")
	s.refuses("delete-space garden -o acme -f", refused)
	s.refuses("create-user eve $password-dora")
	s.refuses("delete-org acme -f", refused)
	s.cf("logout", "OK")
}

func (s *stock) comesAsClient() {
	s.refuses("auth ci wrong --client-credentials", badCredentials)
	s.cf("auth ci $password-client --client-credentials", "OK")
	s.cf("target -o acme -s garden", "user: ci", "org: acme", "space: garden")
	s.cf("apps", `^shelf +stopped`)
	s.cf("create-space shed -o acme", "OK")
	s.cf("logout", "OK")
}

func (s *stock) cleansUp() {
	s.cf("login -u admin -p $password-admin -o acme -s garden", "Targeted space garden.")
	s.cf("push tool --no-manifest -p small -c '"+sleepy+"' -u process -m 32M -b binary_buildpack -i 2",
		"routes: tool.dew.localhost", "requested state: started", `^instances: +[12]/2$`)
	s.eventuallySays("instances: 2/2", "app tool")
	s.cf("apps", `^tool +started +web:2/2 +tool\.dew\.localhost$`, `^shelf +stopped +web:0/1 *$`)
	s.cf("restage tool", `^instances: +[12]/2$`)
	s.cf("unset-space-role dora acme garden SpaceDeveloper", "OK")
	s.cf("delete-user dora -f", "OK")
	s.cf("delete-space garden -o acme -f", "OK")
	s.cf("delete-org acme -f", "OK")
	s.cf("orgs", "local", "!acme")
	s.cf("logout", "OK")
	s.refuses("orgs", "Not logged in. Use 'cf login' or 'cf login --sso' to log in.")
}
