package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func env(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestSettings(t *testing.T) {
	chosen := settingsFrom(env(map[string]string{"DEBUG_PORT": "9", "DEBUG_USER": "ada", "DEBUG_PASSWORD": "secret"}))
	if want := (settings{Port: "9", User: "ada", Password: "secret"}); chosen != want {
		t.Errorf("settings %+v, want %+v", chosen, want)
	}
	a, b := settingsFrom(env(nil)), settingsFrom(env(nil))
	if a.Port != "8081" || a.User != "debug" || !a.Made {
		t.Errorf("settings %+v, want the port 8081, the user debug and a password that is made up", a)
	}
	if len(a.Password) < 20 || a.Password == b.Password {
		t.Errorf("passwords %q and %q, want two long ones", a.Password, b.Password)
	}
}

// Without the right user and password, the only response is the request for them.
func TestGuarded(t *testing.T) {
	calls := 0
	h := guarded(settings{User: "debug", Password: "secret"}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	for name, c := range map[string]struct {
		set    func(r *http.Request)
		status int
	}{
		"nobody":         {func(*http.Request) {}, 401},
		"right":          {func(r *http.Request) { r.SetBasicAuth("debug", "secret") }, 200},
		"wrong password": {func(r *http.Request) { r.SetBasicAuth("debug", "Secret") }, 401},
		"wrong user":     {func(r *http.Request) { r.SetBasicAuth("admin", "secret") }, 401},
		"empty password": {func(r *http.Request) { r.SetBasicAuth("debug", "") }, 401},
		"beginning":      {func(r *http.Request) { r.SetBasicAuth("debug", "secre") }, 401},
		"other scheme":   {func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") }, 401},
		"not base64":     {func(r *http.Request) { r.Header.Set("Authorization", "Basic debug:secret") }, 401},
	} {
		t.Run(name, func(t *testing.T) {
			calls = 0
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/threaddump", http.NoBody)
			c.set(r)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.status || (calls == 1) != (c.status == 200) {
				t.Errorf("status %d, the sidecar was asked %d times; want status %d", w.Code, calls, c.status)
			}
			if c.status == 401 && !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Basic realm=") {
				t.Errorf("header %v, want WWW-Authenticate", w.Header())
			}
		})
	}
}
