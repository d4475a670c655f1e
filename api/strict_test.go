package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/inbound"
)

// Bodies with two values for one key or with invalid UTF-8 are ambiguous: they are
// refused and change nothing.
func TestUnclearBodies(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	space := `"relationships":{"space":{"data":{"guid":"` + w.space.GUID + `"}}}`
	for _, tt := range []struct{ method, path, body, detail string }{
		{"POST", "/v3/apps", `{"name":"one","name":"two",` + space + `}`, `duplicate key "name"`},
		{"POST", "/v3/apps", `{"name":"one","NAME":"two",` + space + `}`, `duplicate key "NAME"`},
		{"POST", "/v3/apps", `{"name":"one","relationships":{"space":{"data":{"guid":"x","guid":"` + w.space.GUID + `"}}}}`, `duplicate key "guid"`},
		{"POST", "/v3/apps", `{"name":"one","metadata":{"labels":{"a":"1","a":"2"}},` + space + `}`, `duplicate key "a"`},
		{"POST", "/v3/apps", "{\"name\":\"\xff\"," + space + "}", "invalid UTF-8"},
		{"POST", "/v3/apps", `{"name":"\ud800",` + space + `}`, "invalid UTF-8"},
		{"POST", "/v3/apps", `{"name":"one","metadata":{"annotations":{"a":"\udfff"}},` + space + `}`, "invalid UTF-8"},
		{"POST", "/v3/organizations", "{\"name\":\"caf\xe9\"}", "invalid UTF-8"},
		{"POST", "/v3/organizations", `{"name":"a","name":"b"}`, `duplicate key "name"`},
		{"PATCH", "/v3/apps/" + a.GUID, `{"name":"x","name":"y"}`, `duplicate key "name"`},
		{"PATCH", "/v3/apps/" + a.GUID + "/environment_variables", `{"var":{"A":"1","A":"2"}}`, `duplicate key "A"`},
		{"PATCH", "/v3/apps/" + a.GUID + "/environment_variables", `{"var":{"A":"\ud800"}}`, "invalid UTF-8"},
		{"PATCH", "/v3/processes/" + a.GUID, `{"command":"a","command":"b"}`, `duplicate key "command"`},
		{"POST", "/v3/processes/" + a.GUID + "/actions/scale", `{"instances":1,"instances":2}`, `duplicate key "instances"`},
		{"POST", "/dew/v1/processes/" + a.GUID + "/kill", `{"signal":"0","signal":"9"}`, `duplicate key "signal"`},
		{"POST", "/v3/service_instances", `{"type":"user-provided","name":"s","credentials":{"u":"1","u":"2"},` + space + `}`, `duplicate key "u"`},
		{"POST", "/v3/apps", `{"name":`, "invalid request body"},
	} {
		var got v3.Errors
		w.want(400, tt.method, tt.path, tt.body, &got)
		if e := got.Errors[0]; e.Title != v3.TitleMessageParse || e.Detail != "Request invalid due to parse error: "+tt.detail {
			t.Errorf("%s %s %q: %+v, want %s", tt.method, tt.path, tt.body, e, tt.detail)
		}
	}
	var apps v3.List[v3.App]
	if w.want(200, "GET", "/v3/apps", "", &apps); len(apps.Resources) != 1 || apps.Resources[0].Name != "shop" {
		t.Errorf("apps = %+v, want the one that there was", apps.Resources)
	}
	// Keys that differ only in case are two keys, if names can be chosen freely.
	w.want(200, "PATCH", "/v3/apps/"+a.GUID+"/environment_variables", `{"var":{"Path":"1","PATH":"2"}}`, nil)
}

// URLs and manifests are accepted without changes or refused.
func TestUnclearText(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	for path, title := range map[string]string{
		"/v3/apps?names=%FF":                      v3.TitleBadQuery,
		"/v3/apps?names=a,%25FF":                  v3.TitleBadQuery,
		"/v3/apps?%C3=a":                          v3.TitleBadQuery,
		"/v3/apps?label_selector=a%3D%FF":         v3.TitleBadQuery,
		"/v3/apps/" + a.GUID + "/features/%FF":    v3.TitleBadRequest,
		"/v3/apps/%ED%A0%80":                      v3.TitleBadRequest,
		"/dew/v1/apps/" + a.GUID + "/crashes?%FF": v3.TitleBadQuery,
	} {
		var got v3.Errors
		if w.want(400, "GET", path, "", &got); got.Errors[0].Title != title {
			t.Errorf("%s: %+v, want %s", path, got.Errors[0], title)
		}
	}
	for _, manifest := range []string{
		"applications:\n- name: caf\xe9\n", "applications:\n- name: shop\n  env:\n    A: \"\\udc00\"\n",
		"applications:\n- name: shop\n  env:\n    \"\xff\": a\n",
	} {
		r := httptest.NewRequest("POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest", strings.NewReader(manifest))
		r.Header.Set("Content-Type", "application/x-yaml")
		if got := w.send(r); got.Code != 422 || !strings.Contains(got.Body.String(), "UTF-8") {
			t.Errorf("%q: %d %s, want 422", manifest, got.Code, got.Body)
		}
	}
}

// A client that does not send the announced body in time gets an error in the format of
// the server that it called.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.s.daemon.Notify = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { http.NotFound(rw, r) })
	rate := inbound.Rate{Patience: 100 * time.Millisecond, BytesPerSecond: 500}
	server := httptest.NewServer(rate.Bodies(w.local))
	t.Cleanup(server.Close)
	a := w.startedApp("shop")
	for _, tt := range []struct{ path, header, says string }{
		{"/v3/apps", "", `"title":"CF-RequestTimeout"`},
		{"/v3/spaces/" + w.space.GUID + "/actions/apply_manifest", "Content-Type: application/x-yaml", `"title":"CF-RequestTimeout"`},
		{"/v3/packages/" + packageOf(w, a) + "/upload", "Content-Type: multipart/form-data; boundary=x", `"title":"CF-RequestTimeout"`},
		{"/dew/v1/stacks/upload?name=mine", "Content-Type: application/octet-stream", `"title":"CF-RequestTimeout"`},
		{"/uaa/oauth/token", "Content-Type: application/x-www-form-urlencoded", `"error":"invalid_request"`},
		{"/uaa/Users", "Content-Type: application/json", `"error":"invalid_request"`},
	} {
		status, body := sendSlowly(t, server.Listener.Addr().String(), tt.path, tt.header)
		if status != http.StatusRequestTimeout || !strings.Contains(body, tt.says) {
			t.Errorf("%s: %d %s, want 408 and %s", tt.path, status, body, tt.says)
		}
	}
}

func packageOf(w *testServer, a v3.App) string {
	w.t.Helper()
	var p v3.Package
	w.want(201, "POST", "/v3/packages", `{"type":"bits","relationships":{"app":{"data":{"guid":"`+a.GUID+`"}}}}`, &p)
	return p.GUID
}

// sendSlowly sends a body byte by byte, one every 10 ms, until a response arrives.
func sendSlowly(t *testing.T, address, path, header string) (int, string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if header != "" {
		header += "\r\n"
	}
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:8484\r\n%sContent-Length: 100000\r\n\r\n--x", path, header)
	answered := make(chan struct{})
	defer close(answered)
	go func() {
		for {
			select {
			case <-answered:
				return
			case <-time.After(10 * time.Millisecond):
				_, _ = c.Write([]byte(" ")) // fails when the connection is closed
			}
		}
	}()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var body json.RawMessage
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		t.Errorf("%s: %d without JSON: %v", path, res.StatusCode, err)
	}
	if !res.Close {
		t.Errorf("%s: the connection goes on", path)
	}
	return res.StatusCode, string(body)
}

// Unknown keys of the body itself are refused, all at once. Clients send nested objects
// back as they got them.
func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	space := `"relationships":{"space":{"data":{"guid":"` + w.space.GUID + `","name":"dev","links":{}},"links":{"self":{"href":"x"}}}}`
	var made v3.App
	w.want(201, "POST", "/v3/apps", `{"name":"echo","lifecycle":{"type":"buildpack","data":{"buildpacks":[],"colour":"red"},"links":{}},`+space+`}`, &made)
	if made.Name != "echo" {
		t.Errorf("app = %+v, want echo", made)
	}
	host := `"relationships":{"space":{"data":{"guid":"` + w.space.GUID + `"}},"domain":{"data":{"guid":"` + must(w.c.Registry.DefaultDomain())(t).GUID + `"}}}`
	var route v3.Route
	w.want(201, "POST", "/v3/routes", `{"host":"echo",`+host+`}`, &route)
	w.want(200, "POST", "/v3/routes/"+route.GUID+"/destinations", `{"destinations":[{"app":{"guid":"`+a.GUID+`","name":"","links":{}}}]}`, nil)
	for body, want := range map[string]string{
		`{"name":"x","title":"y","colour":"red",` + space + `}`: "Unknown field(s): 'colour', 'title'",
		`{"name":"x","Name2":"y",` + space + `}`:                "Unknown field(s): 'Name2'",
	} {
		wantError(t, w.request("POST", "/v3/apps", body), "CF-UnprocessableEntity", want)
	}
}

// A slash at the end of a path changes nothing.
func TestTrailingSlash(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	for _, path := range []string{"/v3/apps/", "/v3/apps/?names=shop", "/v3/apps/" + a.GUID + "/", "/v3/apps/" + a.GUID + "/?include=space", "/v3/apps//", "/api/v1/read/" + a.GUID + "/"} {
		w.want(200, "GET", path, "", nil)
	}
	w.want(404, "GET", "/v3/nothing/", "", nil)
}

// Log-cache ignores parameters that it does not know.
func TestLogCacheParameters(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	for query, some := range map[string]bool{
		"": true, "?colour=red": true, "?envelope_type=LOG": true, "?envelope_types=LOG": true, "?envelope_types=log&envelope_types=GAUGE": true,
		"?envelope_type=ANY": true, "?envelope_type=COUNTER": false, "?envelope_types=TIMER": false,
	} {
		var got v3.LogCacheRead
		w.want(200, "GET", "/api/v1/read/"+a.GUID+query, "", &got)
		if (len(got.Envelopes.Batch) > 0) != some {
			t.Errorf("%q: %d envelopes, want some: %v", query, len(got.Envelopes.Batch), some)
		}
	}
	w.want(200, "GET", "/api/v1/meta?local_only=true", "", nil)
}
