//go:build integration

package main

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/dewrun/dew/services/servicestest"
	"github.com/dewrun/dew/testkit"
)

// TestRecordStoredRoot records a new root for TestStoredRoot with the binaries of any
// commit. Run it for the commit before a change of dewd's stored data:
//
//	make build && cp -r bin "$OLD"     # at that commit
//	DEW_RECORD=1 DEW_RECORD_BIN="$OLD" DEW_RECORD_NAME=2026-11-16 \
//	    go test -tags integration -run TestRecordStoredRoot ./cmd/dewd
//
// It needs root, cgroup v1 (alone or with v2), and redis-server.
func TestRecordStoredRoot(t *testing.T) {
	if os.Getenv("DEW_RECORD") == "" || os.Getenv("DEW_RECORD_BIN") == "" || os.Getenv("DEW_RECORD_NAME") == "" {
		t.Skip("DEW_RECORD, DEW_RECORD_BIN and DEW_RECORD_NAME are not all set")
	}
	takeStoredDir(t)
	listen := "127.0.0.1:" + strconv.Itoa(testkit.FreePorts(t, 1))
	r := &recorder{cell: newCellIn(t, storedDir, append(storedFlags(listen), "--subnet", storedSubnet)...), api: "http://" + listen}
	r.bin = os.Getenv("DEW_RECORD_BIN")
	r.start()
	for _, step := range []func(){r.makePlaces, r.makePeople, r.makeServices, r.makeApps, r.makeRoutes, r.makeHistory, r.makeMails} {
		step()
	}
	r.stored.Instance = r.recordRunning()
	r.stored.Answers = r.ask()
	r.kill(syscall.SIGKILL)
	r.awaitUnread()
	killPID(t, r.privatePID())
	if t.Failed() {
		return
	}
	r.pack(filepath.Join("testdata", "stored", os.Getenv("DEW_RECORD_NAME")))
}

// recorder fills a root through the CLI and the API of an old dewd.
type recorder struct {
	*cell
	api    string // address of the API, because the public URL is fictitious
	stored stored
}

// say runs a command that must succeed and returns its stdout.
func (r *recorder) say(args ...string) string {
	r.t.Helper()
	return r.sayTo("", args...)
}

// sayTo does the same with input on stdin.
func (r *recorder) sayTo(stdin string, args ...string) string {
	r.t.Helper()
	cmd := r.dewCommand(args...)
	cmd.Stdin = strings.NewReader(stdin)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		r.t.Errorf("dew %s: %v\n%s%s", strings.Join(args, " "), err, out, &talk)
	}
	return string(out)
}

// file writes a file next to the root and returns its path.
func (r *recorder) file(name, text string) string {
	r.t.Helper()
	path := filepath.Join(storedDir, "in", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// guid returns the guid of the first resource of a list.
func (r *recorder) guid(list string) string {
	r.t.Helper()
	var page struct {
		Resources []struct {
			GUID string `json:"guid"`
		} `json:"resources"`
	}
	out := r.say("curl", list, "--fail")
	if err := json.Unmarshal([]byte(out), &page); err != nil || len(page.Resources) == 0 {
		r.t.Fatalf("%s = %s, %v", list, out, err)
	}
	return page.Resources[0].GUID
}

func (r *recorder) makePlaces() {
	r.say("create-org", "works")
	r.say("create-space", "yard", "-o", "works")
	r.say("create-space", "hall", "-o", "works")
	r.say("target", "-o", "works", "-s", "yard")
	r.say("set-label", "org", "works", "town=ulm")
	r.say("create-org-quota", "small", "-m", "4G", "-r", "20", "-s", "10")
	r.say("set-org-quota", "works", "small")
	r.say("create-space-quota", "tight", "-m", "2G", "-r", "9")
	r.say("set-space-quota", "yard", "tight")
	rules := r.file("rules.json", `[{"protocol":"tcp","destination":"10.0.11.0/24","ports":"80,443","description":"web"}]`)
	r.say("create-security-group", "web", rules)
	r.say("bind-security-group", "web", "works", "--space", "yard")
	r.say("create-isolation-segment", "cold")
	r.say("enable-org-isolation", "works", "cold")
	r.say("set-space-isolation-segment", "hall", "cold")
	r.say("set-running-environment-variable-group", `{"REGION":"south"}`)
	r.say("set-staging-environment-variable-group", `{"MIRROR":"near"}`)
	r.say("enable-feature-flag", "service_instance_sharing")
	r.say("enable-feature-flag", "route_sharing")
	r.say("disallow-space-ssh", "hall")
	r.say("create-shared-domain", "tcp.dew.localhost", "--router-group", "default-tcp")
	r.say("create-private-domain", "works", "works.example")
}

func (r *recorder) makePeople() {
	r.sayTo(storedPassword+"\n", "create-user", storedUser, "--email", "ada@example.com", "--password-stdin")
	r.say("set-org-role", storedUser, "works", "OrgManager")
	r.say("set-space-role", storedUser, "works", "yard", "SpaceDeveloper")
	r.sayTo(storedPassword+"\n", "create-user", "bob", "--email", "bob@example.com", "--password-stdin")
	r.say("curl", "/v3/users", "-X", "POST", "-d", `{"username":"mole","origin":"ldap"}`, "--fail")
	r.sayTo(storedPassword+"\n", "create-client", storedClient, "--secret-stdin", "--authorities",
		"notifications.manage,notifications.write,critical_notifications.write,notification_templates.write,notification_templates.read,emails.write")
	r.say("curl", "/uaa/Groups", "-X", "POST", "-d", `{"displayName":"readers"}`, "--fail")
}

// storedCatalog is the catalog of the broker of a stored root. The broker no longer
// exists when the root is opened.
const storedCatalog = `{"services":[{"id":"queue-id","name":"queue","description":"A queue","bindable":true,
"metadata":{"shareable":true},"plans":[{"id":"short-id","name":"short","description":"A short queue"}]}]}`

// makeServices creates service instances of every kind: of a broker, of the built-in
// databases and user-provided ones.
func (r *recorder) makeServices() {
	broker := servicestest.New(storedCatalog)
	s := httptest.NewServer(broker)
	r.t.Cleanup(s.Close)
	r.say("create-service-broker", "queues", broker.Username, broker.Password, s.URL)
	r.say("enable-service-access", "queue")
	r.say("create-service", "queue", "short", "line", "--wait")
	r.say("create-service", "redis", "small", "cache", "--wait")
	r.say("create-service-key", "cache", "reader", "--wait")
	r.say("create-user-provided-service", "mail", "-p", `{"host":"mail.example.com","password":"secret"}`, "-t", "smtp,outside")
	drain := testkit.Listen(r.t)
	go func() {
		for {
			c, err := drain.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = new(bytes.Buffer).ReadFrom(c) }()
		}
	}()
	r.say("create-user-provided-service", "papers", "-l", "syslog://"+drain.Addr().String())
	r.say("create-user-provided-service", "front", "-r", "https://front.example.com")
	r.say("share-service", "line", "-s", "hall")
}

// storedManifest has apps that are shell scripts, so that they are small. The test
// creates the instance of ticker again.
const storedManifest = `applications:
- name: shop
  path: %[1]s
  buildpacks: [binary_buildpack]
  memory: 64M
  disk_quota: 256M
  log-rate-limit-per-second: 64K
  env: {GREETING: "good day", EMPTY: ""}
  metadata: {labels: {team: checkout}, annotations: {contact: "ada@example.com"}}
  services: [mail, papers, cache, line]
  routes: [{route: shop.dew.localhost}, {route: shop.dew.localhost/api}]
  processes:
  - {type: web, command: "while :; do echo open; sleep 60; done", instances: 2, health-check-type: process}
  - {type: worker, command: "sleep 1000", instances: 0, memory: 32M, health-check-type: process, timeout: 77}
  sidecars:
  - {name: config server, process_types: [web, worker], command: "while :; do sleep 1000; done", memory: 16MB}
- name: ticker
  path: %[1]s
  buildpacks: [binary_buildpack]
  memory: 64M
  no-route: true
  command: "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.2; done"
  health-check-type: process
  sidecars:
  - {name: config server, process_types: [web], command: "while :; do sleep 1000; done", memory: 16MB}
- name: faulty
  path: %[1]s
  memory: 64M
  no-route: true
  command: "echo going up; sleep 0.5; echo going down >&2; exit 3"
  health-check-type: process
- name: careful
  path: %[1]s
  buildpacks: [binary_buildpack]
  memory: 64M
  instances: 2
  command: "while :; do sleep 1000; done"
  health-check-type: process
- name: passing
  path: %[1]s
  buildpacks: [binary_buildpack]
  memory: 64M
  command: "sleep 1000"
  health-check-type: process
`

// draftManifest is an app that was never pushed.
const draftManifest = `applications:
- name: draft
  memory: 96M
  no-route: true
  health-check-type: http
  health-check-http-endpoint: /health
  health-check-interval: 7
  readiness-health-check-type: port
  readiness-health-check-interval: 9
  timeout: 99
`

func (r *recorder) makeApps() {
	pack := filepath.Dir(filepath.Dir(r.file("pack/bin/detect", "#!/bin/sh\nexit 1\n")))
	r.file("pack/bin/compile", "#!/bin/sh\necho nothing to compile\n")
	r.file("pack/bin/release", "#!/bin/sh\necho '---'\n")
	r.say("create-buildpack", "shell", pack, "1")
	src := filepath.Dir(r.file("app/readme", storedReadme))
	manifest := r.file("manifest.yml", fmt.Sprintf(storedManifest, src))
	r.say("apply-manifest", "-f", r.file("draft.yml", draftManifest))
	r.makeStack()
	r.say("push", "shop", "-f", manifest)
	r.say("push", "ticker", "-f", manifest)
	r.say("push", "careful", "-f", manifest)
	r.say("push", "passing", "-f", manifest)
	r.say("notify-on-crash", "shop")
	r.say("push", "faulty", "-f", manifest, "-b", pack, "--no-start")
	r.say("notify-on-crash", "faulty")
	_ = r.dewCommand("start", "faulty").Run() // it does not become healthy, on purpose
	r.eventually("faulty has crashed twice", func() error { return r.crashes("faulty", 2) })
	r.eventually("the files of the crash are kept", func() error {
		if out := r.say("crashes", "faulty", "--json"); !strings.Contains(out, `"kept": true`) {
			return errors.New(out)
		}
		return nil
	})
	r.say("stop", "faulty")
	r.say("delete", "passing", "-f", "-r")
}

// makeStack adds a stack that no app uses.
func (r *recorder) makeStack() {
	r.t.Helper()
	root := filepath.Dir(filepath.Dir(r.file("stack/bin/sh", "#!/nothing\n")))
	r.file("stack/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
	if out, err := exec.Command("tar", "-C", root, "-cf", root+".tar", ".").CombinedOutput(); err != nil {
		r.t.Fatalf("tar: %v\n%s", err, out)
	}
	r.say("stack", "add", "tiny", root+".tar")
	r.say("update-stack", "tiny", "--state", "deprecated", "--reason", "it is too small")
	r.say("curl", "/v3/admin/actions/clear_buildpack_cache", "-X", "POST", "--fail")
}

func (r *recorder) crashes(name string, n int) error {
	var all []any
	out := r.say("crashes", name, "--json")
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) < n {
		return fmt.Errorf("%d crashes, %w: %s", len(all), err, out)
	}
	return nil
}

func (r *recorder) makeRoutes() {
	r.say("create-route", "tcp.dew.localhost", "--port", strconv.Itoa(storedPort))
	r.say("map-route", "shop", "tcp.dew.localhost", "--port", strconv.Itoa(storedPort))
	r.say("share-route", "dew.localhost", "-n", "shop", "-s", "hall")
	r.say("create-route", "works.example", "-n", "www")
	r.say("set-label", "route", "www.works.example", "kind=vanity")
	r.say("map-route", "careful", "dew.localhost", "-n", "careful", "--path", "/front")
	r.say("bind-route-service", "dew.localhost", "-n", "careful", "--path", "/front", "front")
}

// makeHistory creates tasks, revisions, deployments and a crash of a sidecar.
func (r *recorder) makeHistory() {
	r.say("run-task", "shop", "--command", "echo migrated", "--name", "migrate", "--wait")
	if err := r.dewCommand("run-task", "shop", "--command", "exit 4", "--name", "broken", "--wait").Run(); err == nil {
		r.t.Error("the task broken succeeded")
	}
	r.say("set-env", "shop", "GREETING", "good evening")
	manifest := filepath.Join(storedDir, "in", "manifest.yml")
	r.file("app/readme", "a small app, second edition\n")
	r.say("push", "shop", "-f", manifest, "--strategy", "rolling")
	r.say("rollback", "shop", "--version", "1", "-f")
	r.say("push", "careful", "-f", manifest, "--strategy", "canary")
	r.say("kill", "shop", "--sidecar", "config server", "--wait")
	r.say("scale", "shop", "-i", "1")
	r.say("create-service-key", "line", "writer", "--wait")
	r.say("delete-service-key", "line", "writer", "-f", "--wait")
}

// makeMails sends notifications in both versions of the API. Without a mail server they
// are in the inbox.
func (r *recorder) makeMails() {
	base := r.api
	ada := r.guid("/v3/users?usernames=" + storedUser)
	c := clientToken(r.t, base, storedClient, storedPassword)
	c.do(204, "PUT", "/notifications", `{"source_name":"Mailer","notifications":{"news":{"description":"News"},"alarm":{"description":"Alarm","critical":true}}}`)
	var made map[string]string
	if err := json.Unmarshal(c.do(201, "POST", "/templates", `{"name":"loud","subject":"LOUD {{.Subject}}","text":"{{.Text}}!","html":"<b>{{.HTML}}</b>"}`), &made); err != nil {
		r.t.Fatal(err)
	}
	c.do(204, "PUT", "/clients/mailer/notifications/news/template", `{"template":"`+made["template-id"]+`"}`)
	c.do(200, "POST", "/users/"+ada, `{"kind_id":"news","subject":"hello","text":"t","html":"<p>h</p>"}`)
	r.say("inbox", "wait", "--to", "ada@example.com", "--subject", "LOUD hello", "--timeout", "60s")
	me := userToken(r.t, base, storedUser, storedPassword)
	bob := userToken(r.t, base, "bob", storedPassword)
	bob.do(204, "PATCH", "/user_preferences", `{"global_unsubscribe":true,"clients":{}}`)
	me.do(204, "PATCH", "/user_preferences", `{"clients":{"mailer":{"news":{"email":false}}}}`)
	var sent []struct {
		ID string `json:"notification_id"`
	}
	if err := json.Unmarshal(c.do(200, "POST", "/users/"+ada, `{"kind_id":"news","subject":"unwanted","text":"t"}`), &sent); err != nil {
		r.t.Fatal(err)
	}
	waitStatus(r.t, c, sent[0].ID, "unsubscribed")
	r.stored.Undeliverable = sent[0].ID

	c.two = true
	id := func(path, body string) string {
		var made struct {
			ID string `json:"id"`
		}
		want := 201
		if strings.HasSuffix(path, "/campaigns") {
			want = 202
		}
		if err := json.Unmarshal(c.do(want, "POST", path, body), &made); err != nil {
			r.t.Fatal(err)
		}
		return made.ID
	}
	id("/templates", `{"name":"quiet","text":"{{.Text}}"}`)
	sender := id("/senders", `{"name":"S"}`)
	kind := id("/senders/"+sender+"/campaign_types", `{"name":"offers","description":"Offers"}`)
	r.stored.Campaign = id("/senders/"+sender+"/campaigns", `{"send_to":{"users":["`+ada+`"]},"campaign_type_id":"`+kind+`","text":"hello","subject":"offer"}`)
	r.say("inbox", "wait", "--to", "ada@example.com", "--subject", "offer", "--timeout", "60s")
	r.say("curl", "/uaa/oauth/token/revoke/"+tokenID(r.t, bob.token), "-X", "DELETE", "--fail")
	me.two = true
	me.do(204, "PUT", "/campaign_types/"+kind+"/unsubscribers/"+ada, "")
	r.say("inbox", "wait", "--to", "ada@example.com", "--subject", "faulty", "--timeout", "60s")
}

// tokenID returns the ID in a token.
func tokenID(t testing.TB, token string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	var claims struct{ JTI string }
	b, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
	if err == nil {
		err = json.Unmarshal(b, &claims)
	}
	if err != nil || claims.JTI == "" {
		t.Fatalf("token %s has no id: %v", token, err)
	}
	return claims.JTI
}

// recordRunning records the instance of ticker.
func (r *recorder) recordRunning() string {
	r.t.Helper()
	guid := r.guid("/v3/apps?names=ticker")
	var got struct {
		Resources []struct {
			Instance string `json:"instance_guid"`
		} `json:"resources"`
	}
	out := r.say("curl", "/v3/apps/"+guid+"/processes/web/stats", "--fail")
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Resources) != 1 || got.Resources[0].Instance == "" {
		r.t.Fatalf("stats of ticker = %s, %v", out, err)
	}
	id := got.Resources[0].Instance
	cmd := exec.Command(filepath.Join(programs, "instance"), "record", "--address", filepath.Join(r.run, "containerd", "containerd.sock"),
		"--namespace", r.names.Namespace, "--container", "dew-"+id)
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		r.t.Fatal(err)
	}
	r.stored.Running = b
	return id
}

// ask sends all requests that the test will repeat.
func (r *recorder) ask() map[string]json.RawMessage {
	r.t.Helper()
	answers := map[string]json.RawMessage{}
	get := func(path string) []byte {
		out := r.say("curl", path)
		if !json.Valid([]byte(out)) {
			r.t.Fatalf("%s = %s", path, out)
		}
		if strings.Contains(out, `"errors":`) && strings.Contains(out, `"CF-NotFound"`) {
			r.t.Logf("%s is not there", path)
			return nil
		}
		answers[path] = lasting(r.t, []byte(out))
		return []byte(out)
	}
	for _, list := range storedLists {
		var page struct {
			Resources []struct {
				GUID string `json:"guid"`
			} `json:"resources"`
		}
		if err := json.Unmarshal(get("/v3/"+list+"?per_page=5000"), &page); err != nil {
			r.t.Fatal(err)
		}
		for _, res := range page.Resources {
			for _, part := range storedParts[list] {
				get(strings.ReplaceAll(part, "{guid}", url.PathEscape(res.GUID)))
			}
		}
	}
	for _, path := range storedPaths {
		get(path)
	}
	var inbox struct{ Mails []struct{ ID string } }
	if err := json.Unmarshal(get("/dew/v1/inbox?limit=100"), &inbox); err != nil || len(inbox.Mails) == 0 {
		r.t.Fatalf("mails = %+v, %v, want some", inbox, err)
	}
	for _, mail := range inbox.Mails {
		get("/dew/v1/inbox/" + mail.ID)
	}
	return answers
}

// lasting returns a response without the keys that can change.
func lasting(t testing.TB, b []byte) json.RawMessage {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	var strip func(v any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			maps.DeleteFunc(v, func(key string, _ any) bool { return slices.Contains(changing, key) })
			for _, inner := range v {
				strip(inner)
			}
		case []any:
			for _, inner := range v {
				strip(inner)
			}
		}
	}
	strip(v)
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// awaitUnread waits until ticker has printed lines that no dewd has read.
func (r *recorder) awaitUnread() {
	size := func() (n int64) {
		files, err := filepath.Glob(filepath.Join(r.root, "logs", "*", "capture", r.stored.Instance, "main*"))
		if err != nil || len(files) == 0 {
			r.t.Fatalf("no capture files of %s: %v", r.stored.Instance, err)
		}
		for _, f := range files {
			if info, err := os.Stat(f); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	before := size()
	r.eventually("ticker prints while no dewd runs", func() error {
		if size() < before+40 {
			return errors.New("too little")
		}
		return nil
	})
}

// pack writes the root, and the run files of the running instance, to name.tar.zst. It
// writes the expected results to name.json.
func (r *recorder) pack(name string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		r.t.Fatal(err)
	}
	b, err := json.Marshal(r.stored)
	if err == nil {
		b = bytes.ReplaceAll(b, []byte(`,"/`), []byte(",\n\"/")) // one line for each path
		err = os.WriteFile(name+".json", append(b, '\n'), 0o644)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	f, err := os.Create(name + ".tar.zst")
	if err != nil {
		r.t.Fatal(err)
	}
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		r.t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, dir := range []string{"root", filepath.Join("run", "instances", r.stored.Instance)} {
		r.packDir(w, dir)
	}
	if err := errors.Join(w.Close(), z.Close(), f.Close()); err != nil {
		r.t.Fatal(err)
	}
	if info, err := os.Stat(f.Name()); err != nil || info.Size() > maxStored {
		r.t.Errorf("%s has %d bytes, want at most %d (%v)", f.Name(), info.Size(), maxStored, err)
	}
}

func (r *recorder) packDir(w *tar.Writer, dir string) {
	r.t.Helper()
	err := filepath.WalkDir(filepath.Join(storedDir, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(storedDir, path)
		if err != nil {
			return err
		}
		if slices.Contains(notStored, rel) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return packFile(w, path, rel)
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func packFile(w *tar.Writer, path, rel string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeSocket|fs.ModeNamedPipe) != 0 {
		return nil
	}
	var target string
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name = rel
	var data []byte
	if info.Mode().IsRegular() {
		if data, err = os.ReadFile(path); err != nil {
			return err
		}
		switch {
		case isProgram(rel) && !strings.Contains(rel, "dew-init-"):
			data = nil // it is not run, so its name is enough
		case filepath.Base(rel) == "resolv.conf":
			data = nil // it describes the machine of the recording
		}
		h.Size = int64(len(data))
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// isProgram reports whether a file is one of the programs that dewd stores for
// instances.
func isProgram(rel string) bool { return filepath.Dir(rel) == filepath.Join("root", "bin") }
