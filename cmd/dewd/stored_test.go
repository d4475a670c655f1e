//go:build integration

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/runtime/containerd/private"
	"github.com/dewrun/dew/testkit"
)

// storedDir is the folder in which every stored root was recorded. dewd's stored data
// and its names in containerd, cgroups and the network depend on the path of its root.
// So the test uses the same path.
const storedDir = "/run/dew-stored"

const (
	storedSubnet   = "10.202.240.0/20" // no dewd chooses it by itself
	storedPort     = 20087             // port of a TCP route
	storedUser     = "ada"
	storedClient   = "mailer"
	storedPassword = "not-a-real-p4ssword"
	storedReadme   = "a small app\n"
	maxStored      = 1 << 20
)

// storedFlags returns the flags for the dewd of a stored root, both the old one and the
// current one.
func storedFlags(listen string) []string {
	return []string{"--listen", listen, "--public-url", "http://api.stored.example", "--kill-delay", "1s"}
}

// notStored are files that are useless, or that the next dewd creates again.
var notStored = []string{"root/containerd/containerd.log", "root/containerd/io.containerd.content.v1.content/ingest"}

// The requests that are sent when a root is recorded and when it is opened again. They
// are lists, the subresources of each of their resources, and further paths.
var (
	storedLists = []string{
		"apps", "processes", "packages", "builds", "droplets", "deployments", "tasks", "routes", "domains",
		"organizations", "spaces", "roles", "users", "organization_quotas", "space_quotas", "security_groups",
		"isolation_segments", "feature_flags", "buildpacks", "stacks", "audit_events", "app_usage_events",
		"service_usage_events", "service_brokers", "service_offerings", "service_plans", "service_instances",
		"service_credential_bindings", "service_route_bindings",
	}
	storedParts = map[string][]string{
		"apps": {
			"/v3/apps/{guid}/env", "/v3/apps/{guid}/sidecars", "/v3/apps/{guid}/revisions", "/v3/apps/{guid}/features",
			"/v3/apps/{guid}/routes", "/v3/apps/{guid}/droplets/current", "/dew/v1/apps/{guid}/crashes",
			"/dew/v1/apps/{guid}/crash-mails", "/dew/v1/apps/{guid}/bindings", "/api/v1/read/{guid}?limit=1000",
		},
		"processes":                   {"/v3/processes/{guid}", "/v3/processes/{guid}/sidecars"},
		"routes":                      {"/v3/routes/{guid}/destinations", "/v3/routes/{guid}/relationships/shared_spaces"},
		"organizations":               {"/v3/organizations/{guid}/relationships/quota", "/v3/organizations/{guid}/domains"},
		"spaces":                      {"/v3/spaces/{guid}/features", "/v3/spaces/{guid}/relationships/isolation_segment", "/v3/spaces/{guid}/running_security_groups"},
		"service_instances":           {"/v3/service_instances/{guid}/credentials", "/v3/service_instances/{guid}/relationships/shared_spaces"},
		"service_credential_bindings": {"/v3/service_credential_bindings/{guid}/details"},
		"service_plans":               {"/v3/service_plans/{guid}/visibility"},
	}
	storedPaths = []string{
		"/v3/environment_variable_groups/running", "/v3/environment_variable_groups/staging", "/routing/v1/router_groups",
		"/uaa/Users", "/uaa/Groups", "/uaa/oauth/clients", "/dew/v1/stacks",
	}
)

// takeStoredDir waits until no other test uses the folder of stored roots, clears it,
// and reserves it until the end of the test.
func takeStoredDir(t *testing.T) {
	t.Helper()
	// The kernel releases this name when the test exits, for any reason.
	testkit.Eventually(t, storedDir+" is free", func() error {
		turn, err := net.ListenPacket("unixgram", "@dew-stored")
		if err == nil {
			t.Cleanup(func() { turn.Close() })
		}
		return err
	})
	if _, err := os.Stat(storedDir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	// A killed test left it.
	left := &cell{t: t, root: filepath.Join(storedDir, "root"), run: filepath.Join(storedDir, "run"), bin: programs}
	if out, err := left.command("teardown").CombinedOutput(); err != nil {
		t.Fatalf("cannot tear down what an earlier test left in %s: %v\n%s", storedDir, err, out)
	}
	if err := os.RemoveAll(storedDir); err != nil {
		t.Fatal(err)
	}
}

// The current dewd opens roots of older dewds, each with a running instance. It finds
// all stored data and adopts the instance.
func TestStoredRoot(t *testing.T) {
	eachStored(t, func(t *testing.T, name string, want stored) {
		takeStoredDir(t)
		listen := "127.0.0.1:" + strconv.Itoa(testkit.FreePorts(t, 1))
		w := &storedWorld{cell: newCellIn(t, storedDir, storedFlags(listen)...), want: want, api: "http://" + listen}
		unpackStored(t, name, storedDir, func(string) bool { return true })
		var before map[string][]int
		revivable := canRevive()
		if revivable == nil {
			w.revive()
			before = w.leaves()[want.Instance]
		}
		w.start()
		w.dew("target", "-o", "works", "-s", "yard")
		t.Run("answers", func(t *testing.T) { w.at(t).compare() })
		t.Run("logins", func(t *testing.T) { w.at(t).logIn() })
		t.Run("adopted", func(t *testing.T) {
			if revivable != nil {
				t.Skip(revivable)
			}
			w.at(t).adopted(before)
		})
		t.Run("started", func(t *testing.T) { w.at(t).runAll() })
		t.Run("network policies", func(t *testing.T) { w.at(t).policiesAreOff() })
		w.at(t)
	})
}

// policiesAreOff checks that the root does not enforce network policies, and that dew
// status says so once.
func (w *storedWorld) policiesAreOff() {
	w.t.Helper()
	const notice = "start dewd with --network-policies on"
	for try, want := range []bool{true, false} {
		out, err := w.dewCommand("status").Output()
		if err != nil || !strings.Contains(string(out), "network policies:") || strings.Contains(string(out), notice) != want {
			w.t.Errorf("dew status, time %d, with the notice: %v, %v:\n%s", try+1, want, err, out)
		}
	}
}

// storedWorld is a stored root with the current dewd.
type storedWorld struct {
	*cell
	want stored
	api  string
}

// at returns the world for a subtest.
func (w *storedWorld) at(t testing.TB) *storedWorld {
	w.t = t
	return w
}

// canRevive returns the reason why this machine cannot run the recorded instance.
func canRevive() error {
	if goruntime.GOARCH != "amd64" {
		return errors.New("its dew-init was recorded on amd64")
	}
	if _, err := os.Stat("/sys/fs/cgroup/freezer"); err != nil {
		return fmt.Errorf("it was recorded on a machine with cgroup v1: %w", err)
	}
	return nil
}

// revive starts the containerd of the root, as the old dewd left it, and creates its
// running instance again.
func (w *storedWorld) revive() {
	w.t.Helper()
	// It outlives the context, as it outlives a dewd. The teardown of the cell stops
	// it.
	d, err := private.Start(context.Background(), private.Config{
		Binary: "containerd", Root: filepath.Join(w.root, "containerd"), Run: filepath.Join(w.run, "containerd"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(programs, "instance"), "revive", "--address", d.Address())
	cmd.Stdin = bytes.NewReader(w.want.Running)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("cannot make the recorded instance: %v\n%s", err, out)
	}
}

// ask sends a GET request.
func (w *storedWorld) ask(path string, into any) {
	w.t.Helper()
	out, err := w.dewCommand("curl", path).Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		w.t.Errorf("GET %s: %v\n%s", path, err, out)
	}
}

// compare repeats all requests of the recording. The responses can have additional
// data, but no other changes.
func (w *storedWorld) compare() {
	w.t.Helper()
	for _, path := range slices.Sorted(maps.Keys(w.want.Answers)) {
		var want, got any
		if err := json.Unmarshal(w.want.Answers[path], &want); err != nil {
			w.t.Fatal(err)
		}
		w.ask(path, &got)
		forgetNoDetection(want)
		if path == "/dew/v1/stacks" {
			forgetHostID(want)
		}
		if strings.HasPrefix(path, "/v3/feature_flags?") {
			forgetNewFlags(want, got)
		}
		for _, lost := range lostIn("", want, got, changing...) {
			w.t.Errorf("GET %s: %s", path, lost)
		}
	}
}

// forgetNoDetection removes empty results of detect scripts. dewd now fills them in for
// its own buildpacks.
func forgetNoDetection(v any) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			forgetNoDetection(x)
		}
	case map[string]any:
		if v["detect_output"] == "" {
			delete(v, "detect_output")
		}
		for _, x := range v {
			forgetNoDetection(x)
		}
	}
}

// forgetNewFlags removes the feature flags that the old dewd did not have. The list is
// sorted by name.
func forgetNewFlags(want, got any) {
	names := func(v any) (out []string) {
		for _, f := range v.(map[string]any)["resources"].([]any) {
			out = append(out, f.(map[string]any)["name"].(string))
		}
		return out
	}
	known, list := names(want), got.(map[string]any)
	list["resources"] = slices.DeleteFunc(list["resources"].([]any), func(f any) bool {
		return !slices.Contains(known, f.(map[string]any)["name"].(string))
	})
}

// forgetHostID removes the id of the host's stack from a list of stacks. It changes with
// the packages that are installed on the machine.
func forgetHostID(stacks any) {
	for _, s := range stacks.(map[string]any)["stacks"].([]any) {
		if s := s.(map[string]any); s["kind"] == "host" {
			delete(s, "id")
		}
	}
}

// logIn uses the passwords of the old root.
func (w *storedWorld) logIn() {
	w.t.Helper()
	userToken(w.t, w.api, storedUser, storedPassword).do(200, "GET", "/user_preferences", "")
	c := clientToken(w.t, w.api, storedClient, storedPassword)
	waitStatus(w.t, c, w.want.Undeliverable, "undeliverable")
	c.two = true
	if got := c.do(200, "GET", "/campaigns/"+w.want.Campaign+"/status", ""); !strings.Contains(string(got), `"completed"`) {
		w.t.Errorf("status of the campaign = %s, want completed", got)
	}
}

// adopted checks that the instance of ticker is the same, that its log has no hole, and
// that dewd sees the exit of its sidecar.
func (w *storedWorld) adopted(before map[string][]int) {
	w.t.Helper()
	app := w.app("ticker")
	if got := w.instances(app); !slices.Equal(got, []string{"RUNNING " + w.want.Instance}) {
		w.t.Fatalf("instances of ticker = %v, want %s alone\n%s", got, w.want.Instance, w.said)
	}
	leader := func(leaves map[string][]int) []int {
		var all []int
		for _, leaf := range []string{"main", "sidecar-0"} {
			pid, _ := leaderOf(w.t, leaves[leaf])
			all = append(all, pid)
		}
		return all
	}
	if diff := cmp.Diff(leader(before), leader(w.leaves()[w.want.Instance])); diff != "" {
		w.t.Errorf("processes of ticker changed (-before +now):\n%s", diff)
	}
	last := w.checkTicks(app, 0)
	w.checkTicks(app, last+3)
	w.dew("kill", "ticker", "--sidecar", "config server", "--wait")
	var crashes v3.Crashes
	w.ask("/dew/v1/apps/"+app+"/crashes", &crashes)
	if len(crashes.Crashes) != 1 || crashes.Crashes[0].Instance != w.want.Instance ||
		!strings.Contains(crashes.Crashes[0].Description, "SIDECAR/CONFIG SERVER: Exited with status 137") {
		w.t.Errorf("crashes of ticker = %+v, want one of its sidecar", crashes.Crashes)
	}
}

// app returns the guid of an app.
func (w *storedWorld) app(name string) string {
	w.t.Helper()
	var page struct{ Resources []struct{ GUID string } }
	w.ask("/v3/apps?names="+name, &page)
	if len(page.Resources) != 1 {
		w.t.Fatalf("apps called %s = %+v, want one", name, page)
	}
	return page.Resources[0].GUID
}

// instances returns those of the web process of an app, each as state and ID.
func (w *storedWorld) instances(app string) (all []string) {
	w.t.Helper()
	var stats struct {
		Resources []struct {
			State    string
			Instance string `json:"instance_guid"`
		}
	}
	w.ask("/v3/apps/"+app+"/processes/web/stats", &stats)
	for _, r := range stats.Resources {
		all = append(all, r.State+" "+r.Instance)
	}
	return all
}

// checkTicks waits until the log has n lines of ticker. It checks that the numbers
// count up twice: for the process of the old dewd, and for the one that was created
// again. It returns the number of lines.
func (w *storedWorld) checkTicks(app string, n int) int {
	w.t.Helper()
	var ticks []int
	w.eventually(fmt.Sprintf("%d lines of ticker", n), func() error {
		if ticks = w.ticks(app); len(ticks) < n {
			return fmt.Errorf("%d lines", len(ticks))
		}
		return nil
	})
	starts := 0
	for i, tick := range ticks {
		switch {
		case tick == 1:
			starts++
		case i == 0 || tick != ticks[i-1]+1:
			w.t.Errorf("lines of ticker: %d follows %v", tick, ticks[max(0, i-3):i])
		}
	}
	if starts != 2 {
		w.t.Errorf("ticker began to count %d times, want 2: %v", starts, ticks)
	}
	return len(ticks)
}

func (w *storedWorld) ticks(app string) (all []int) {
	w.t.Helper()
	var got struct {
		Envelopes struct {
			Batch []struct{ Log struct{ Payload string } }
		}
	}
	w.ask("/api/v1/read/"+app+"?limit=1000", &got)
	for _, e := range got.Envelopes.Batch {
		text, err := base64.StdEncoding.DecodeString(e.Log.Payload)
		if err != nil {
			w.t.Fatal(err)
		}
		if number, ok := strings.CutPrefix(string(text), "tick "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(number))
			if err != nil {
				w.t.Fatal(err)
			}
			all = append(all, n)
		}
	}
	return all
}

// runAll waits until the instances of all started apps run.
func (w *storedWorld) runAll() {
	w.t.Helper()
	for name, want := range map[string]int{"shop": 1, "ticker": 1, "careful": 2} {
		app := w.app(name)
		w.eventually(name+" runs", func() error {
			got := w.instances(app)
			if len(got) != want || !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "RUNNING") }) {
				return fmt.Errorf("instances = %v", got)
			}
			return nil
		})
	}
	if got, err := w.dewCommand("ssh", "faulty", "--crashed", "-c", "cat readme").CombinedOutput(); err != nil || string(got) != storedReadme {
		w.t.Errorf("a file of a crashed instance = %q, %v, want %q", got, err, storedReadme)
	}
	if got := w.instances(w.app("faulty")); len(got) != 0 && !strings.HasPrefix(got[0], "DOWN") {
		w.t.Errorf("instances of faulty = %v, want none: it was stopped", got)
	}
}
