package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/usage"
	"github.com/dewrun/dew/verdict"
)

// fakeUsage has fixed values.
type fakeUsage struct {
	now     map[runtime.InstanceID]*usage.Usage
	history []usage.History
	crashes map[string]usage.Crashes
}

func (f *fakeUsage) Now(context.Context) map[runtime.InstanceID]*usage.Usage  { return f.now }
func (f *fakeUsage) Once(context.Context) map[runtime.InstanceID]*usage.Usage { return f.now }
func (f *fakeUsage) History(string) []usage.History                           { return f.history }

func (f *fakeUsage) Crashes(process string) (usage.Crashes, error) { return f.crashes[process], nil }

// withUsage gives the apps of a server values.
func (w *testServer) withUsage() *fakeUsage {
	f := &fakeUsage{now: map[runtime.InstanceID]*usage.Usage{}, crashes: map[string]usage.Crashes{}}
	w.s.apps.Live.Usage, w.s.apps.Live.Interval = f, 10*time.Millisecond
	return f
}

// runs makes an instance of an app run with a sidecar.
func (f *fakeUsage) runs(w *testServer, guid string) runtime.InstanceID {
	id := runtime.InstanceID("instance-of-" + guid)
	slot := runtime.SlotID{Process: guid}
	w.fake.set(guid, runtime.Status{Slot: slot, App: guid, Type: "web", State: runtime.Running, Ready: true, Instance: id, Since: time.Unix(1000, 0)})
	f.now[id] = &usage.Usage{
		App: guid, Type: "web", Slot: slot, CPU: 0.25, Memory: 30 << 20, Disk: 5, LogRate: 7, Requests: 2.5, Latency: 1500 * time.Microsecond,
		Traffic: runtime.Traffic{Requests: 12},
		Parts: []usage.Part{
			{PartUsage: runtime.PartUsage{Memory: 20 << 20, Limit: 64 << 20, Cache: 3, Peak: 25 << 20, CPU: 2 * time.Second, PIDs: 4}, CPU: 0.2, PeakEver: 60 << 20},
			{PartUsage: runtime.PartUsage{Sidecar: "agent", Memory: 10 << 20, Limit: 32 << 20, Peak: 11 << 20, Waited: time.Second}, CPU: 0.05, PeakEver: 11 << 20, Throttled: 0.5},
		},
	}
	f.crashes[guid] = usage.Crashes{
		Newest: &usage.Crash{At: time.Unix(900, 0), Type: "web", Slot: slot, Class: verdict.Exited, Sentence: "it exited"},
		Counts: map[runtime.SlotID]int{slot: 3},
	}
	return id
}

func TestLive(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	f := w.withUsage()
	a := w.startedApp("shop")
	f.runs(w, a.GUID)
	stopped := w.createApp("idle")
	var got v3.LiveApps
	w.want(200, "GET", "/dew/v1/live", "", &got)
	if len(got.Resources) != 2 || got.Resources[0].Name != "idle" || got.Resources[0].State != "STOPPED" || got.Resources[1].Name != "shop" {
		t.Fatalf("apps = %+v, want idle and shop", got.Resources)
	}
	shop := got.Resources[1]
	if shop.Space.GUID != w.space.GUID || shop.Space.OrgName == "" || shop.LastCrash == nil || shop.LastCrash.Sentence != "it exited" || shop.LastCrash.Class != "exited" {
		t.Errorf("app = %+v", shop)
	}
	if len(shop.Instances) != 1 {
		t.Fatalf("instances = %+v, want one", shop.Instances)
	}
	in := shop.Instances[0]
	if in.State != "RUNNING" || !in.Ready || in.Restarts != 3 || in.CPU != 0.25 || in.Requests != 2.5 || in.LatencyMS != 1.5 || in.MemQuota == 0 || len(in.Processes) != 2 {
		t.Errorf("instance = %+v", in)
	}
	if p := in.Processes[1]; p.Sidecar != "agent" || p.Mem != 10<<20 || p.MemQuota != 32<<20 || p.Throttled != 0.5 {
		t.Errorf("sidecar = %+v", p)
	}
	for query, want := range map[string]int{
		"app_guids=" + a.GUID: 1, "app_guids=" + a.GUID + "," + stopped.GUID + ",unknown": 2, "space_guids=" + w.space.GUID: 2,
		"space_guids=unknown": 0, "organization_guids=" + w.space.Org: 2, "organization_guids=unknown": 0,
	} {
		w.want(200, "GET", "/dew/v1/live?"+query, "", &got)
		if len(got.Resources) != want {
			t.Errorf("%s: %d apps, want %d", query, len(got.Resources), want)
		}
	}
}

// Users see the apps that GET /v3/apps shows them, with every role.
func TestLiveEveryRole(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	for who, token := range h.tokens {
		var apps struct{ Resources []struct{ GUID string } }
		var live v3.LiveApps
		for path, out := range map[string]any{"/v3/apps": &apps, "/dew/v1/live": &live} {
			got := h.as(token, "GET", path, "")
			if got.Code != 200 {
				t.Fatalf("%s as %s = %d", path, who, got.Code)
			}
			if err := json.Unmarshal(got.Body.Bytes(), out); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[string]bool{}
		for _, a := range apps.Resources {
			seen[a.GUID] = true
		}
		for _, a := range live.Resources {
			if !seen[a.GUID] {
				t.Errorf("%s sees app %s only in /dew/v1/live", who, a.GUID)
			}
			delete(seen, a.GUID)
		}
		if len(seen) > 0 {
			t.Errorf("%s does not see %v in /dew/v1/live", who, seen)
		}
	}
}

func TestUsageHistory(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	var got v3.UsageHistory
	w.want(200, "GET", "/dew/v1/apps/"+a.GUID+"/usage", "", &got)
	if got.Interval != 10 || got.Resources == nil || len(got.Resources) != 0 {
		t.Errorf("history = %+v, want none", got)
	}
	w.withUsage().history = []usage.History{{
		Type: "web", Instance: "i", Times: []int64{10}, Requests: []float64{1}, LatencyMS: []float64{2}, LogRate: []int64{3},
		Parts: []usage.PartHistory{{Sidecar: "agent", Limit: 5, Memory: []int64{4}, CPU: []float64{0.5}}},
	}}
	w.want(200, "GET", "/dew/v1/apps/"+a.GUID+"/usage", "", &got)
	if len(got.Resources) != 1 || got.Resources[0].Processes[0].Mem[0] != 4 || got.Resources[0].Processes[0].Sidecar != "agent" {
		t.Errorf("history = %+v", got)
	}
}

// The stream sends the current values at once, and again after a change.
func TestLiveStream(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.withUsage()
	srv := httptest.NewServer(w.s.Local())
	t.Cleanup(srv.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := must(http.NewRequestWithContext(ctx, "GET", srv.URL+"/dew/v1/live/stream", nil))(t)
	res := must(srv.Client().Do(req))(t)
	defer res.Body.Close()
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type = %q", got)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	event := ""
	next := func() (out v3.LiveApps) {
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = name
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &out); err != nil {
					t.Fatal(err)
				}
				return out
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return out
	}
	if first := next(); len(first.Resources) != 0 {
		t.Errorf("first event = %+v, want no apps", first)
	}
	w.createApp("shop")
	if second := next(); len(second.Resources) != 1 || second.Resources[0].Name != "shop" {
		t.Errorf("second event = %+v, want shop", second)
	}
	// Clients read other resources again after a change, such as audit events.
	if third := next(); event != "change" || third.Resources != nil {
		t.Errorf("third event = %s %+v, want change without data", event, third)
	}
	if got := w.request("GET", "/dew/v1/live/stream?follow=false", "").Body.String(); !strings.HasPrefix(got, "event: live\ndata: {") || strings.Count(got, "data:") != 1 {
		t.Errorf("one event = %q", got)
	}
	if got := w.request("GET", "/dew/v1/live/stream?follow=maybe", ""); got.Code != 400 {
		t.Errorf("status = %d, want 400", got.Code)
	}
}

// Every metric of the dashboard is exported, and the usage of processes has its labels.
func TestDashboard(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	f := w.withUsage()
	id := f.runs(w, w.startedApp("shop").GUID)
	next := *f.now[id]
	next.Slot.Generation, next.Traffic.Requests = 1, 99
	f.now["next"] = &next // a deployment has two instances with one index
	w.s.c.Metrics.WatchUsage(f.Once, w.c.Registry, w.c.Logger)
	w.s.c.Metrics.ContainerdCall("task.Start", 20e6, nil)
	w.s.c.Metrics.StoreCommit(2e6)
	got := w.request("GET", "/metrics", "")
	if got.Code != 200 {
		t.Fatalf("status = %d: %s", got.Code, got.Body)
	}
	for _, want := range []string{
		fmt.Sprintf(`dew_process_memory_bytes{app="shop",index="0",org="%s",process="agent",space="%s",type="web"} 1.048576e+07`, must(w.c.Registry.Org(w.space.Org))(t).Name, w.space.Name),
		`process="main",`, `dew_instance_requests_total{app="shop",`, "} 99\n",
	} {
		if !strings.Contains(got.Body.String(), want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	exported := map[string]bool{"dew_crash_verdicts_total": true, "dew_instance_crashes_total": true} // without crashes they have no values
	for _, m := range regexp.MustCompile(`(?m)^# HELP (\S+)`).FindAllStringSubmatch(got.Body.String(), -1) {
		exported[m[1]] = true
	}
	raw := must(os.ReadFile(filepath.Join("..", "dist", "grafana-dashboard.json")))(t)
	var board struct {
		SchemaVersion int `json:"schemaVersion"`
		Templating    struct{ List []struct{ Name, Type string } }
		Panels        []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(raw, &board); err != nil {
		t.Fatal(err)
	}
	if board.SchemaVersion < 38 || len(board.Panels) < 10 || len(board.Templating.List) == 0 || board.Templating.List[0].Type != "datasource" {
		t.Errorf("dashboard = schema %d with %d panels and variables %+v", board.SchemaVersion, len(board.Panels), board.Templating.List)
	}
	for _, name := range regexp.MustCompile(`dew_[a-z_]+`).FindAllString(string(raw), -1) {
		base := name
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if !exported[name] && !exported[base] {
			t.Errorf("the dashboard uses %s, which /metrics does not export", name)
		}
	}
}

// BenchmarkLive requests the live values of 100 apps with 300 processes.
func BenchmarkLive(b *testing.B) {
	w := newLargeServer(b)
	f := w.withUsage()
	apps := must(w.c.Registry.Apps())(b)
	for _, a := range apps {
		f.runs(w, a.GUID)
	}
	for _, path := range []string{"/dew/v1/live", "/dew/v1/live?app_guids=" + apps[0].GUID} {
		b.Run(path[:min(len(path), 25)], func(b *testing.B) {
			local := w.s.Local() // without the checks of test responses
			for b.Loop() {
				got := httptest.NewRecorder()
				local.ServeHTTP(got, httptest.NewRequestWithContext(b.Context(), "GET", "http://localhost"+path, nil))
				if got.Code != http.StatusOK {
					b.Fatalf("status = %d", got.Code)
				}
			}
		})
	}
}
