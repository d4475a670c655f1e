//go:build integration

// Package examples_test pushes the examples with the real programs, as a user does. It
// uses only dew and HTTP.
package examples_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const wantConfig = `{"scope":"some-service.admin","password":"not-a-real-p4$$w0rd"}` + "\n"

// appView holds the parts of the output of `dew app --json` that the tests check.
type appView struct {
	GUID      string `json:"guid"`
	State     string `json:"state"`
	Processes []struct {
		Type      string `json:"type"`
		MemorySum string `json:"memory_sum"`
		Sidecars  []struct {
			Name string `json:"name"`
		} `json:"sidecars"`
		Instances []struct {
			Index   int    `json:"index"`
			State   string `json:"state"`
			Crashes int    `json:"crash_count"`
		} `json:"instances"`
	} `json:"processes"`
	Crashes   int    `json:"crashes"`
	LastCrash *crash `json:"last_crash"`
}

type crash struct {
	Type, Instance, Description, Reason string
	Index, Count                        int
	First                               exit
	Followers                           []exit
}

type exit struct {
	Source, Sidecar string
	Code            int
}

type line struct {
	Source, Instance, Stream, Text string
	Index                          int
}

type event struct {
	Type string
	Data struct {
		Instance        string `json:"instance"`
		Index           int    `json:"index"`
		Reason          string `json:"reason"`
		ExitDescription string `json:"exit_description"`
	}
}

func logsOf(t *testing.T, app string) []line {
	t.Helper()
	var out []line
	for text := range strings.Lines(dew(t, "", "logs", app, "--recent", "--json").out) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		out = append(out, l)
	}
	return out
}

// instances returns the ids of a process's instances by index, if all of them run.
func instances(t *testing.T, app, process string) ([]string, error) {
	t.Helper()
	stats := read[struct {
		Resources []struct {
			State string `json:"state"`
			ID    string `json:"instance_guid"`
		}
	}](t, "curl", "/v3/apps/"+guidOf(t, app)+"/processes/"+process+"/stats")
	var ids []string
	for i, s := range stats.Resources {
		if s.State != "RUNNING" {
			return nil, fmt.Errorf("instance %d of %s is %s", i, process, s.State)
		}
		ids = append(ids, s.ID)
	}
	return ids, nil
}

func guidOf(t *testing.T, app string) string {
	t.Helper()
	return strings.TrimSpace(dew(t, "", "app", app, "--guid").out)
}

// running waits until all instances of a process run.
func running(t *testing.T, app, process string, count int) (ids []string) {
	t.Helper()
	eventually(t, app+" runs", func() (err error) {
		if ids, err = instances(t, app, process); err == nil && len(ids) != count {
			err = fmt.Errorf("%d instances of %s, want %d", len(ids), process, count)
		}
		return err
	})
	return ids
}

// waitReplaced waits until another instance runs in place of an old one.
func waitReplaced(t *testing.T, app string, index int, old string) (id string) {
	t.Helper()
	eventually(t, app+" runs again", func() error {
		ids, err := instances(t, app, "web")
		switch {
		case err != nil:
			return err
		case len(ids) <= index || ids[index] == old:
			return fmt.Errorf("instances %v, want another one than %s", ids, old)
		}
		id = ids[index]
		return nil
	})
	return id
}

// waitForConfig waits until the app responds to /config with the sidecar's configuration.
func waitForConfig(t *testing.T, host string) {
	t.Helper()
	eventually(t, "/config of "+host, func() error {
		if p := get(t, host, "/config"); p.status != 200 || p.body != wantConfig {
			return fmt.Errorf("answer %d %q, want the sidecar's", p.status, p.body)
		}
		return nil
	})
}

// sample returns a folder with the example's manifests and programs.
func sample(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "build"), 0o755); err != nil {
		t.Fatal(err)
	}
	for to, from := range map[string]string{
		"manifest.yml": "config-sidecar/manifest.yml", "manifest-two.yml": "config-sidecar/manifest-two.yml",
		"build/app": filepath.Join(dewd.bin, "app"), "build/config-server": filepath.Join(dewd.bin, "config-server"),
	} {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// An app is created, gets its manifest, is pushed and responds through its sidecar.
// After the sidecar is killed, all records name it, and both processes run again.
func TestPushWithSidecar(t *testing.T) {
	const name = "config-sidecar"
	dir := sample(t)
	dew(t, dir, "create-app", name)
	deleteLater(t, name)
	dew(t, dir, "apply-manifest", "-f", "manifest.yml")
	dew(t, dir, "push", name)
	waitForConfig(t, name)

	old := running(t, name, "web", 1)[0]
	r := dew(t, "", "kill", name, "--sidecar", "config-server")
	if !strings.Contains(r.err, "SIGKILL") {
		t.Errorf("dew kill says %q, want the signal's name", r.err)
	}
	now := waitReplaced(t, name, 0, old)
	waitForConfig(t, name)

	checkLines(t, name, old, now)
	checkExitRecord(t, name, old)
	checkEvents(t, name, old)
	checkCrashes(t, name, old)
	v := read[appView](t, "app", name, "--json")
	switch {
	case v.State != "STARTED" || len(v.Processes) != 1 || len(v.Processes[0].Instances) != 1:
		t.Errorf("dew app = %+v, want one instance of a started app", v)
	case v.Processes[0].Instances[0].State != "RUNNING" || v.Processes[0].Instances[0].Crashes != 1:
		t.Errorf("instance = %+v, want it running after one crash", v.Processes[0].Instances[0])
	case v.Crashes != 1 || v.LastCrash == nil || v.LastCrash.Instance != old:
		t.Errorf("dew app tells %d crashes, last %+v, want the one of %s", v.Crashes, v.LastCrash, old)
	}
	if sum, want := v.Processes[0].MemorySum, "128M = web 64M + config-server 64M"; sum != want {
		t.Errorf("memory %q, want %q", sum, want)
	}
}

// checkLines checks for lines of the app and of its sidecar, before and after the
// crash, in one log.
func checkLines(t *testing.T, app, before, after string) {
	t.Helper()
	const main, sidecar = "APP/PROC/WEB", "APP/PROC/WEB/SIDECAR/CONFIG-SERVER"
	missing := map[string]bool{}
	for _, id := range []string{before, after} {
		missing[id+" "+main+" GET /config"] = true
		missing[id+" "+sidecar+" GET /config/"] = true
	}
	eventually(t, "both processes' lines", func() error {
		for _, l := range logsOf(t, app) {
			delete(missing, l.Instance+" "+l.Source+" "+l.Text)
		}
		if len(missing) > 0 {
			return fmt.Errorf("the log lacks %q", slices.Sorted(maps.Keys(missing)))
		}
		return nil
	})
	text := dew(t, "", "logs", app, "--recent").out
	for _, want := range []string{"[" + main + "/0] OUT GET /config\n", "[" + sidecar + "/0] OUT GET /config/\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("dew logs lacks %q:\n%s", want, text)
		}
	}
}

// checkExitRecord checks for one exit record, with exactly its eight fields.
func checkExitRecord(t *testing.T, app, instance string) {
	t.Helper()
	guid := guidOf(t, app)
	var found []string
	for _, l := range logsOf(t, app) {
		if payload, ok := strings.CutPrefix(l.Text, "App instance exited with guid "+guid+" payload: "); ok && l.Source == "API" {
			found = append(found, payload)
		}
	}
	if len(found) != 1 {
		t.Fatalf("exit records %q, want one", found)
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(found[0]), &fields); err != nil {
		t.Fatalf("%v: %s", err, found[0])
	}
	keys := []string{"cellid", "crashcount", "crashtimestamp", "exitdescription", "index", "instance", "reason", "version"}
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, keys) {
		t.Errorf("fields %q, want exactly %q", got, keys)
	}
	version := read[struct{ Version string }](t, "curl", "/v3/processes/"+guid).Version
	for key, want := range map[string]any{
		"instance": instance, "index": 0.0, "cellid": dewd.status.Cell, "reason": "CRASHED", "crashcount": 1.0, "version": version,
		"exitdescription": "APP/PROC/WEB/SIDECAR/CONFIG-SERVER: Exited with status 137",
	} {
		if fields[key] != want {
			t.Errorf("%s = %v, want %v", key, fields[key], want)
		}
	}
	if at, ok := fields["crashtimestamp"].(float64); !ok || time.Since(time.Unix(0, int64(at))).Abs() > time.Hour {
		t.Errorf("crashtimestamp = %v, want this hour in nanoseconds", fields["crashtimestamp"])
	}
}

func checkEvents(t *testing.T, app, instance string) {
	t.Helper()
	var found []string
	for _, e := range read[[]event](t, "events", app, "--json") {
		if e.Data.Instance != instance {
			continue
		}
		found = append(found, e.Type)
		if e.Data.Index != 0 || e.Data.Reason != "CRASHED" || e.Data.ExitDescription != "APP/PROC/WEB/SIDECAR/CONFIG-SERVER: Exited with status 137" {
			t.Errorf("%s has %+v", e.Type, e.Data)
		}
	}
	slices.Sort(found)
	if want := []string{"app.crash", "audit.app.process.crash"}; !slices.Equal(found, want) {
		t.Errorf("events of the crash %q, want %q", found, want)
	}
	if out := dew(t, "", "events", app).out; !regexp.MustCompile(`app\.crash .*SIDECAR/CONFIG-SERVER: Exited with status 137`).MatchString(out) {
		t.Errorf("dew events lacks the crash:\n%s", out)
	}
}

func checkCrashes(t *testing.T, app, instance string) {
	t.Helper()
	all := read[[]crash](t, "crashes", app, "--json")
	if len(all) != 1 {
		t.Fatalf("crashes %+v, want one", all)
	}
	c := all[0]
	if c.Instance != instance || c.Index != 0 || c.Type != "web" || c.Count != 1 || c.Reason != "CRASHED" {
		t.Errorf("crash = %+v", c)
	}
	if want := (exit{"APP/PROC/WEB/SIDECAR/CONFIG-SERVER", "config-server", 137}); c.First != want {
		t.Errorf("first exit %+v, want %+v", c.First, want)
	}
	if len(c.Followers) != 1 || c.Followers[0].Source != "APP/PROC/WEB" {
		t.Errorf("followers %+v, want the app", c.Followers)
	}
	if out := dew(t, "", "crashes", app).out; !strings.Contains(out, "APP/PROC/WEB/SIDECAR/CONFIG-SERVER: status 137 (killed by SIGKILL), exited") {
		t.Errorf("dew crashes lacks how the sidecar ended:\n%s", out)
	}
}

// The app can reach a sidecar that listens on localhost, but no route can, not even one
// that names its port.
func TestSidecarHasNoRoute(t *testing.T) {
	const name = "config-sidecar"
	dir := sample(t)
	manifest := filepath.Join(dir, "manifest.yml")
	b, err := os.ReadFile(manifest)
	if err == nil {
		routed := strings.Replace(string(b), "\n  path:", fmt.Sprintf("\n  routes: [{route: %s.%s}, {route: hidden.%[2]s}]\n  path:", name, dewd.status.Domain), 1)
		err = os.WriteFile(manifest, []byte(routed), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	deleteLater(t, name)
	dew(t, dir, "push")
	waitForConfig(t, name)
	waitForConfig(t, "hidden")
	if p := get(t, name, "/config/"); p.status != 404 {
		t.Errorf("the sidecar's own path answers %d %q, want the app's 404", p.status, p.body)
	}

	routes := read[struct{ Resources []struct{ GUID string } }](t, "curl", "/v3/routes?hosts=hidden")
	if len(routes.Resources) != 1 {
		t.Fatalf("routes %+v, want one", routes.Resources)
	}
	route := "/v3/routes/" + routes.Resources[0].GUID
	t.Cleanup(func() { dewd.dew("", "curl", "-X", "DELETE", route) }) // a route is not deleted with its app
	dew(t, "", "curl", "-X", "PATCH", route+"/destinations", "-d", fmt.Sprintf(`{"destinations":[{"app":{"guid":%q,"process":{"type":"web"}},"port":8082}]}`, guidOf(t, name)))
	dew(t, "", "restart", name)
	waitForConfig(t, name)
	eventually(t, "a route to the sidecar's port", func() error {
		p := get(t, "hidden", "/config/")
		if strings.Contains(p.body, "password") {
			return final{fmt.Errorf("the sidecar answers through a route: %q", p.body)}
		}
		if p.status != 502 || p.header.Get("X-Cf-RouterError") != "endpoint_failure" {
			return fmt.Errorf("answer %d %v, want 502 endpoint_failure", p.status, p.header)
		}
		return nil
	})
}

// There are two instances with two sidecars each, one with a space in its name, and a
// worker with one sidecar. Killing a process in one instance does not affect the
// others.
func TestTwoInstancesTwoSidecarsAndAWorker(t *testing.T) {
	const name = "config-sidecar-two"
	dir := sample(t)
	deleteLater(t, name)
	dew(t, dir, "push", "-f", "manifest-two.yml")
	web, worker := running(t, name, "web", 2), running(t, name, "worker", 1)

	got := map[string]string{}
	for _, p := range read[appView](t, "app", name, "--json").Processes {
		got[p.Type] = p.MemorySum
		for _, s := range p.Sidecars {
			got[p.Type] += "; " + s.Name
		}
	}
	want := map[string]string{
		"web":    "256M = web 160M + config server 64M + agent 32M; config server; agent",
		"worker": "64M = worker 32M + agent 32M; agent",
	}
	if !maps.Equal(got, want) {
		t.Errorf("processes %q, want %q", got, want)
	}
	waitForBothInstances(t, name)

	dew(t, "", "kill", name, "--sidecar", "config server", "--instance", "1")
	waitReplaced(t, name, 1, web[1])
	if now := running(t, name, "web", 2); now[0] != web[0] {
		t.Errorf("instance 0 is %s, want %s as before", now[0], web[0])
	}
	if now := running(t, name, "worker", 1); now[0] != worker[0] {
		t.Errorf("the worker is %s, want %s as before", now[0], worker[0])
	}
	crashes := read[[]crash](t, "crashes", name, "--json")
	if len(crashes) != 1 || crashes[0].Instance != web[1] || crashes[0].Index != 1 || crashes[0].Type != "web" {
		t.Fatalf("crashes %+v, want one, of instance 1", crashes)
	}
	if want := (exit{"APP/PROC/WEB/SIDECAR/CONFIG SERVER", "config server", 137}); crashes[0].First != want {
		t.Errorf("first exit %+v, want %+v", crashes[0].First, want)
	}
	var ended []string
	for _, f := range crashes[0].Followers {
		ended = append(ended, f.Source)
	}
	slices.Sort(ended)
	if want := []string{"APP/PROC/WEB", "APP/PROC/WEB/SIDECAR/AGENT"}; !slices.Equal(ended, want) {
		t.Errorf("with it ended %q, want %q", ended, want)
	}
	waitForBothInstances(t, name)

	all := []string{"APP/PROC/WEB", "APP/PROC/WEB/SIDECAR/AGENT", "APP/PROC/WEB/SIDECAR/CONFIG SERVER", "APP/PROC/WORKER", "APP/PROC/WORKER/SIDECAR/AGENT"}
	eventually(t, "lines of all processes", func() error { // a running process has possibly not printed yet
		sources := map[string]bool{}
		for _, l := range logsOf(t, name) {
			if strings.HasPrefix(l.Source, "APP/") {
				sources[l.Source] = true
			}
		}
		if got := slices.Sorted(maps.Keys(sources)); !slices.Equal(got, all) {
			return fmt.Errorf("lines from %q, want %q", got, all)
		}
		return nil
	})
}

// waitForBothInstances waits until both instances have responded, according to their log lines.
func waitForBothInstances(t *testing.T, app string) {
	t.Helper()
	ids := running(t, app, "web", 2)
	eventually(t, "both instances answer", func() error {
		waitForConfig(t, app)
		responded := map[string]bool{}
		for _, l := range logsOf(t, app) {
			if l.Source == "APP/PROC/WEB/SIDECAR/CONFIG SERVER" && l.Text == "GET /config/" {
				responded[l.Instance] = true
			}
		}
		if !responded[ids[0]] || !responded[ids[1]] {
			return errors.New("only one was asked")
		}
		return nil
	})
}

// Unchanged files are neither sent nor staged again, however many there are. Only
// changed files are sent.
func TestUnchangedPush(t *testing.T) {
	const name = "many-files"
	count := 2000
	if os.Getenv("DEW_PROOF") != "" {
		count = 10_000
	}
	dir := t.TempDir()
	for i := range count {
		file := filepath.Join(dir, fmt.Sprintf("static/%02d/%05d.txt", i%100, i))
		if i < 100 {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(file, fmt.Appendf(nil, "file %d of %s\n", i, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	deleteLater(t, name)
	push := func() (talk, image string) {
		t.Helper()
		r := dew(t, dir, "push", name, "-b", "binary_buildpack", "-c", "sleep 1000000", "-u", "process", "-m", "64M", "--no-route", "--json")
		d := read[struct{ Checksum struct{ Value string } }](t, "curl", "/v3/apps/"+guidOf(t, name)+"/droplets/current")
		return r.err, d.Checksum.Value
	}
	wantOutput := func(talk string, want, not []string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(talk, w) {
				t.Errorf("push does not say %q:\n%s", w, talk)
			}
		}
		for _, w := range not {
			if strings.Contains(talk, w) {
				t.Errorf("push says %q:\n%s", w, talk)
			}
		}
	}

	talk, first := push()
	wantOutput(talk, []string{fmt.Sprintf("Uploading %d of %d files", count, count), "Created image " + first[:12]}, []string{"Nothing has changed"})

	talk, second := push()
	wantOutput(talk, []string{fmt.Sprintf("Nothing to upload: dewd already has all %d files", count), "using image " + first[:12] + " again"}, []string{"Uploading", "Created image"})
	if second != first {
		t.Errorf("the image of the same files is %s, was %s", second, first)
	}
	packages := read[struct {
		Resources []struct {
			Data struct{ Checksum struct{ Value string } }
		}
	}](t, "curl", "/v3/apps/"+guidOf(t, name)+"/packages")
	if rs := packages.Resources; len(rs) != 2 || rs[0] != rs[1] || rs[0].Data.Checksum.Value == "" {
		t.Errorf("packages %+v, want two with the same checksum", rs)
	}

	if err := os.WriteFile(filepath.Join(dir, "static/00/00000.txt"), []byte("changed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	talk, third := push()
	wantOutput(talk, []string{fmt.Sprintf("Uploading 1 of %d files", count), "Created image " + third[:12]}, []string{"Nothing has changed"})
	if third == first {
		t.Errorf("the image of other files is %s too", first)
	}
}
