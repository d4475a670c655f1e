package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func lookupIn(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func TestSettings(t *testing.T) {
	s, err := settingsFrom(lookupIn(map[string]string{"CLIENT_SECRET": "s", "VCAP_APPLICATION": `{"space_id":"sp","organization_id":"or"}`}))
	if err != nil || s.Space != "sp" || s.Org != "or" || s.BaseURL != "http://api.dew.internal:8484/notify" || s.AuthURL != "http://api.dew.internal:8484/uaa" {
		t.Errorf("settings = %+v, %v", s, err)
	}
	if _, err := settingsFrom(lookupIn(nil)); err == nil || !strings.Contains(err.Error(), "CLIENT_SECRET") {
		t.Errorf("without a secret: %v", err)
	}
	if _, err := settingsFrom(lookupIn(map[string]string{"VCAP_APPLICATION": "{"})); err == nil {
		t.Error("a broken VCAP_APPLICATION was read")
	}
}

// platform responds as the services do, and records the requests.
func platform(t *testing.T, refuse string) (*httptest.Server, *[]string) {
	t.Helper()
	requests := &[]string{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests = append(*requests, r.Method+" "+r.URL.Path)
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		switch {
		case r.URL.Path == refuse:
			http.Error(w, `{"errors":["no"]}`, http.StatusForbidden)
		case r.URL.Path == "/uaa/oauth/token":
			if id, secret, _ := r.BasicAuth(); id != "notify-example" || secret != "s" {
				t.Errorf("client = %s %s", id, secret)
			}
			_, _ = io.WriteString(w, `{"access_token":"tok"}`)
		case r.Header.Get("Authorization") != "Bearer tok":
			t.Errorf("%s without the token", r.URL.Path)
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusNoContent)
		default:
			_, _ = io.WriteString(w, `[{"status":"queued"}]`)
		}
	}))
	t.Cleanup(srv.Close)
	return srv, requests
}

func TestSendAll(t *testing.T) {
	srv, requests := platform(t, "")
	s, err := settingsFrom(lookupIn(map[string]string{"CLIENT_SECRET": "s", "API_URL": srv.URL, "NOTIFY_USER": "u", "NOTIFY_SPACE": "sp"}))
	if err != nil {
		t.Fatal(err)
	}
	app := httptest.NewServer(handler(s))
	defer app.Close()
	resp, err := http.Post(app.URL+"/send", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), `"skipped":"NOTIFY_ORG is not set"`) {
		t.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
	want := "POST /uaa/oauth/token, PUT /notify/notifications, POST /notify/users/u, POST /notify/spaces/sp, POST /notify/everyone, POST /notify/uaa_scopes/cloud_controller.admin, POST /notify/emails"
	if got := strings.Join(*requests, ", "); got != want {
		t.Errorf("asked = %s\nwant %s", got, want)
	}
}

func TestSendRefused(t *testing.T) {
	for _, path := range []string{"/uaa/oauth/token", "/notify/notifications", "/notify/everyone"} {
		srv, _ := platform(t, path)
		s, err := settingsFrom(lookupIn(map[string]string{"CLIENT_SECRET": "s", "API_URL": srv.URL}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sendAll(t.Context(), s); err == nil || !strings.Contains(err.Error(), "403") || strings.Contains(err.Error(), "tok\"") {
			t.Errorf("%s refused: %v", path, err)
		}
	}
}
