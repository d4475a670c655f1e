package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/cftest"
	"github.com/dewrun/dew/testkit"
)

// These tests cover responses that look right but make the stock client fail. Each test
// is named after the behaviour that it protects.

// at returns the value at a path of a response, such as "resources.0.guid".
func at(t testing.TB, v any, path string) any {
	t.Helper()
	for step := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(x) {
				t.Fatalf("there is no %s in %v", path, x)
			}
			v = x[i]
		default:
			t.Fatalf("there is no %s (at %s: %v)", path, step, v)
		}
	}
	return v
}

func text(t testing.TB, v any, path string) string {
	t.Helper()
	s, ok := at(t, v, path).(string)
	if !ok {
		t.Fatalf("%s is %v, want a text", path, at(t, v, path))
	}
	return s
}

// claimsOf decodes a token as the client does, without checking its signature.
func claimsOf(t testing.TB, token string) (header, claims map[string]any) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("the token has %d parts, want 3", len(parts))
	}
	for i, v := range []*map[string]any{&header, &claims} {
		raw := must(base64.RawURLEncoding.DecodeString(parts[i]))(t)
		if err := json.Unmarshal(raw, v); err != nil {
			t.Fatal(err)
		}
	}
	return header, claims
}

// spacePlatform is a platform with an org, a space, and a developer in it.
type spacePlatform struct {
	*wholePlatform
	admin      *tokenClient
	dora       *tokenClient
	org, space string
}

func newSpacePlatform(t testing.TB) *spacePlatform {
	t.Helper()
	g := &spacePlatform{wholePlatform: newPlatform(t)}
	g.admin = g.wholePlatform.admin()
	org, _ := g.admin.want(http.StatusCreated, "POST", "/v3/organizations", `{"name":"acme"}`)
	g.org = text(t, org, "guid")
	space, _ := g.admin.want(http.StatusCreated, "POST", "/v3/spaces", `{"name":"garden","relationships":{"organization":{"data":{"guid":"`+g.org+`"}}}}`)
	g.space = text(t, space, "guid")
	g.admin.want(http.StatusCreated, "POST", "/uaa/Users", `{"userName":"dora","password":"only-for-tests","emails":[{"value":"dora@example.com"}]}`)
	g.role("organization_user", "organization", g.org, http.StatusCreated)
	g.role("space_developer", "space", g.space, http.StatusCreated)
	g.dora = g.login("dora", "only-for-tests")
	return g
}

// role assigns a role to dora, as set-space-role does.
func (g *spacePlatform) role(kind, where, guid string, status int) {
	g.t.Helper()
	g.admin.want(status, "POST", "/v3/roles", fmt.Sprintf(
		`{"type":%q,"relationships":{%q:{"data":{"guid":%q}},"user":{"data":{"username":"dora","origin":"uaa"}}}}`, kind, where, guid))
}

// apply sends a manifest and waits for its job.
func (g *spacePlatform) apply(manifest string) map[string]any {
	g.t.Helper()
	_, h := g.dora.want(http.StatusAccepted, "POST", "/v3/spaces/"+g.space+"/actions/apply_manifest", manifest)
	return g.job(h)
}

func (g *spacePlatform) job(h http.Header) map[string]any {
	g.t.Helper()
	path, absolute := strings.CutPrefix(h.Get("Location"), publicURL)
	if !absolute {
		g.t.Fatalf("Location = %q, want an absolute URL", h.Get("Location"))
	}
	return g.until("the job ends", path, func(v map[string]any) bool { return v["state"] != "PROCESSING" })
}

// until repeats a GET request until ok returns true.
func (g *spacePlatform) until(what, path string, ok func(map[string]any) bool) map[string]any {
	g.t.Helper()
	var v map[string]any
	testkit.Eventually(g.t, what, func() error {
		if v = g.dora.get(path); !ok(v) {
			return fmt.Errorf("%v", v)
		}
		return nil
	})
	return v
}

// app creates an app with a manifest, as push does, and returns its GUID.
func (g *spacePlatform) app(name, more string) string {
	g.t.Helper()
	job := g.apply("applications:\n- name: " + name + "\n  default-route: true\n  command: sleep 1000000\n  health-check-type: process\n" + more)
	if job["state"] != "COMPLETE" {
		g.t.Fatalf("job = %v", job)
	}
	return text(g.t, g.dora.get("/v3/apps?names="+name+"&space_guids="+g.space), "resources.0.guid")
}

// staged pushes a file and stages it.
func (g *spacePlatform) staged(app string) (pkg, droplet string) {
	g.t.Helper()
	pkg = g.packaged(app)
	build, _ := g.dora.want(http.StatusCreated, "POST", "/v3/builds", `{"package":{"guid":"`+pkg+`"}}`)
	done := g.until("the build ends", "/v3/builds/"+text(g.t, build, "guid"), func(v map[string]any) bool { return v["state"] != "STAGING" })
	return pkg, text(g.t, done, "droplet.guid")
}

func (g *spacePlatform) packaged(app string) string {
	g.t.Helper()
	p, _ := g.dora.want(http.StatusCreated, "POST", "/v3/packages", `{"relationships":{"app":{"data":{"guid":"`+app+`"}}},"type":"bits"}`)
	guid := text(g.t, p, "guid")
	g.upload(guid, "[]", map[string]string{"hello.txt": "hello\n"})
	g.until("the package is ready", "/v3/packages/"+guid, func(v map[string]any) bool { return v["state"] == "READY" })
	return guid
}

// upload sends the parts that the client sends; without files there is no zip.
func (g *spacePlatform) upload(pkg, resources string, files map[string]string) {
	g.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	err := w.WriteField("resources", resources)
	if err == nil && files != nil {
		part := must(w.CreateFormFile("bits", "package.zip"))(g.t)
		_, err = part.Write(zipped(g.t, files))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		g.t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/v3/packages/"+pkg+"/upload", &body)
	r.Header.Set("Content-Type", w.FormDataContentType())
	r.Header.Set("Authorization", "bearer "+g.dora.token)
	if got := g.send(r); got.Code >= http.StatusBadRequest {
		g.t.Fatalf("upload: %d %s", got.Code, got.Body)
	}
}

// start sets the droplet of an app and starts it.
func (g *spacePlatform) start(app, droplet string) {
	g.t.Helper()
	g.dora.want(http.StatusOK, "PATCH", "/v3/apps/"+app+"/relationships/current_droplet", `{"data":{"guid":"`+droplet+`"}}`)
	g.dora.want(http.StatusOK, "POST", "/v3/apps/"+app+"/actions/start", "")
}

// If the token type is "Bearer", the client renews its token before every request, and
// cannot follow logs at all.
func TestTokenTypeIsLowerCase(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	cf := url.UserPassword("cf", "")
	_, first := p.grant(cf, url.Values{"grant_type": {"password"}, "username": {"admin"}, "password": {p.password}})
	_, second := p.grant(cf, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {text(t, first, "refresh_token")}})
	for _, answer := range []map[string]any{first, second} {
		if answer["token_type"] != "bearer" {
			t.Errorf("token_type = %v, want bearer", answer["token_type"])
		}
	}
}

// The client panics on a token with user_name and without user_id or origin. It cannot
// use a token that it cannot decode or that is about to expire.
func TestTokenClaims(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	header, claims := claimsOf(t, p.admin().token)
	if header["alg"] != "RS256" {
		t.Errorf("alg = %v, want RS256", header["alg"])
	}
	for _, name := range []string{"user_name", "user_id", "origin", "jti", "client_id"} {
		if s, ok := claims[name].(string); !ok || s == "" {
			t.Errorf("claim %s = %v, want a text", name, claims[name])
		}
	}
	if exp, ok := claims["exp"].(float64); !ok || time.Until(time.Unix(int64(exp), 0)) < 2*time.Minute {
		t.Errorf("exp = %v, want a number some minutes ahead", claims["exp"])
	}
}

// The client replaces its refresh token with the one from a renewal. It renews tokens
// of OAuth clients with an empty secret, so those tokens must be valid for a long time.
func TestRenewal(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	cf := url.UserPassword("cf", "")
	_, first := p.grant(cf, url.Values{"grant_type": {"password"}, "username": {"admin"}, "password": {p.password}})
	status, second := p.grant(cf, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {text(t, first, "refresh_token")}})
	if status != http.StatusOK || text(t, second, "refresh_token") == "" {
		t.Fatalf("renewal: %d %v, want a refresh token again", status, second)
	}
	status, third := p.grant(cf, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {text(t, second, "refresh_token")}})
	if status != http.StatusOK {
		t.Errorf("the second renewal: %d %v", status, third)
	}

	p.admin().want(http.StatusCreated, "POST", "/uaa/oauth/clients",
		`{"client_id":"ci","client_secret":"only-for-tests","authorized_grant_types":["client_credentials"],"authorities":["cloud_controller.read"]}`)
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {"ci"}, "client_secret": {"only-for-tests"}}
	status, answer := p.grant(nil, form)
	if status != http.StatusOK {
		t.Fatalf("client credentials: %d %v", status, answer)
	}
	_, claims := claimsOf(t, text(t, answer, "access_token"))
	if exp, _ := claims["exp"].(float64); time.Until(time.Unix(int64(exp), 0)) < 8*time.Hour {
		t.Errorf("a client's token ends at %v, want it to last a working day", time.Unix(int64(exp), 0))
	}
	if claims["client_id"] != "ci" || claims["user_name"] != nil {
		t.Errorf("claims %v, want a client without a user", claims)
	}
	form.Set("client_secret", "")
	if status, answer := p.grant(nil, form); status != http.StatusUnauthorized {
		t.Errorf("an empty secret: %d %v, want 401", status, answer)
	}
}

// The client sends credentials only for prompts with these names, and asks the user for
// any other prompt.
func TestLoginPrompts(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	r := httptest.NewRequest("GET", "/uaa/login", http.NoBody)
	r.Header.Set("Accept", "application/json")
	var v struct {
		Prompts map[string][]string
		App     struct{ Version string }
	}
	if got := p.send(r); json.Unmarshal(got.Body.Bytes(), &v) != nil {
		t.Fatalf("login: %d %s", got.Code, got.Body)
	}
	for name, kind := range map[string]string{"username": "text", "password": "password"} {
		if len(v.Prompts[name]) != 2 || v.Prompts[name][0] != kind {
			t.Errorf("prompt %s = %v, want one of type %s", name, v.Prompts[name], kind)
		}
	}
	delete(v.Prompts, "passcode")
	if len(v.Prompts) != 2 {
		t.Errorf("prompts %v, want no other", v.Prompts)
	}
	if !regexp.MustCompile(`^\d+\.\d+\.\d+`).MatchString(v.App.Version) {
		t.Errorf("app.version = %q", v.App.Version)
	}
}

// The client polls the Location header as a job. So the header is absolute and only
// used for jobs. The link to the next page is absolute as well.
func TestLocationAndNextAreAbsolute(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	a := g.app("site", "")
	g.app("shop", "")
	space := `"relationships":{"space":{"data":{"guid":"` + g.space + `"}}}`
	domain := text(t, g.dora.get("/v3/domains"), "resources.0.guid")
	for path, body := range map[string]string{
		"/v3/apps":          `{"name":"created",` + space + `}`,
		"/v3/organizations": `{"name":"other"}`,
		"/v3/packages":      `{"type":"bits","relationships":{"app":{"data":{"guid":"` + a + `"}}}}`,
		"/v3/routes":        `{"host":"h","relationships":{"space":{"data":{"guid":"` + g.space + `"}},"domain":{"data":{"guid":"` + domain + `"}}}}`,
	} {
		if _, h := g.admin.want(http.StatusCreated, "POST", path, body); h.Get("Location") != "" {
			t.Errorf("POST %s has Location %q, which is no job", path, h.Get("Location"))
		}
	}
	if job := g.job(second(g.dora.want(http.StatusAccepted, "DELETE", "/v3/apps/"+a, ""))); job["state"] != "COMPLETE" {
		t.Errorf("job = %v", job)
	}
	page := g.dora.get("/v3/apps?per_page=1&order_by=name")
	if next := text(t, page, "pagination.next.href"); !strings.HasPrefix(next, publicURL+"/v3/apps?") {
		t.Errorf("next = %q, want an absolute URL", next)
	}
}

func second[A, B any](_ A, b B) B { return b }

// The client crashes on a failed job without an error.
func TestFailedJobSaysWhy(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	job := g.apply("applications:\n- name: site\n  routes: [{route: site.nowhere.example}]\n")
	if job["state"] != "FAILED" {
		t.Fatalf("job = %v, want it failed", job)
	}
	if _, number := at(t, job, "errors.0.code").(float64); !number || text(t, job, "errors.0.detail") == "" || text(t, job, "errors.0.title") == "" {
		t.Errorf("errors = %v, want code, title and detail", job["errors"])
	}
}

// The client discards the path of this link.
func TestLogCacheIsAtTheRootOfItsHost(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	u := must(url.Parse(text(t, g.dora.get("/"), "links.log_cache.href")))(t)
	if u.Scheme+"://"+u.Host != publicURL {
		t.Errorf("log_cache = %v, want the host of the API", u)
	}
	if v := text(t, g.dora.get("/api/v1/info"), "version"); !regexp.MustCompile(`^([2-9]|\d\d+)\.\d+\.\d+$`).MatchString(v) {
		t.Errorf("log-cache's version = %q, want 2.0.0 or later", v)
	}
}

// The client discards a response with a field that log-cache does not have. It requests
// lines from a large negative time on, and without a limit.
func TestLogCacheHasNoOtherFields(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	a := g.app("site", "")
	for i := range 120 {
		g.say(a, fmt.Sprintf("line %d", i))
	}
	read := func(query string) []cftest.Line {
		t.Helper()
		return must(cftest.ReadLines(any(g.dora.get("/api/v1/read/" + a + "?" + query))))(t)
	}
	const beginning = "start_time=-6795364578871345152"
	recent := read("descending=true&envelope_types=LOG&limit=1000&" + beginning)
	if len(recent) < 120 || recent[0].Text != "line 119" || recent[0].Source != "API" || recent[0].Instance == "" {
		t.Errorf("%d recent lines, the first %+v, want line 119 of API first", len(recent), recent[:min(1, len(recent))])
	}
	if newest := read("descending=true&limit=1&" + beginning); len(newest) != 1 || newest[0] != recent[0] {
		t.Errorf("newest = %+v, want %+v", newest, recent[0])
	}
	oldest := read("envelope_types=LOG&" + beginning)
	if len(oldest) != 100 || oldest[0] != recent[len(recent)-1] {
		t.Errorf("%d lines, want the oldest 100", len(oldest))
	}
	if none := read("envelope_types=LOG&start_time=9000000000000000000"); len(none) != 0 {
		t.Errorf("lines of the future: %+v", none)
	}
	if got := g.dora.request("GET", "/api/v1/read/"+a+"?start_time=9000000000000000000", ""); got.Body.Len() == 0 {
		t.Error("an empty body is no answer")
	}
}

func (g *spacePlatform) say(app, line string) {
	g.t.Helper()
	l := must(g.c.Logs.App(app))(g.t)
	if err := l.Append(apiLine(line)); err != nil {
		g.t.Fatal(err)
	}
}

// The client counts the items of stats, and reads an empty list as a successful start.
func TestStatsHaveAnItemForEachDesiredInstance(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	a := g.app("site", "  instances: 3\n")
	stats := func() []any {
		list, ok := g.dora.get("/v3/processes/" + a + "/stats")["resources"].([]any)
		if !ok {
			t.Fatal("stats have no resources")
		}
		return list
	}
	if list := stats(); len(list) != 3 || text(t, list, "0.state") != "DOWN" {
		t.Errorf("of a stopped app: %v, want three that are DOWN", list)
	}
	_, d := g.staged(a)
	release := g.fake.BlockStart()
	g.start(a, d)
	list := stats()
	if len(list) != 3 || text(t, list, "0.state") == "RUNNING" {
		t.Errorf("right after the start: %v, want three that do not run", list)
	}
	release()
	g.until("all run", "/v3/processes/"+a+"/stats", func(v map[string]any) bool {
		rs, _ := v["resources"].([]any)
		return len(rs) == 3 && !slices.ContainsFunc(rs, func(r any) bool { return at(t, r, "state") != "RUNNING" })
	})
}

// The client detects a missing droplet only by this message.
func TestMissingDropletMessage(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	answer, _ := g.dora.want(http.StatusNotFound, "GET", "/v3/apps/"+g.app("site", "")+"/droplets/current", "")
	if got := text(t, answer, "errors.0.detail"); got != "Droplet not found" {
		t.Errorf("detail = %q, want Droplet not found", got)
	}
}
