package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/usage"
)

// sampled gives an app samples of one instance, the newest of now.
func (w *testServer) sampled(a v3.App, now time.Time) {
	at := func(ago int64) int64 { return now.Unix() - ago }
	w.s.logs.Usage = &fakeUsage{history: []usage.History{{
		Type: "web", Slot: runtime.SlotID{Index: 1}, Instance: "i", Times: []int64{at(20), at(10), at(0)},
		LogRate: []int64{5, 6, 7}, Disk: []int64{100, 200, 300}, Entitled: 0.5,
		Parts: []usage.PartHistory{{Memory: []int64{10, 20, 30}, CPU: []float64{0.1, 0.2, 0.3}}, {Sidecar: "s", Memory: []int64{1, 2, 3}, CPU: []float64{0, 0, 0.2}}},
	}}}
}

// query sends a query of log-cache.
func (w *testServer) query(t *testing.T, path string, params ...string) v3.PromQLData {
	t.Helper()
	v := url.Values{}
	for i := 0; i+1 < len(params); i += 2 {
		v.Set(params[i], params[i+1])
	}
	var out v3.PromQLResponse
	w.want(200, "GET", path+"?"+v.Encode(), "", &out)
	if out.Status != "success" {
		t.Errorf("status = %s", out.Status)
	}
	return out.Data
}

// Container metrics can be queried like those of log-cache.
func TestMetricQueries(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	now := time.Now().Truncate(time.Second)
	w.sampled(a, now)
	p := must(w.c.Registry.Processes(a.GUID))(t)[0]
	selector := `{source_id="` + a.GUID + `"}`
	for metric, want := range map[string]string{
		"cpu": "50", "cpu_entitlement": "100", "memory": "33", "disk": "300", "log_rate": "7", "log_rate_limit": "-1",
		"memory_quota": fmt.Sprint(p.MemoryMB << 20), "disk_quota": fmt.Sprint(p.DiskMB << 20),
		"sum(avg_over_time(memory" + selector + "[15s]))": "27.5",
	} {
		text := metric
		if !strings.Contains(metric, "{") {
			text += selector
		}
		got := w.query(t, "/api/v1/query", "query", text, "time", fmt.Sprint(now.Unix()))
		if got.ResultType != "vector" || len(got.Result) != 1 || string(got.Result[0].Value) != fmt.Sprintf(`[%d.000,"%s"]`, now.Unix(), want) {
			t.Errorf("%s = %+v, want %s", metric, got, want)
		}
		if !strings.Contains(metric, "{") && (got.Result[0].Metric["source_id"] != a.GUID || got.Result[0].Metric["instance_id"] != "1" || got.Result[0].Metric["process_type"] != "web") {
			t.Errorf("%s has the labels %v", metric, got.Result[0].Metric)
		}
	}
	got := w.query(t, "/api/v1/query_range", "query", "cpu"+selector, "start", fmt.Sprint(now.Unix()-20), "end", now.UTC().Format(time.RFC3339), "step", "10s")
	values := []string{}
	for _, v := range got.Result[0].Values {
		values = append(values, string(v))
	}
	want := []string{fmt.Sprintf(`[%d.000,"10"]`, now.Unix()-20), fmt.Sprintf(`[%d.000,"20"]`, now.Unix()-10), fmt.Sprintf(`[%d.000,"50"]`, now.Unix())}
	if diff := cmp.Diff(values, want); diff != "" || got.ResultType != "matrix" {
		t.Errorf("%s (-got +want):\n%s", got.ResultType, diff)
	}
	if got := w.query(t, "/api/v1/query", "query", "nonesuch"+selector); len(got.Result) != 0 {
		t.Errorf("an unknown metric = %+v", got)
	}
}

// Errors have the form of Prometheus. A query can only name apps that the caller sees.
func TestMetricQueryErrors(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.sampled(a, time.Now())
	selector := url.QueryEscape(`cpu{source_id="` + a.GUID + `"}`)
	for path, want := range map[string]string{
		"query":                                              "parse error at char 1: unexpected end of input",
		"query?query=cpu":                                    "query does not request any source_ids",
		"query?query=rate(" + selector + ")":                 "rate is not supported",
		"query?time=soon&query=" + selector:                  `cannot parse \"soon\" to a valid Unix or RFC3339 timestamp`,
		"query_range?query=" + selector:                      "couldn't parse start",
		"query_range?start=1&query=" + selector:              "couldn't parse end",
		"query_range?start=1&end=2&query=x":                  "couldn't parse step",
		"query_range?start=1&end=2&step=0&query=" + selector: "zero or negative query resolution step widths",
	} {
		got := w.request("GET", "/api/v1/"+path, "")
		if got.Code != 400 || !strings.HasPrefix(got.Body.String(), `{"status":"error","errorType":"bad_data","error":"`) || !strings.Contains(got.Body.String(), want) {
			t.Errorf("%s = %d %s, want %s", path, got.Code, got.Body, want)
		}
	}
	stranger := w.user("stranger")
	token := w.login("stranger")
	if got := w.as(token, "GET", "/api/v1/query?query="+selector, ""); got.Code != 404 {
		t.Errorf("a stranger = %d %s", got.Code, got.Body)
	}
	if got := w.as(w.client("nozzle", "logs.admin"), "GET", "/api/v1/query?query="+selector, ""); got.Code != 200 {
		t.Errorf("logs.admin = %d %s", got.Code, got.Body)
	}
	must(w.c.Roles.Put(auth.Role{Type: auth.OrgUser, User: stranger, Org: w.space.Org}))(t)
	must(w.c.Roles.Put(auth.Role{Type: auth.SpaceAuditor, User: stranger, Space: w.space.GUID}))(t)
	if got := w.as(token, "GET", "/api/v1/query?query="+selector, ""); got.Code != 200 {
		t.Errorf("an auditor = %d %s", got.Code, got.Body)
	}
}
