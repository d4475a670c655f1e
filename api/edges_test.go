package api

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dewrun/dew/app"
)

// If an administrator disabled reading variables, a manifest hides the variables and
// nothing else.
func TestManifestHidesVariables(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	must(h.c.Registry.UpdateApp(h.app, func(a *app.App) error { a.Env = map[string]string{"SECRET": "seven"}; return nil }))(t)
	manifest := func(who string) string {
		t.Helper()
		got := h.as(h.tokens[who], "GET", "/v3/apps/"+h.app+"/manifest", "")
		if got.Code != 200 || !strings.Contains(got.Body.String(), orgMark+"-app") {
			t.Fatalf("manifest of %s = %d %s", who, got.Code, got.Body)
		}
		return got.Body.String()
	}
	for flag, want := range map[string]bool{"": true, app.FlagEnvVisibility: false, app.FlagSpaceEnv: false} {
		if flag != "" {
			h.want(200, "PATCH", "/v3/feature_flags/"+flag, `{"enabled":false}`, nil)
		}
		if got := strings.Contains(manifest("space_developer"), "seven"); got != want {
			t.Errorf("with %q off the variables are shown: %t, want %t", flag, got, want)
		}
		if !strings.Contains(manifest("admin"), "seven") {
			t.Errorf("with %q off they are hidden from administrators", flag)
		}
		if flag != "" {
			h.want(200, "PATCH", "/v3/feature_flags/"+flag, `{"enabled":true}`, nil)
		}
	}
}

// A user who maps a route cannot learn about apps that they cannot map.
func TestDestinationsRevealNoApps(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	const nowhere = "00000000-0000-0000-0000-000000000000"
	spaces := must(h.c.Registry.Spaces())(t)
	for _, sp := range spaces {
		if sp.GUID == h.space.GUID {
			continue
		}
		foreign := must(h.c.Registry.PutApp(app.App{Name: "secret", Space: sp.GUID}))(t)
		for _, method := range []string{"POST", "PATCH"} {
			requestApp := func(guid string) string {
				got := h.as(h.tokens["space_developer"], method, "/v3/routes/"+h.guids["Route"]+"/destinations", `{"destinations":[{"app":{"guid":"`+guid+`"}}]}`)
				return got.Result().Status + strings.ReplaceAll(got.Body.String(), guid, "GUID")
			}
			if there, gone := requestApp(foreign.GUID), requestApp(nowhere); there != gone || !strings.HasPrefix(gone, "422") {
				t.Errorf("%s of an app of %s = %s, but of none %s", method, sp.Name, there, gone)
			}
		}
	}
}

// If the client has disconnected, the server sends nothing and logs no error.
func TestVerifyWithoutClient(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.print(a.GUID, "one", "two")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := httptest.NewRecorder()
	w.s.Local().ServeHTTP(got, httptest.NewRequestWithContext(ctx, "GET", "/stream/v1/apps/"+a.GUID+"/verify", nil))
	if got.Code != statusGone || got.Body.Len() != 0 {
		t.Errorf("answer = %d %s, want nothing", got.Code, got.Body)
	}
	if text := w.logged.String(); strings.Contains(text, "ERROR") {
		t.Errorf("log = %s", text)
	}
}
