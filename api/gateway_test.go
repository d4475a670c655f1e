package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/usage"
	"github.com/dewrun/dew/testkit"
)

// batch returns the next envelopes of the stream, without heartbeats.
func (s *stream) batch() []v3.GatewayEnvelope {
	s.t.Helper()
	for {
		text, ok := strings.CutPrefix(s.next(), "data: {")
		if !ok {
			continue
		}
		var b v3.GatewayBatch
		if err := json.Unmarshal([]byte("{"+text), &b); err != nil {
			s.t.Fatalf("%v: %s", err, text)
		}
		return b.Batch
	}
}

// texts returns the next n log lines of the stream.
func (s *stream) texts(n int) (out []string) {
	s.t.Helper()
	for len(out) < n {
		for _, e := range s.batch() {
			out = append(out, string(e.Log.Payload))
		}
	}
	return out
}

// The gateway sends new lines in the format of Cloud Foundry's gateway, with all fields.
func TestGatewayLines(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	srv := httptest.NewServer(w.s.Handler())
	t.Cleanup(srv.Close)
	token := "Bearer " + w.login(auth.AdminName)
	a, b := w.createApp("shop"), w.createApp("other")
	printed := func(guid, text string) {
		t.Helper()
		l := must(w.c.Logs.App(guid))(t)
		if err := l.Append(logstream.Envelope{Time: time.Unix(1, 5), Source: logstream.Source{Type: "APP/PROC/WEB", Index: 1}, Stream: logstream.Err, Text: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	printed(a.GUID, "before")
	one := w.stream(t, srv, "/v2/read?log&source_id="+a.GUID, "Authorization", token)
	all := w.stream(t, srv, "/v2/read?log", "Authorization", token)
	printed(b.GUID, "theirs")
	printed(a.GUID, "mine")
	raw := one.next()
	var got map[string]any
	if err := json.Unmarshal([]byte(strings.TrimPrefix(raw, "data: ")), &got); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	space := must(w.c.Registry.Space(a.Relationships.Space.ID()))(t)
	e := got["batch"].([]any)[0].(map[string]any)
	stamp := e["timestamp"]
	delete(e, "timestamp")
	tags := e["tags"].(map[string]any)
	for _, name := range []string{"process_id", "process_type", "organization_id", "organization_name"} {
		if tags[name] == "" || tags[name] == nil {
			t.Errorf("no tag %s in %v", name, tags)
		}
		delete(tags, name)
	}
	want := map[string]any{"batch": []any{map[string]any{
		"source_id": a.GUID, "instance_id": "1", "deprecated_tags": map[string]any{},
		"tags": map[string]any{
			"app_id": a.GUID, "app_name": "shop", "space_id": space.GUID, "space_name": space.Name, "origin": "rep", "source_type": "APP/PROC/WEB", "instance_id": "1",
		},
		"log": map[string]any{"payload": "bWluZQ==", "type": "ERR"},
	}}}
	if diff := cmp.Diff(got, want); diff != "" || stamp == "" {
		t.Errorf("event with timestamp %v (-got +want):\n%s", stamp, diff)
	}
	lines := all.texts(2)
	if !(lines[0] == "theirs" && lines[1] == "mine" || lines[0] == "mine" && lines[1] == "theirs") {
		t.Errorf("lines of all apps = %q", lines)
	}
	late := w.createApp("late")
	printed(late.GUID, "new app")
	for !slices.Contains(all.texts(1), "new app") {
	}
}

// The errors are those of the gateway.
func TestGatewayErrors(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.user("stranger")
	admin, stranger := w.login(auth.AdminName), w.login("stranger")
	for query, want := range map[string]struct {
		token  string
		status int
		body   string
	}{
		"":                         {admin, 400, `{"message":"query cannot be empty","error":"empty_query"}`},
		"?source_id=x":             {admin, 400, `{"message":"query must provide at least one envelope type","error":"missing_envelope_type"}`},
		"?log":                     {stranger, 404, `{"message":"resource not found","error":"not_found"}`},
		"?log&source_id=" + a.GUID: {stranger, 404, `{"message":"resource not found","error":"not_found"}`},
		"?log&source_id=none":      {stranger, 404, `{"message":"resource not found","error":"not_found"}`},
	} {
		got := w.as(want.token, "GET", "/v2/read"+query, "")
		if got.Code != want.status || strings.TrimSpace(got.Body.String()) != want.body {
			t.Errorf("%q = %d %s, want %d %s", query, got.Code, got.Body, want.status, want.body)
		}
	}
	if got := w.as("", "GET", "/v2/read?log", ""); got.Code != 401 {
		t.Errorf("without a token = %d %s", got.Code, got.Body)
	}
}

// A client with the scope logs.admin or doppler.firehose sees all apps, and needs no
// other scope.
func TestGatewayScopes(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	srv := httptest.NewServer(w.s.Handler())
	t.Cleanup(srv.Close)
	a := w.createApp("shop")
	for _, scope := range []string{"logs.admin", "doppler.firehose"} {
		s := w.stream(t, srv, "/v2/read?log", "Authorization", "Bearer "+w.client("nozzle-"+scope, scope))
		w.print(a.GUID, scope)
		if got := s.texts(1); got[0] != scope {
			t.Errorf("line = %q", got)
		}
	}
	if got := w.as(w.client("none", "uaa.resource"), "GET", "/v2/read?log", ""); got.Code != 403 {
		t.Errorf("another scope = %d %s", got.Code, got.Body)
	}
}

// Heartbeats are events with the time in seconds.
func TestGatewayHeartbeat(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.s.logs.Beat = 10 * time.Millisecond
	srv := httptest.NewServer(w.s.Handler())
	t.Cleanup(srv.Close)
	s := w.stream(t, srv, "/v2/read?counter", "Authorization", "Bearer "+w.login(auth.AdminName))
	if first, second := s.next(), s.next(); first != "event: heartbeat" || !strings.HasPrefix(second, "data: 1") {
		t.Errorf("heartbeat = %q %q", first, second)
	}
}

// Streams with the same shard id share the lines: each line is sent to one of them.
func TestGatewayShards(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	srv := httptest.NewServer(w.s.Handler())
	t.Cleanup(srv.Close)
	token := "Bearer " + w.login(auth.AdminName)
	a := w.createApp("shop")
	const n = 40
	for name, query := range map[string][2]string{
		"shard": {"&shard_id=x", "&shard_id=x"},
		"named": {"&shard_id=y&deterministic_name=a", "&shard_id=y&deterministic_name=b"},
		"apart": {"&shard_id=v", "&shard_id=w"},
		"other": {"&shard_id=z", "&shard_id=z&timer"},
	} {
		got := make(chan string, 10*n)
		ctx, cancel := context.WithCancel(t.Context())
		for i, more := range query {
			s := w.stream(t, srv, "/v2/read?log"+more, "Authorization", token)
			context.AfterFunc(ctx, s.cancel)
			go func() {
				for s.lines.Scan() {
					var b v3.GatewayBatch
					text, ok := strings.CutPrefix(s.lines.Text(), "data: {")
					if !ok || json.Unmarshal([]byte("{"+text), &b) != nil {
						continue
					}
					for _, e := range b.Batch {
						got <- fmt.Sprint(i, " ", string(e.Log.Payload))
					}
				}
			}()
		}
		for i := range n {
			w.print(a.GUID, fmt.Sprint(name, i))
		}
		wanted := n
		if name == "apart" || name == "other" {
			wanted = 2 * n
		}
		seen, by := map[string]int{}, map[string]int{}
		for range wanted {
			who, text, _ := strings.Cut(<-got, " ")
			seen[text]++
			by[who]++
		}
		cancel()
		for text, times := range seen {
			if times != wanted/n {
				t.Errorf("%s: line %s arrived %d times", name, text, times)
			}
		}
		if streams := map[string]int{"shard": 2, "named": 1, "apart": 2, "other": 2}[name]; len(by) != streams {
			t.Errorf("%s: lines by stream = %v, want %d streams", name, by, streams)
		}
	}
}

// Gauges are the container metrics, and timers the requests of the router.
func TestGatewayMetrics(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	srv := httptest.NewServer(w.s.Handler())
	t.Cleanup(srv.Close)
	token := "Bearer " + w.login(auth.AdminName)
	a := w.createApp("shop")
	w.s.logs.GaugeInterval = 10 * time.Millisecond
	w.s.logs.Usage = &fakeUsage{now: map[runtime.InstanceID]*usage.Usage{
		"i": {App: a.GUID, Type: "web", Slot: runtime.SlotID{Index: 2}, CPU: 0.25, Memory: 100, Disk: 200, LogRate: 30, Entitled: 0.5},
		"j": {App: "other", Type: "web"},
	}}
	s := w.stream(t, srv, "/v2/read?gauge&source_id="+a.GUID, "Authorization", token)
	got := s.batch()
	if len(got) != 2 || got[0].InstanceID != "2" || got[0].Tags["process_type"] != "web" || got[0].Tags["app_name"] != "shop" || got[0].Timestamp == 0 {
		t.Fatalf("envelopes = %+v", got)
	}
	p := must(w.c.Registry.Processes(a.GUID))(t)[0]
	want := map[string]v3.GaugeValue{
		"cpu": {Unit: "percentage", Value: 25}, "cpu_entitlement": {Unit: "percentage", Value: 50}, "memory": {Unit: "bytes", Value: 100}, "disk": {Unit: "bytes", Value: 200},
		"memory_quota": {Unit: "bytes", Value: float64(p.MemoryMB << 20)}, "disk_quota": {Unit: "bytes", Value: float64(p.DiskMB << 20)},
	}
	if diff := cmp.Diff(got[0].Gauge.Metrics, want); diff != "" {
		t.Errorf("metrics (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(got[1].Gauge.Metrics, map[string]v3.GaugeValue{"log_rate": {Unit: "B/s", Value: 30}, "log_rate_limit": {Unit: "B/s", Value: -1}}); diff != "" {
		t.Errorf("log rate (-got +want):\n%s", diff)
	}
	s = w.stream(t, srv, "/v2/read?gauge.name=log_rate,log_rate_limit", "Authorization", token)
	if got := s.batch(); len(got) != 1 || len(got[0].Gauge.Metrics) != 2 {
		t.Errorf("named gauges = %+v, want those of the log rate", got)
	}
	s = w.stream(t, srv, "/v2/read?timer", "Authorization", token)
	w.print(a.GUID, "no request")
	line := `shop.dew.localhost - [2026-01-02T03:04:05.000000006Z] "GET /cart?x=1 HTTP/1.1" 201 0 17 "-" "curl \"8\"" "10.0.0.1:5" "10.1.0.2:8080" x_forwarded_for:"10.0.0.1" x_forwarded_proto:"http" vcap_request_id:"req" response_time:0.500000 app_id:"A" app_index:"1" instance_id:"inst" x_cf_routererror:"-"`
	if err := must(w.c.Logs.App(a.GUID))(t).Append(logstream.Envelope{Source: logstream.Source{Type: "RTR"}, Stream: logstream.Out, Text: []byte(line)}); err != nil {
		t.Fatal(err)
	}
	got = s.batch()
	start := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC).UnixNano()
	if diff := cmp.Diff(got[0].Timer, &v3.Timer{Name: "http", Start: start, Stop: start + 500_000_000}); diff != "" || len(got) != 1 {
		t.Errorf("timer (-got +want):\n%s", diff)
	}
	for name, want := range map[string]string{
		"method": "GET", "uri": "http://shop.dew.localhost/cart?x=1", "status_code": "201", "content_length": "17", "user_agent": `curl "8"`, "peer_type": "Server",
		"remote_address": "10.0.0.1:5", "request_id": "req", "forwarded": "10.0.0.1", "routing_instance_id": "inst", "instance_index": "1", "app_name": "shop", "origin": "gorouter",
	} {
		if got[0].Tags[name] != want {
			t.Errorf("tag %s = %q, want %q", name, got[0].Tags[name], want)
		}
	}
	if got[0].InstanceID != "1" {
		t.Errorf("instance = %s", got[0].InstanceID)
	}
}

// A stream ends when the user loses access to the app.
func TestGatewayLosesAccess(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.s.logs.Beat = 5 * time.Millisecond
	srv := httptest.NewServer(w.s.Handler())
	t.Cleanup(srv.Close)
	a := w.createApp("shop")
	ann := w.user("ann")
	token := w.login("ann")
	must(w.c.Roles.Put(auth.Role{Type: auth.OrgUser, User: ann, Org: w.space.Org}))(t)
	role := must(w.c.Roles.Put(auth.Role{Type: auth.SpaceDeveloper, User: ann, Space: w.space.GUID}))(t)
	s := w.stream(t, srv, "/v2/read?log&source_id="+a.GUID, "Authorization", "Bearer "+token)
	w.print(a.GUID, "hello")
	if got := s.texts(1); got[0] != "hello" {
		t.Errorf("line = %q", got)
	}
	if err := w.c.Roles.Delete(role.GUID); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "the stream ends", func() bool { return !s.lines.Scan() })
	if got := w.as(token, http.MethodGet, "/v2/read?log&source_id="+a.GUID, ""); got.Code != 404 {
		t.Errorf("a new stream = %d %s", got.Code, got.Body)
	}
}
