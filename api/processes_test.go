package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/daemon"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/runtime"
)

var (
	regexpResources = regexp.MustCompile(`(?s)"resources":\[.*\]`)
	regexpUptime    = regexp.MustCompile(`"uptime":\d+`)
)

func TestProcess(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.giveDroplet(a.GUID, map[string]string{"worker": "work"})
	path := "/v3/processes/" + a.GUID
	golden(t, "process", w.request("GET", path, "").Body.Bytes())
	golden(t, "process", w.request("GET", "/v3/apps/"+a.GUID+"/processes/web", "").Body.Bytes())
	golden(t, "process-updated", w.request("PATCH", path,
		`{"command":"serve","health_check":{"type":"http","data":{"endpoint":"/health","timeout":"90","invocation_timeout":5,"interval":7}},
		  "readiness_health_check":{"type":"port"}}`).Body.Bytes())
	golden(t, "process-reset", w.request("PATCH", path, `{"command":null,"health_check":{"type":"port","data":{"timeout":null}}}`).Body.Bytes())

	scaled := w.request("POST", "/v3/apps/"+a.GUID+"/processes/web/actions/scale", `{"instances":"2","memory_in_mb":"512","disk_in_mb":256}`)
	if scaled.Code != http.StatusAccepted {
		t.Errorf("scale = %d %s, want 202", scaled.Code, scaled.Body)
	}
	p := must(w.c.Registry.Process(a.GUID))(t)
	if p.Instances != 2 || p.MemoryMB != 512 || p.DiskMB != 256 {
		t.Errorf("process = %+v, want 2 instances, 512 and 256 MB", p)
	}
	w.want(202, "POST", path+"/actions/scale", `{"instances":0,"log_rate_limit_in_bytes_per_second":-1}`, nil)
	if p := must(w.c.Registry.Process(a.GUID))(t); p.Instances != 0 || p.MemoryMB != 512 {
		t.Errorf("process = %+v, want no instances and the rest as it was", p)
	}
	for query, want := range map[string]int{
		"": 2, "app_guids=" + a.GUID: 2, "app_guids=x": 0, "space_guids=" + w.space.GUID: 2, "types=worker": 1, "guids=" + a.GUID: 1,
	} {
		var list v3.List[v3.Process]
		if w.want(200, "GET", "/v3/processes?"+query, "", &list); len(list.Resources) != want {
			t.Errorf("?%s = %d processes, want %d", query, len(list.Resources), want)
		}
	}
	var events v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?types=audit.app.process.update,audit.app.process.scale", "", &events)
	if diff := cmp.Diff(eventTypes(events.Resources), []string{
		"audit.app.process.update", "audit.app.process.update", "audit.app.process.scale", "audit.app.process.scale",
	}); diff != "" {
		t.Errorf("events differ (-got +want):\n%s", diff)
	}
	if got := events.Resources[0].Data["request"].(map[string]any)["command"]; got != platform.Hidden {
		t.Errorf("the event's command = %v, want it hidden", got)
	}
	if got := events.Resources[2].Data["request"].(map[string]any)["instances"]; got != float64(2) {
		t.Errorf("the event's instances = %v, want 2: clients show it", got)
	}
}

// Stats have one item for each desired instance of a started app, whatever its state.
// Clients read an empty list as "nothing to wait for".
func TestStats(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	path := "/v3/processes/" + a.GUID + "/stats"
	w.want(202, "POST", "/v3/processes/"+a.GUID+"/actions/scale", `{"instances":4}`, nil)
	var stats v3.Stats
	w.want(200, "GET", path, "", &stats)
	if got := states(stats); got != "STARTING STARTING STARTING STARTING" {
		t.Errorf("right after start = %s, want all STARTING", got)
	}
	version := must(w.c.Registry.Process(a.GUID))(t).Version
	since := time.Now().Add(-time.Minute)
	w.fake.set(a.GUID,
		runtime.Status{
			State: runtime.Running, Since: since, Ready: true, Instance: "0123abcd-0123-0123-0123-0123", Version: version,
			Address: netip.MustParseAddr("10.201.0.2"), Ports: []int{8080},
		},
		runtime.Status{
			State: runtime.Crashed, Since: since, Details: "APP/PROC/WEB: Exited with status 1", Version: version, CrashCount: 4,
			NextStart: time.Now().Add(time.Minute),
		},
		runtime.Status{State: runtime.Starting, Since: since, Version: version},
		runtime.Status{State: runtime.Down, Since: since, Details: "no addresses are left"},
		runtime.Status{State: runtime.Stopping, Since: since, Version: version}, // more than the desired number
	)
	got := regexpUptime.ReplaceAll(w.request("GET", path, "").Body.Bytes(), []byte(`"uptime":60`))
	golden(t, "stats", got)
	w.want(200, "POST", "/v3/apps/"+a.GUID+"/actions/stop", "", nil)
	var down v3.Stats
	w.want(200, "GET", path, "", &down)
	for i, st := range down.Resources {
		if st.Index != i || st.State != v3.StateDown || st.InstanceGUID != "" || st.Usage.Mem != 0 {
			t.Errorf("instance %d of a stopped app = %+v, want it down", i, st)
		}
	}
	if p := must(w.c.Registry.Process(a.GUID))(t); len(down.Resources) != p.Instances {
		t.Errorf("stats of a stopped app = %+v, want one for each of %d instances", down, p.Instances)
	}
}

// A client can ask for an answer when an instance runs. Without news the answer is what it
// is after the wait.
func TestStatsWait(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	version := must(w.c.Registry.Process(a.GUID))(t).Version
	get := func(prefer string) string {
		r := httptest.NewRequest(http.MethodGet, "/v3/processes/"+a.GUID+"/stats", nil)
		r.Header.Set("Prefer", prefer)
		var stats v3.Stats
		if err := json.Unmarshal(w.send(r).Body.Bytes(), &stats); err != nil {
			t.Error(err)
		}
		return states(stats)
	}
	begin := time.Now()
	if got := get("wait=1"); got != "STARTING" || time.Since(begin) < time.Second {
		t.Errorf("after %v: %s, want STARTING after a second", time.Since(begin), got)
	}
	if got := get("wait=0"); got != "STARTING" {
		t.Errorf("at once = %s, want STARTING", got)
	}
	var ran atomic.Bool
	go func() {
		time.Sleep(10 * time.Millisecond) // the request waits by then, or finds the instance running
		ran.Store(true)
		w.fake.set(a.GUID, runtime.Status{State: runtime.Running, Version: version})
	}()
	got := get("wait=60")
	for got == "STARTING" { // on a starved machine
		got = get("wait=60")
	}
	if got != "RUNNING" || !ran.Load() {
		t.Errorf("when it runs = %s, want RUNNING", got)
	}
}

func states(s v3.Stats) string {
	var out []string
	for _, item := range s.Resources {
		out = append(out, item.State)
	}
	return strings.Join(out, " ")
}

func TestRestartInstance(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	w.fake.set(a.GUID, runtime.Status{State: runtime.Running}, runtime.Status{State: runtime.Running})
	w.want(204, "DELETE", "/v3/processes/"+a.GUID+"/instances/1", "", nil)
	w.want(204, "DELETE", "/v3/apps/"+a.GUID+"/processes/web/instances/0", "", nil)
	if diff := cmp.Diff(w.fake.restarted, []string{a.GUID + "/1", a.GUID + "/0"}); diff != "" {
		t.Errorf("restarted differ (-got +want):\n%s", diff)
	}
	var events v3.List[v3.Event]
	if w.want(200, "GET", "/v3/audit_events?types=audit.app.process.terminate_instance", "", &events); len(events.Resources) != 2 {
		t.Errorf("events = %d, want 2", len(events.Resources))
	}
}

func crashAt(w *testServer, a v3.App, index int, at time.Time) runtime.ExitRecord {
	w.t.Helper()
	first := runtime.Exit{
		Exec: "sidecar-0", Name: "config server", Source: "APP/PROC/WEB/SIDECAR/CONFIG SERVER", Code: 137, Cause: runtime.CauseExited,
		At: at, Memory: runtime.Memory{Limit: 64 << 20, Peak: 8 << 20},
	}
	return must(w.exits.Add(runtime.ExitRecord{
		Slot: runtime.SlotID{Process: a.GUID, Index: index}, App: a.GUID, Type: "web", Instance: "0123abcd-0123-0123-0123-0123",
		Cell: "cell", Version: "version", Reason: runtime.ReasonCrashed, Description: first.Description(), Phase: runtime.PhaseRunning,
		First: first, ProbableSignal: 9, CrashCount: 1, CrashedAt: at, Complete: true, NextStart: at.Add(time.Second),
		Followers: []runtime.Exit{{Exec: "main", Source: "APP/PROC/WEB", Code: 143, Cause: runtime.CausePeerExited, At: at.Add(time.Second)}},
		Lines:     []runtime.Lines{{Exec: "sidecar-0", From: 3, To: 4}, {Exec: "main", From: 5, To: 5}},
	}))(w.t)
}

// A crash is in the list of events with the text of its record, and in the list of
// crashes with all details.
func TestCrash(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	at := time.Now().Add(time.Hour).UTC() // later than the other events of the test
	crashAt(w, a, 0, at)
	crashAt(w, a, 1, at.Add(time.Minute))
	path := "/v3/audit_events?order_by=-created_at&page=1&target_guids=" + a.GUID
	var events v3.List[v3.Event]
	w.want(200, "GET", path, "", &events)
	want := []string{"app.crash", "audit.app.process.crash", "app.crash", "audit.app.process.crash", "audit.app.start", "audit.app.revision.create", "audit.app.droplet.mapped", "audit.app.create", "audit.app.process.create"}
	got := eventTypes(events.Resources)
	if len(got) == len(want) && got[0] > got[1] { // same time: the order depends on their GUIDs
		got[0], got[1] = got[1], got[0]
	}
	if len(got) == len(want) && got[2] > got[3] {
		got[2], got[3] = got[3], got[2]
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("events differ (-got +want):\n%s", diff)
	}
	if got, again := w.request("GET", path, "").Body.String(), w.request("GET", path, "").Body.String(); got != again {
		t.Error("a crash has other guids each time")
	}
	stamp := regexp.MustCompile(`"crash_timestamp":\d+`)
	golden(t, "event-crash", stamp.ReplaceAll(w.request("GET", path+"&types=app.crash&per_page=1", "").Body.Bytes(), []byte(`"crash_timestamp":0`)))
	golden(t, "event-process-crash", stamp.ReplaceAll(w.request("GET", path+"&types=audit.app.process.crash&per_page=1", "").Body.Bytes(), []byte(`"crash_timestamp":0`)))
	for query, want := range map[string]int{
		"types=app.crash": 2, "types=app.crash&target_guids=x": 0, "types=app.crash&space_guids=x": 0,
		"types=app.crash&organization_guids=" + w.space.Org: 2, "types=audit.app.start&space_guids=" + w.space.GUID: 1,
	} {
		if w.want(200, "GET", "/v3/audit_events?"+query, "", &events); len(events.Resources) != want {
			t.Errorf("?%s = %d events, want %d", query, len(events.Resources), want)
		}
	}
	golden(t, "crashes", w.request("GET", "/dew/v1/apps/"+a.GUID+"/crashes", "").Body.Bytes())
	if got := w.request("GET", "/dew/v1/apps/"+w.createApp("calm").GUID+"/crashes", "").Body.String(); !strings.HasSuffix(strings.TrimSpace(got), `"crashes":[]}`) {
		t.Errorf("crashes of an app without any = %s", got)
	}
}

// The list of crashes has pages like all lists; without parameters it contains all
// crashes.
func TestCrashPages(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	at := time.Now().UTC()
	for i := range 7 {
		crashAt(w, a, i, at.Add(time.Duration(i)*time.Minute))
	}
	path := "/dew/v1/apps/" + a.GUID + "/crashes"
	read := func(path string) (indexes []int, p v3.Pagination) {
		t.Helper()
		var page v3.Crashes
		w.want(200, "GET", path, "", &page)
		for _, c := range page.Crashes {
			indexes = append(indexes, c.Index)
		}
		return indexes, page.Pagination
	}
	for query, want := range map[string][]int{
		"":                                 {6, 5, 4, 3, 2, 1, 0},
		"?per_page=3":                      {6, 5, 4},
		"?per_page=3&page=3":               {0},
		"?per_page=3&page=4":               nil,
		"?order_by=created_at&per_page=2":  {0, 1},
		"?order_by=-created_at&per_page=1": {6},
	} {
		got, p := read(path + query)
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", query, diff)
		}
		if p.TotalResults != 7 {
			t.Errorf("%s: total = %d, want 7", query, p.TotalResults)
		}
	}
	var all []int
	for next := path + "?per_page=2"; next != ""; {
		got, p := read(next)
		all, next = append(all, got...), ""
		if p.Next != nil {
			next = strings.TrimPrefix(p.Next.Href, w.s.links.Public.String())
		}
	}
	if diff := cmp.Diff(all, []int{6, 5, 4, 3, 2, 1, 0}); diff != "" {
		t.Errorf("page after page (-got +want):\n%s", diff)
	}
	for _, query := range []string{"?per_page=0", "?per_page=5001", "?page=x", "?order_by=name", "?colour=red"} {
		w.want(400, "GET", path+query, "", nil)
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	path := "/dew/v1/processes/" + a.GUID + "/kill"
	for _, body := range []string{
		`{"index":1,"sidecar":"config server","signal":"KILL"}`, `{"signal":"sigterm"}`, `{"signal":"3"}`, `{}`,
	} {
		w.want(204, "POST", path, body, nil)
	}
	want := []string{a.GUID + "/1/config server/9", a.GUID + "/0//15", a.GUID + "/0//3", a.GUID + "/0//9"}
	if diff := cmp.Diff(w.fake.signals, want); diff != "" {
		t.Errorf("signals differ (-got +want):\n%s", diff)
	}
	w.fake.err = runtime.ErrNoInstance
	got := w.request("POST", path, `{"sidecar":"x"}`)
	if got.Code != http.StatusNotFound {
		t.Errorf("status = %d, want 404", got.Code)
	}
	w.fake.err = runtime.ErrUnavailable
	if got := w.request("POST", path, `{}`); got.Code != http.StatusServiceUnavailable {
		t.Errorf("status = %d, want 503", got.Code)
	}
}

func TestStatusAndShutdown(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	w.createApp("idle")
	w.want(202, "POST", "/v3/processes/"+a.GUID+"/actions/scale", `{"instances":3}`, nil)
	w.fake.set(a.GUID, runtime.Status{State: runtime.Running}, runtime.Status{State: runtime.Crashed}, runtime.Status{State: runtime.Starting})
	golden(t, "status", w.request("GET", "/dew/v1/status", "").Body.Bytes())
	w.want(202, "POST", "/dew/v1/shutdown", `{"apps":true}`, nil)
	w.want(202, "POST", "/dew/v1/shutdown", `{}`, nil)
	if diff := cmp.Diff(w.shutdown, []bool{true, false}); diff != "" {
		t.Errorf("shutdowns differ (-got +want):\n%s", diff)
	}
	w.s.daemon.Shutdown = nil
	wantError(t, w.request("POST", "/dew/v1/shutdown", `{}`), "CF-UnprocessableEntity", "Stop its process.")
}

func TestCrashEventsAreJSON(t *testing.T) {
	for _, e := range daemon.CrashEvents(runtime.ExitRecord{Instance: "i", Description: "\x00<&>"}, app.App{GUID: "a"}, "o") {
		if _, err := json.Marshal(e); err != nil {
			t.Errorf("event %s: %v", e.Type, err)
		}
	}
}

// A process without a command of its own shows the one of its droplet. One process has
// its instances on request, and those of a stopped app are down since some time.
func TestDetectedCommand(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	command := func(path string) string {
		var p v3.Process
		w.want(200, "GET", path, "", &p)
		if p.Command == nil {
			return ""
		}
		return *p.Command
	}
	if got := command("/v3/processes/" + a.GUID); got != "serve" {
		t.Errorf("command = %q, want the one of the droplet", got)
	}
	w.want(200, "PATCH", "/v3/processes/"+a.GUID, `{"command":"mine"}`, nil)
	if got := command("/v3/apps/" + a.GUID + "/processes/web"); got != "mine" {
		t.Errorf("command = %q, want the one of the process", got)
	}
	w.want(200, "PATCH", "/v3/processes/"+a.GUID, `{"command":null}`, nil)
	w.want(200, "POST", "/v3/apps/"+a.GUID+"/actions/stop", "", nil)
	for _, path := range []string{"/v3/processes/" + a.GUID, "/v3/apps/" + a.GUID + "/processes/web"} {
		var p v3.Process
		w.want(200, "GET", path+"?embed=process_instances", "", &p)
		if len(p.EmbeddedInstances) != 1 || p.EmbeddedInstances[0].State != "DOWN" || p.EmbeddedInstances[0].Since < 1 {
			t.Errorf("%s: instances = %+v, want one that is down for some time", path, p.EmbeddedInstances)
		}
		if p.Command == nil || *p.Command != "serve" {
			t.Errorf("%s: command = %v, want the one of the droplet", path, p.Command)
		}
		wantError(t, w.request("GET", path+"?embed=app", ""), "CF-BadQueryParameter", "Invalid embedded resource: 'app'")
	}
	if got := command("/v3/processes/" + w.createApp("bare").GUID); got != "" {
		t.Errorf("command = %q, want none without a droplet", got)
	}
}

// A task is running as soon as it is accepted.
func TestTaskRunsAtOnce(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	var task v3.Task
	if w.want(202, "POST", "/v3/apps/"+a.GUID+"/tasks", `{"command":"true"}`, &task); task.State != "RUNNING" {
		t.Errorf("state = %s, want RUNNING", task.State)
	}
	var tasks v3.List[v3.Task]
	if w.want(200, "GET", "/v3/tasks?states=RUNNING", "", &tasks); len(tasks.Resources) != 1 {
		t.Errorf("tasks = %+v, want the one", tasks.Resources)
	}
}
