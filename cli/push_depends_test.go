package cli

import (
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

const dependentManifest = "applications:\n- name: shop\n  depends-on:\n  - db\n- name: db\n"

// An app is pushed before the apps that depend on it. If it fails, they are not pushed.
func TestPushInStartOrder(t *testing.T) {
	d := newDaemon(t)
	root := folder(t, map[string]string{"manifest.yml": dependentManifest, "a": "a"})
	r := d.dew("push", "-f", root, "-p", root)
	r.must(t, 2, "these flags are for one app")
	t.Chdir(root)
	d.dew("push").must(t, 1, `app "db" does not exist`, "manifest.yml, line 4: depends-on: shop was not pushed, because it depends on db")
	if d.count("POST /v3/packages") > 0 {
		t.Errorf("shop was pushed before db: %v", d.requests)
	}
	if body := d.body("POST /v3/spaces/space-1/actions/apply_manifest"); strings.Contains(body, "depends-on") {
		t.Errorf("the daemon was sent %s", body)
	}
}

// A push of only one app needs its dependencies to run.
func TestPushOneThatDepends(t *testing.T) {
	running := []v3.InstanceStats{{State: v3.StateRunning}}
	for name, c := range map[string]struct {
		other  *v3.App
		stats  []v3.InstanceStats
		args   []string
		late   string
		status int
		texts  []string
	}{
		"missing":  {status: 1, texts: []string{"manifest.yml, line 4: depends-on: cannot start shop, which depends on db: app db does not exist in this space", "dew push db"}},
		"stopped":  {other: &v3.App{State: v3.AppStopped}, status: 1, texts: []string{"app db is stopped", "dew start db"}},
		"crashed":  {other: &v3.App{State: v3.AppStarted}, stats: []v3.InstanceStats{{State: v3.StateCrashed}}, status: 4, texts: []string{"line 4: depends-on", "all instances of web crashed"}},
		"late":     {other: &v3.App{State: v3.AppStarted}, stats: []v3.InstanceStats{{State: v3.StateStarting}}, late: "0.001", status: 5, texts: []string{"line 4: depends-on", "db did not start within"}},
		"running":  {other: &v3.App{State: v3.AppStarted}, stats: running, texts: []string{"Waiting until app db runs, because app shop depends on it", "Starting app shop"}},
		"no start": {args: []string{"--no-start"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CF_STARTUP_TIMEOUT", c.late)
			d := newDaemon(t)
			if d.other, d.stats2 = c.other, c.stats; d.other != nil {
				d.other.GUID, d.other.Name = "app-2", "db"
			}
			t.Chdir(folder(t, map[string]string{"manifest.yml": dependentManifest, "a": "a"}))
			d.dew(append([]string{"push", "shop"}, c.args...)...).must(t, c.status, c.texts...)
			if started := d.count("POST /v3/apps/app-1/actions/restart") > 0; started != (name == "running") {
				t.Errorf("started: %v", started)
			}
		})
	}
}
