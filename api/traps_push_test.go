package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dewrun/dew/logstream"
)

// apiLine returns a log line of the platform.
func apiLine(line string) logstream.Envelope {
	return logstream.Envelope{Source: logstream.Source{Type: "API"}, Stream: logstream.Out, Text: []byte(line)}
}

// The client reads the lifecycle right after the manifest is applied. An app with an
// image must have the docker lifecycle or be refused.
func TestImageApps(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	const manifest = "applications:\n- name: boxed\n  docker: {image: \"127.0.0.1:1/boxed:1\", username: clerk}\n  default-route: true\n"
	apply := "/v3/spaces/" + g.space + "/actions/apply_manifest"
	answer, _ := g.dora.want(http.StatusForbidden, "POST", apply, manifest)
	if detail := text(t, answer, "errors.0.detail"); !strings.Contains(detail, "diego_docker") {
		t.Errorf("detail = %q, want it to name the feature", detail)
	}
	if rs := g.dora.get("/v3/apps?names=boxed")["resources"].([]any); len(rs) != 0 {
		t.Errorf("apps = %v, want none", rs)
	}
	g.admin.want(http.StatusOK, "PATCH", "/v3/feature_flags/diego_docker", `{"enabled":true}`)
	g.apply(manifest)
	found := g.dora.get("/v3/apps?names=boxed&lifecycle_type=docker")["resources"].([]any)
	if len(found) != 1 || text(t, found, "0.lifecycle.type") != "docker" {
		t.Fatalf("apps = %v, want one that is an image", found)
	}
	guid := text(t, found, "0.guid")
	to := `"relationships":{"app":{"data":{"guid":"` + guid + `"}}}`
	g.dora.want(http.StatusUnprocessableEntity, "POST", "/v3/packages", `{"type":"bits",`+to+`}`)
	g.dora.want(http.StatusUnprocessableEntity, "POST", "/v3/packages", `{"type":"docker","data":{"image":"a b"},`+to+`}`)
	g.dora.want(http.StatusUnprocessableEntity, "POST", "/v3/packages", `{"type":"docker",`+to+`}`)
	pkg, _ := g.dora.want(http.StatusCreated, "POST", "/v3/packages", `{"type":"docker","data":{"image":"127.0.0.1:1/boxed:1","username":"clerk","password":"s3cr3t"},`+to+`}`)
	if text(t, pkg, "state") != "READY" || text(t, pkg, "data.image") != "127.0.0.1:1/boxed:1" || text(t, pkg, "data.password") != "***" {
		t.Errorf("package = %v", pkg)
	}
	again := g.dora.get("/v3/packages/" + text(t, pkg, "guid"))
	if all := fmt.Sprint(again); strings.Contains(all, "s3cr3t") {
		t.Errorf("the password is in %s", all)
	}
	answer, _ = g.dora.want(http.StatusUnprocessableEntity, "PATCH", "/v3/apps/"+guid, `{"lifecycle":{"type":"buildpack","data":{}}}`)
	if detail := text(t, answer, "errors.0.detail"); detail != "Lifecycle type cannot be changed" {
		t.Errorf("detail = %q", detail)
	}
}

// Push creates an app only through the manifest, and requests the default route each
// time.
func TestManifestMakesTheAppAndOneRoute(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	a := g.app("site", "")
	if again := g.app("site", ""); again != a {
		t.Errorf("the second time the app is %s, want %s", again, a)
	}
	routes, _ := g.dora.get("/v3/apps/" + a + "/routes")["resources"].([]any)
	if len(routes) != 1 || text(t, routes, "0.url") != "site.dew.localhost" {
		t.Errorf("routes = %v, want site.dew.localhost alone", routes)
	}
	named := g.app("shop", "  routes: [{route: corner.dew.localhost}]\n")
	routes, _ = g.dora.get("/v3/apps/" + named + "/routes")["resources"].([]any)
	if len(routes) != 1 || text(t, routes, "0.url") != "corner.dew.localhost" {
		t.Errorf("routes = %v, want corner.dew.localhost alone", routes)
	}
}

// A push with a strategy sends its options with the deployment. The client lists
// deployments for every summary, so the list must exist. An app without a droplet is
// refused, and nothing changes.
func TestDeploymentIsListedOrRefused(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	a := g.app("site", "")
	list := g.dora.get("/v3/deployments?app_guids=" + a + "&order_by=-created_at&page=1&per_page=1&status_values=ACTIVE")
	if rs, ok := list["resources"].([]any); !ok || len(rs) != 0 {
		t.Errorf("deployments = %v, want none", list)
	}
	got := g.dora.request("POST", "/v3/deployments", `{"strategy":"rolling","relationships":{"app":{"data":{"guid":"`+a+
		`"}}},"options":{"web_instances":2,"memory_in_mb":1024,"disk_in_mb":null,"log_rate_limit_in_bytes_per_second":null}}`)
	var answer map[string]any
	if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%d %s: %v", got.Code, got.Body, err)
	}
	if got.Code < http.StatusBadRequest || got.Code >= http.StatusInternalServerError || text(t, answer, "errors.0.detail") == "" {
		t.Errorf("deployment = %d %v, want it refused with a sentence", got.Code, answer)
	}
	if n := at(t, g.dora.get("/v3/processes/"+a), "instances"); n != 1.0 {
		t.Errorf("instances = %v, want 1 as before", n)
	}
}

// create-space assigns both space roles, and the org role twice. The command would fail
// if the server had already assigned one.
func TestCreateSpaceAssignsRoles(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	admin := p.admin()
	org, _ := admin.want(http.StatusCreated, "POST", "/v3/organizations", `{"name":"acme","suspended":false}`)
	space, _ := admin.want(http.StatusCreated, "POST", "/v3/spaces", `{"name":"garden","relationships":{"organization":{"data":{"guid":"`+text(t, org, "guid")+`"}}}}`)
	for i, kind := range []string{"space_manager", "space_developer"} {
		user := `"user":{"data":{"username":"admin","origin":"uaa"}}`
		got := admin.request("POST", "/v3/roles", `{"type":"organization_user","relationships":{"organization":{"data":{"guid":"`+text(t, org, "guid")+`"}},`+user+`}}`)
		already := got.Code == http.StatusUnprocessableEntity && regexp.MustCompile(`User 'admin' already has '[^']+' role`).MatchString(got.Body.String())
		if got.Code != http.StatusCreated && !already {
			t.Errorf("membership %d: %d %s", i, got.Code, got.Body)
		}
		admin.want(http.StatusCreated, "POST", "/v3/roles", `{"type":"`+kind+`","relationships":{"space":{"data":{"guid":"`+text(t, space, "guid")+`"}},`+user+`}}`)
	}
}

// The client decides whether start must stage by the newest package and its staged
// droplets.
func TestNewestPackageShowsWhetherToStage(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	a := g.app("site", "")
	newest := func() string {
		t.Helper()
		return text(t, g.dora.get("/v3/packages?app_guids="+a+"&order_by=-created_at&page=1&per_page=1"), "resources.0.guid")
	}
	droplets := func(pkg string) int {
		t.Helper()
		rs, ok := g.dora.get("/v3/packages/" + pkg + "/droplets?page=1&per_page=1&states=STAGED")["resources"].([]any)
		if !ok {
			t.Fatal("no list")
		}
		return len(rs)
	}
	first, _ := g.staged(a)
	if newest() != first || droplets(first) != 1 {
		t.Errorf("newest = %s with %d droplets, want %s with 1", newest(), droplets(newest()), first)
	}
	second := g.packaged(a)
	if newest() != second || droplets(second) != 0 {
		t.Errorf("newest = %s with %d droplets, want %s with none", newest(), droplets(newest()), second)
	}
}

// The client aborts a push if this endpoint returns a well-formed 404.
func TestManifestDiffIsAnswered(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	path := "/v3/spaces/" + g.space + "/manifest_diff"
	const manifest = "applications:\n- name: site\n  memory: 64M\n"
	answer, _ := g.dora.want(http.StatusAccepted, "POST", path, manifest)
	if d, ok := answer["diff"].([]any); !ok || len(d) == 0 {
		t.Errorf("diff of a new app = %v", answer)
	}
	g.apply(manifest)
	answer, _ = g.dora.want(http.StatusAccepted, "POST", path, strings.Replace(manifest, "64M", "96M", 1))
	if d, _ := answer["diff"].([]any); len(d) != 1 || text(t, d, "0.op") != "replace" || !strings.HasPrefix(text(t, d, "0.path"), "/applications/0/") {
		t.Errorf("diff of another memory = %v", answer)
	}
}

// The client aborts a push if a match has no mode. If all files match, it sends no zip.
func TestMatchedResourcesHaveModes(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	a := g.app("site", "")
	const known = `{"path":"hello.txt","mode":"644","checksum":{"value":"f572d396fae9206628714fb2ce00f72e94f2258f"},"size_in_bytes":6}`
	matchResources := func() []any {
		t.Helper()
		answer, _ := g.dora.want(http.StatusCreated, "POST", "/v3/resource_matches", `{"resources":[`+known+`]}`)
		list, ok := answer["resources"].([]any)
		if !ok {
			t.Fatalf("matches = %v, want a list", answer)
		}
		return list
	}
	if n := len(matchResources()); n != 0 {
		t.Errorf("%d matches before anything was pushed", n)
	}
	g.packaged(a)
	list := matchResources()
	if len(list) != 1 {
		t.Fatalf("matches = %v, want hello.txt", list)
	}
	if _, err := strconv.ParseUint(text(t, list, "0.mode"), 8, 32); err != nil {
		t.Errorf("mode: %v", err)
	}
	p, _ := g.dora.want(http.StatusCreated, "POST", "/v3/packages", `{"relationships":{"app":{"data":{"guid":"`+a+`"}}},"type":"bits"}`)
	raw := must(json.Marshal(list))(t)
	g.upload(text(t, p, "guid"), string(raw), nil)
	g.until("ready without a zip", "/v3/packages/"+text(t, p, "guid"), func(v map[string]any) bool { return v["state"] == "READY" })
}

// The client detects the format of the fingerprint by its length, and connects to the
// address as it is.
func TestSSHEndpointFormat(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	root := g.dora.get("/")
	if href := text(t, root, "links.app_ssh.href"); href != "127.0.0.1:2222" {
		t.Errorf("href = %q, want host:port without a scheme", href)
	}
	fp := text(t, root, "links.app_ssh.meta.host_key_fingerprint")
	if len(fp) != 43 || strings.Contains(fp, ":") || strings.HasSuffix(fp, "=") {
		t.Errorf("fingerprint = %q, want 43 characters without SHA256:", fp)
	}
	if c := text(t, root, "links.app_ssh.meta.oauth_client"); c != "ssh-proxy" {
		t.Errorf("oauth_client = %q, want ssh-proxy", c)
	}
	r := httptest.NewRequest("GET", "/uaa/oauth/authorize?client_id=ssh-proxy&response_type=code", http.NoBody)
	r.Header.Set("Authorization", "bearer "+g.dora.token)
	got := g.send(r)
	u, err := url.Parse(got.Header().Get("Location"))
	if got.Code != http.StatusFound || err != nil || u.Query().Get("code") == "" {
		t.Fatalf("authorize = %d, Location %q, want 302 with a code", got.Code, got.Header().Get("Location"))
	}
	if who, err := g.c.Auth.Redeem(u.Query().Get("code")); err != nil || who.Name != "dora" {
		t.Errorf("the code is of %q, %v, want dora", who.Name, err)
	}

	g.c.SSH = nil
	closed := must(New(g.c))(t).Handler()
	out := httptest.NewRecorder()
	r = httptest.NewRequest("GET", "http://127.0.0.1:8484/", http.NoBody)
	closed.ServeHTTP(out, r)
	var without map[string]any
	if err := json.Unmarshal(out.Body.Bytes(), &without); err != nil || at(t, without, "links.app_ssh") != nil {
		t.Errorf("without an SSH server: %s, want null", out.Body)
	}
}

// The client sends a content type without a body, and an empty Authorization header
// with its first request to the login server.
func TestHeadersThatMeanNothingAreTolerated(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	for _, path := range []string{"/", "/uaa/login"} {
		r := httptest.NewRequest("GET", path, http.NoBody)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json")
		r.Header["Authorization"] = []string{""}
		if got := p.send(r); got.Code != http.StatusOK {
			t.Errorf("GET %s = %d %s", path, got.Code, got.Body)
		}
	}
	p.admin().want(http.StatusOK, "GET", "/v3/apps", "") // ask sets the content type
}

// In the client, the list of routes fails on an app that it cannot look up, and on an
// option that is null.
func TestRoutesNameOnlyAppsThatAreSeen(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	here := g.app("site", "")
	route := text(t, g.dora.get("/v3/apps/"+here+"/routes"), "resources.0.guid")
	other, _ := g.admin.want(http.StatusCreated, "POST", "/v3/spaces", `{"name":"hidden","relationships":{"organization":{"data":{"guid":"`+g.org+`"}}}}`)
	there, _ := g.admin.want(http.StatusCreated, "POST", "/v3/apps", `{"name":"away","relationships":{"space":{"data":{"guid":"`+text(t, other, "guid")+`"}}}}`)
	// A destination in another space is refused, or hidden from users who cannot see
	// it.
	got := g.admin.request("POST", "/v3/routes/"+route+"/destinations", `{"destinations":[{"app":{"guid":"`+text(t, there, "guid")+`"}}]}`)
	if got.Code >= http.StatusInternalServerError {
		t.Errorf("destination: %d %s", got.Code, got.Body)
	}
	routes, _ := g.dora.get("/v3/routes?per_page=5000&space_guids=" + g.space)["resources"].([]any)
	if len(routes) != 1 {
		t.Fatalf("routes = %v", routes)
	}
	for _, r := range routes {
		o, _ := r.(map[string]any)
		if options, there := o["options"].(map[string]any); there {
			for k, v := range options {
				if v == nil {
					t.Errorf("option %s is null", k)
				}
			}
		}
		destinations, _ := o["destinations"].([]any)
		for i := range destinations {
			guid := text(t, destinations, strconv.Itoa(i)+".app.guid")
			if rs, _ := g.dora.get("/v3/apps?guids=" + guid)["resources"].([]any); len(rs) != 1 {
				t.Errorf("app %s of a destination is not found", guid)
			}
		}
	}
}

// The client reads every relationship of these resources as one to one.
func TestRelationshipsAreToOne(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	a := g.app("site", "")
	_, d := g.staged(a)
	g.start(a, d)
	for _, path := range []string{"/v3/apps", "/v3/spaces", "/v3/processes", "/v3/packages", "/v3/roles", "/v3/apps/" + a + "/processes", "/v3/deployments"} {
		rs, ok := g.admin.get(path)["resources"].([]any)
		if !ok || len(rs) == 0 && path != "/v3/deployments" {
			t.Errorf("%s lists nothing", path)
		}
		for _, r := range rs {
			relationships, _ := at(t, r, "relationships").(map[string]any)
			for name, rel := range relationships {
				data := at(t, rel, "data")
				if one, ok := data.(map[string]any); data != nil && (!ok || one["guid"] == nil) {
					t.Errorf("%s: relationship %s = %v, want data with a guid, or null", path, name, rel)
				}
			}
		}
	}
}

// The client caches this page until the next login. It must be correct for all users
// and at all addresses, apart from the address itself, and the API must support the
// version that it names.
func TestRootIsTheSameForAll(t *testing.T) {
	t.Parallel()
	g := newSpacePlatform(t)
	g.app("site", "")
	want := g.dora.request("GET", "/", "").Body.String()
	for _, host := range []string{"127.0.0.1:8484", "localhost:1", "[::1]:8484"} {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.Host = host
		out := httptest.NewRecorder()
		g.listener.ServeHTTP(out, r)
		if got := strings.ReplaceAll(out.Body.String(), "http://"+host, publicURL); got != want {
			t.Errorf("to %s it says\n%s\nand else\n%s", host, got, want)
		}
	}
	root := g.dora.get("/")
	var major, minor int
	if _, err := fmt.Sscanf(text(t, root, "links.cloud_controller_v3.meta.version"), "%d.%d", &major, &minor); err != nil || major != 3 || minor < 99 {
		t.Errorf("version %d.%d, %v", major, minor, err)
	}
	embedded := g.dora.request("GET", "/v3/processes?embed=process_instances&space_guids="+g.space, "")
	if minor >= 211 && (embedded.Code != http.StatusOK || !strings.Contains(embedded.Body.String(), `"process_instances"`)) {
		t.Errorf("version 3.%d promises embedded instances: %d %s", minor, embedded.Code, embedded.Body)
	}
	for _, name := range []string{"login", "uaa", "log_cache", "cloud_controller_v3", "self"} {
		if href := text(t, root, "links."+name+".href"); !strings.HasPrefix(href, publicURL) {
			t.Errorf("%s = %q, want it below %s", name, href, publicURL)
		}
	}
	if links, _ := root["links"].(map[string]any); slices.Contains([]any{true}, root["cf_on_k8s"]) || links == nil {
		t.Errorf("root = %v", root)
	}
}
