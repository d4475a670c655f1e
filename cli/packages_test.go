package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// bitsRoutes handles requests about packages, droplets, health checks and feature
// flags.
func (d *fakeDaemon) bitsRoutes(handle func(string, func(*http.Request, []byte) any)) {
	handle("GET /v3/droplets/droplet-1/download", func(*http.Request, []byte) any { return map[string]string{"files": "many"} })
	handle("PATCH /v3/processes/app-1", func(*http.Request, []byte) any { return v3.Process{GUID: "app-1", Type: "web"} })
	handle("GET /v3/feature_flags", func(*http.Request, []byte) any {
		return listOf(v3.FeatureFlag{Name: "app_bits_upload", Enabled: true}, v3.FeatureFlag{Name: "diego_docker"})
	})
	handle("PATCH /v3/feature_flags/diego_docker", func(_ *http.Request, body []byte) any {
		var b v3.UpdateFeatureFlag
		d.decode(body, &b)
		return v3.FeatureFlag{Name: "diego_docker", Enabled: *b.Enabled}
	})
}

func TestPackages(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStopped)
	d.outcome = v3.Build{State: v3.BuildStaged, Droplet: &v3.GUID{GUID: "droplet-1"}}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.dew("packages", "shop").must(t, 0, "App shop has no packages")
	d.dew("stage-package", "shop").must(t, 1, "app shop has no package: push the app first")
	d.dew("download-droplet", "shop").must(t, 1, "app shop has no droplet")
	d.dew("create-package", "shop", "-p", dir).must(t, 0, "Created package package-1 of app shop")
	d.dew("packages", "shop").must(t, 0, "package-1", "ready")
	d.dew("stage-package", "shop").must(t, 0, "Staged droplet droplet-1")
	d.dew("set-droplet", "shop", "droplet-1").must(t, 0, "App shop will run droplet droplet-1 from its next start on")
	if got, want := d.body("PATCH /v3/apps/app-1/relationships/current_droplet"), `{"data":{"guid":"droplet-1"}}`; got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
	file := filepath.Join(dir, "d.tgz")
	d.dew("download-droplet", "shop", "--path", file).must(t, 0, "Wrote "+file)
	if b, err := os.ReadFile(file); err != nil || len(b) == 0 {
		t.Errorf("file = %q %v, want what the daemon sent", b, err)
	}
	d.dew("download-droplet", "shop", "--droplet", "nonesuch", "--path", file).must(t, 1, "Unknown request")
	if _, err := os.Stat(file); err == nil {
		t.Error("a download that failed leaves a file")
	}
	d.dew("copy-source", "shop", "shop", "--no-restart").must(t, 0, "Copied the files of app shop to app shop")
	if got, want := d.body("POST /v3/packages"), `{"relationships":{"app":{"data":{"guid":"app-1"}}}}`; got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
	d.dew("copy-source", "shop", "shpo").must(t, 1, `did you mean "shop"?`)
}

func TestChecks(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStopped)
	d.dew("get-health-check", "shop").must(t, 0, "web")
	d.dew("get-readiness-health-check", "shop", "--json").must(t, 0, `"process": "web"`)
	d.dew("set-health-check", "shop", "http", "--invocation-timeout", "3").must(t, 0, "Set the health check of process web of app shop to http")
	want := `{"health_check":{"type":"http","data":{"invocation_timeout":3,"endpoint":"/"}}}`
	if got := d.body("PATCH /v3/processes/app-1"); got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
	d.dew("set-health-check", "shop", "magic").must(t, 2, "TYPE must be process, port or http")
	d.dew("set-health-check", "shop", "port", "--endpoint", "/x").must(t, 2, "--endpoint needs the type http")
	d.dew("set-health-check", "shop", "port", "--process", "batch").must(t, 1, `no process type "batch"`)
}

func TestFlags(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("feature-flags").must(t, 0, "app_bits_upload", "diego_docker")
	d.dew("feature-flag", "diego_docker").must(t, 0, "disabled")
	d.dew("feature-flag", "diego_dokcer").must(t, 1, `did you mean "diego_docker"?`)
	d.dew("enable-feature-flag", "diego_docker").must(t, 0, "Feature flag diego_docker is enabled")
	d.dew("disable-feature-flag", "diego_docker").must(t, 0, "Feature flag diego_docker is disabled")
}
