package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// Lists filter by labels, and pass the selector only to the request for their own
// resources.
func TestChooseByLabels(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	for verb, path := range map[string]string{
		"apps": "/v3/apps", "orgs": "/v3/organizations", "spaces": "/v3/spaces", "domains": "/v3/domains", "buildpacks": "/v3/buildpacks", "routes": "/v3/routes", "stacks": "/v3/stacks",
	} {
		clear(d.queries)
		d.dew(verb, "--labels", "env in (test,dev),!old").must(t, 0)
		for key, q := range d.queries {
			if got := q.Get("label_selector"); (got == "env in (test,dev),!old") != (key == "GET "+path) {
				t.Errorf("%s: the selector of %s is %q", verb, key, got)
			}
		}
	}
	d.dew("apps", "--no-stats").must(t, 0, "shop")
	if n := d.count("GET /v3/processes"); n != 1 { // from the previous list
		t.Errorf("processes were asked for %d times, want 1", n)
	}
}

func TestQuotaOfNewPlaces(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("create-org", "shop", "-q", "small").must(t, 1, `org quota "small" does not exist`)
	d.dew("create-space", "test", "-q", "tiny").must(t, 1, `space quota "tiny" does not exist`)
	if d.count("POST /v3/organizations")+d.count("POST /v3/spaces") != 0 {
		t.Error("something was made before its quota was looked for")
	}
	d.dew("create-org-quota", "small").must(t, 0)
	d.dew("create-space-quota", "tiny").must(t, 0)
	d.dew("create-org", "shop", "--quota", "small").must(t, 0, "Created org shop", "Assigned quota small to org shop")
	d.dew("set-space-quota", "dev", "tiny").must(t, 0)
	d.dew("create-space", "test", "-q", "tiny").must(t, 0, "Created space test", "Assigned quota tiny to space test")
	d.dew("org", "shop").must(t, 0, "quota:     small")
	d.dew("space", "dev").must(t, 0, "quota:   tiny")
}

func TestSpaceRules(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	file := filepath.Join(t.TempDir(), "rules.json")
	if err := os.WriteFile(file, []byte(`[{"protocol":"tcp","destination":"10.0.0.0/8","ports":"443","description":"tls"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	d.dew("create-security-group", "web", file).must(t, 0)
	d.dew("bind-security-group", "web", "local", "--space", "dev").must(t, 0)
	d.dew("create-isolation-segment", "far").must(t, 0)
	d.dew("set-space-isolation-segment", "dev", "far").must(t, 0)
	d.dew("space", "dev", "--security-group-rules").must(t, 0, "isolation segment:         far", "running security groups:   web", "web              tcp        10.0.0.0/8    443     running     tls")
	d.dew("space", "dev", "--json").must(t, 0, `"isolation_segment": "far"`, `"ports": "443"`, `"staging_security_groups": []`)
}

func TestRoutesOfOrg(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("create-route", "dew.localhost", "-n", "shop", "-o", "loadbalancing=round-robin").must(t, 0)
	if got := d.body("POST /v3/routes"); !strings.Contains(got, `"options":{"loadbalancing":"round-robin"}`) {
		t.Errorf("the body is %s", got)
	}
	d.dew("r", "--org-level").must(t, 0, "shop.dew.localhost")
	if q := d.queries["GET /v3/routes"]; q.Get("organization_guids") != "org-1" || q.Has("space_guids") {
		t.Errorf("asked for %v", q)
	}
}

func TestScaleFlags(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStopped)
	d.dew("scale", "shop", "--instances", "2", "-l", "16K", "--force").must(t, 0)
	d.changed("POST /v3/apps/app-1/processes/web/actions/scale", `{"instances":2,"log_rate_limit_in_bytes_per_second":16384}`)
	d.dew("scale", "shop", "-l", "much").must(t, 2, "-l:")
}

func TestPushForTasks(t *testing.T) {
	d := newDaemon(t)
	folder := t.TempDir()
	t.Chdir(folder)
	if err := os.WriteFile("app.rb", []byte("puts 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.dew("push", "shop", "--task", "-l", "1M").must(t, 0, "state:       stopped")
	text := d.body("POST /v3/spaces/space-1/actions/apply_manifest")
	for _, want := range []string{`"no-route": true`, `"health-check-type": "process"`, `"log-rate-limit-per-second": "1M"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if d.count("PATCH /v3/apps/app-1/relationships/current_droplet") != 1 || d.count("POST /v3/apps/app-1/actions/restart") != 0 {
		t.Errorf("asked %v", d.requests)
	}
	d.dew("push", "shop", "--task", "--strategy", "rolling").must(t, 2, "--task cannot be used with")
}

func TestPushDroplet(t *testing.T) {
	d := newDaemon(t)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("shop.tgz", []byte("a droplet"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.dew("push", "shop", "--droplet", "shop.tgz").must(t, 0, "Uploading droplet shop.tgz", "Starting app shop")
	if !strings.Contains(d.body("POST /v3/droplets/droplet-9/upload"), "a droplet") || d.count("POST /v3/builds") != 0 {
		t.Errorf("asked %v", d.requests)
	}
	d.changed("PATCH /v3/apps/app-1/relationships/current_droplet", `{"data":{"guid":"droplet-9"}}`)
	d.dew("push", "shop", "--droplet", "none.tgz").must(t, 2, "--droplet: ")
	d.dew("push", "shop", "--droplet", ".").must(t, 2, "is not a file")
	d.dew("push", "shop", "--droplet", "shop.tgz", "-b", "x").must(t, 2, "a droplet is already staged")
	d.dew("push", "shop", "--droplet", "shop.tgz", "--watch").must(t, 2, "cannot be used together")
}

func TestRedact(t *testing.T) {
	d := newDaemon(t).withApp(v3.AppStarted)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("manifest.yml", []byte("applications:\n- name: shop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"apply-manifest"}, {"apply-manifest", "--redact-env"}} { // the flag of cf
		d.dew(flags...).must(t, 0, `~ /applications/0/memory: "256M", was "128M"`, `~ /applications/0/env/TOKEN: "<redacted>", was "<redacted>"`)
	}
}

func TestOtherFlags(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("create-app", "shop", "--app-type", "docker").must(t, 0)
	if got := d.body("POST /v3/apps"); !strings.Contains(got, `"lifecycle":{"type":"docker","data":{}}`) {
		t.Errorf("the body is %s", got)
	}
	d.dew("create-app", "shop", "--app-type", "vm").must(t, 2, "--app-type must be buildpack or docker")
	d.dew("create-app", "shop", "--app-type", "docker", "--buildpack", "x").must(t, 2, "-b cannot be used with --app-type docker")
	d.dew("create-package", "shop", "-o", "localhost:5000/shop:1").must(t, 0, "Created package package-1")
	if got := d.body("POST /v3/packages"); !strings.Contains(got, `"data":{"image":"localhost:5000/shop:1"}`) {
		t.Errorf("the body is %s", got)
	}
	d.dew("create-package", "shop", "-o", "x", "-p", ".").must(t, 2, "cannot be used together")
	d.dew("buildpacks", "--lifecycle", "cnb").must(t, 0, "There are no buildpacks")

	file := filepath.Join(t.TempDir(), "answer")
	d.dew("curl", "/v3/organizations", "--output", file).must(t, 0)
	if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), "local") {
		t.Errorf("got %s, %v", b, err)
	}
	d.dew("curl", "/nowhere").must(t, 0, "Unknown request")
	d.dew("curl", "/nowhere", "--fail").must(t, 1, "dewd responded with 404")

	d.dew("set-space-role", "admin", "local", "dev", "SpaceDeveloper").must(t, 0)
	d.dew("org-users", "local", "--all-users").must(t, 0, "admin   Member, SpaceDeveloper")
	d.dew("create-user", "ada", "secret", "--password-prompt").must(t, 2, "PASSWORD or --password-prompt")
	runDew(t.Context(), "--version").must(t, 0, "dew version ")
}

func TestCopySourceElsewhere(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("copy-source", "shop", "shop", "-o", "local").must(t, 2, "--organization needs --space")
	d.dew("copy-source", "shop", "shop", "--no-restart", "--strategy", "rolling").must(t, 2, "cannot be used together")
	d.dew("copy-source", "shop", "shop", "-s", "tset").must(t, 1, `space "tset" does not exist`)
	d.dew("copy-source", "shop", "shpo", "-s", "dev").must(t, 1, `did you mean "shop"?`)
}

// dropletAnswers handles uploads of droplets.
func (d *fakeDaemon) dropletAnswers(handle handleFunc) {
	handle("POST /v3/droplets", func(*http.Request, []byte) any { return answer{201, v3.Droplet{GUID: "droplet-9"}} })
	handle("POST /v3/droplets/droplet-9/upload", func(*http.Request, []byte) any { return job{} })
}
