package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/apps"
	"github.com/dewrun/dew/testkit"
)

func TestApps(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("apps").must(t, 0, "no apps yet")
	d.withApp(v3.AppStarted)
	d.routes = []v3.Route{{URL: "shop.dew.localhost", Destinations: []v3.Destination{{App: v3.DestinationApp{GUID: "app-1"}}}}}
	d.dew("a").must(t, 0, "shop   started   web:1/1     http://shop.dew.localhost:8080")
	var rows []apps.Row
	if err := json.Unmarshal([]byte(d.dew("apps", "--json").out), &rows); err != nil || rows[0].Processes[0].Running != 1 {
		t.Errorf("got %+v, %v", rows, err)
	}
}

func TestApp(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	why := "port 8080 does not answer"
	d.crashes = []v3.Crash{{Description: "APP/PROC/WEB: Exited with status 1", CrashedAt: time.Unix(1763160000, 0)}}
	d.stats[0].CrashCount, d.stats[0].Usage.Disk = 1, 2<<30
	d.stats = append(d.stats, v3.InstanceStats{
		Index: 1, State: v3.StateCrashed, Details: &why, CrashCount: 4, NextStart: time.Now().Add(time.Hour),
	}, v3.InstanceStats{Index: 2, State: v3.StateRunning, Version: "v0"}, v3.InstanceStats{Index: 3, State: v3.StateCrashed, GivenUp: true})
	d.sidecars = []v3.Sidecar{{Name: "config server", Command: "./config"}}
	d.dew("app", "shop").must(t, 0,
		"config server, 2/4 running: ./config", "3.1%", "12.0M of 256.0M", "APP/PROC/WEB: Exited with status 1 (1 crash recorded, see dew why shop)",
		"2.0G of 1.0G   over its disk limit; 1 crash in a row\n",
		"port 8080 does not answer; 4 crashes in a row; next start in ", "changes pending", "changes apply at the next start. To restart now: dew restart shop", "dew does not restart it: it crashed too often")
	var v apps.View
	if err := json.Unmarshal([]byte(d.dew("app", "shop", "--json").out), &v); err != nil {
		t.Fatal(err)
	}
	if i := v.Processes[0].Instances; !i[2].Pending || i[0].Pending || v.LastCrash == nil || v.Processes[0].Command != "./shop" {
		t.Errorf("got %+v", v)
	}
	if got := d.dew("app", "shop", "--guid").out; got != "app-1\n" {
		t.Errorf("the guid is %q", got)
	}
	d.dew("app", "shp").must(t, 1, `app "shp" does not exist`, `did you mean "shop"?`)
	d.dew("app", "other").must(t, 1, "To list the apps: dew apps")
}

// The output shows the buildpack and the start command of the droplet if the app names
// none. It distinguishes the two processes of a deployment.
func TestAppDetected(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.builds = []v3.Build{{}}
	d.rollouts.current = &v3.Deployment{Strategy: v3.StrategyCanary, NewProcesses: []v3.NewProcess{{GUID: "app-1.1", Type: "web"}}}
	d.rollouts.current.Status.Value = v3.DeploymentActive
	d.deployed = []v3.Process{{GUID: "app-1.1", Type: "web"}}
	d.dew("app", "shop").must(t, 0, "buildpacks:  nodejs_buildpack (detected)", "web (old: the deployment replaces it)", "command:     ./shop\n",
		"web (new: the deployment starts it)", "command:     node server.js (detected)")
	d.dew("ps").must(t, 0, "web (old)", "web (new)")
	d.app.Lifecycle.Data.Buildpacks = []string{"other"}
	d.dew("app", "shop").must(t, 0, "buildpacks:  other\n")
}

// The list has one row for the process and one for each sidecar of an instance. Each
// row has its own memory and the crashes that it caused.
func TestPS(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("ps").must(t, 0, "There are no apps yet")
	d.withApp(v3.AppStarted)
	why := "Exited with status 1"
	d.sidecars = []v3.Sidecar{{Name: "config server"}}
	d.stats[0].Parts = []v3.Part{{Mem: 5 << 20}, {Sidecar: "config server", Mem: 3 << 20, MemQuota: 64 << 20}}
	d.stats = append(d.stats, v3.InstanceStats{Type: "web", Index: 1, State: v3.StateCrashed, Details: &why, NextStart: time.Now().Add(time.Hour)})
	d.crashes = []v3.Crash{
		{Type: "web", First: v3.CrashExit{Sidecar: "config server"}},
		{Type: "web", First: v3.CrashExit{Sidecar: "config server"}},
		{Type: "web", Index: 1},
		{Type: "worker"},
	}
	d.dew("ps").must(t, 0,
		"shop   web/0      web                       running   5s         5.0M of 256.0M   0\n",
		"shop   web/0      config server (sidecar)   running   5s         3.0M of 64.0M    2\n",
		"shop   web/1      web                       crashed   0s         -                1         Exited with status 1; next start in ",
		"shop   web/1      config server (sidecar)   crashed   0s         -                0\n")
	var rows []apps.PSRow
	if err := json.Unmarshal([]byte(d.dew("ps", "shop", "--json").out), &rows); err != nil || len(rows) != 4 || *rows[1].Memory != 3<<20 || *rows[1].Crashes != 2 || rows[2].Memory != nil {
		t.Errorf("got %+v, %v", rows, err)
	}
	d.app.State = v3.AppStopped
	r := d.dew("ps")
	r.must(t, 0, "1 app is stopped: dew ps -a lists it")
	if r.out != "" {
		t.Errorf("a stopped app is listed:\n%s", r.out)
	}
	d.dew("ps", "-a").must(t, 0, "web/0")
	d.dew("ps", "shp").must(t, 1, `did you mean "shop"?`)
}

// The URL is always printed, and opened if there is a display.
func TestOpen(t *testing.T) {
	d := newDaemon(t).withApp(v3.AppStarted)
	opened := filepath.Join(t.TempDir(), "opened")
	browser := filepath.Join(t.TempDir(), "browser")
	if err := os.WriteFile(browser, []byte("#!/bin/sh\necho \"$1\" > "+opened+".new && mv "+opened+".new "+opened+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BROWSER", browser)
	t.Setenv("WAYLAND_DISPLAY", "")
	t.Setenv("DISPLAY", "")
	d.routes = []v3.Route{{Protocol: "tcp", URL: "tcp.dew.localhost:20000"}, {Protocol: "http", Host: "*", URL: "*.dew.localhost"}}
	d.dew("open", "shop").must(t, 1, "app shop has no HTTP route", "dew map-route shop DOMAIN --hostname shop")
	d.routes = append(d.routes, v3.Route{Protocol: "http", Host: "shop", URL: "shop.dew.localhost/v1"})
	const base = "http://shop.dew.localhost:8080/v1"
	for path, want := range map[string]string{"": base, "/x?a=b#c": base + "/x?a=b#c", "x": base + "/x"} {
		if got := d.dew("open", "shop", "--path", path); got.out != want+"\n" || got.status != 0 {
			t.Errorf("%q: %q, want %q", path, got.out, want)
		}
	}
	d.dew("open", "shop", "--path", "http://elsewhere/").must(t, 2, "is not a path", "usage: dew open APP [flags]")
	if _, err := os.Stat(opened); err == nil {
		t.Error("a browser was started without a display")
	}
	t.Setenv("DISPLAY", ":0")
	d.dew("open", "shop").must(t, 0, base)
	var text []byte
	testkit.Eventually(t, "the browser was started", func() (err error) {
		text, err = os.ReadFile(opened)
		return err
	})
	if string(text) != base+"\n" {
		t.Errorf("opened %q", text)
	}
	t.Setenv("BROWSER", filepath.Join(t.TempDir(), "none"))
	d.app.State = v3.AppStopped
	d.dew("open", "shop").must(t, 0, base, "warning: app shop is stopped. To start it: dew start shop", "warning: cannot open a browser")
}

func TestLife(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStopped)
	d.dew("restage", "shop").must(t, 1, "no package to stage")
	d.sent["a"] = "x" // pushed but never staged
	d.dew("start", "shop").must(t, 0, "Staging app shop", "state:       started")
	if n := d.count("POST /v3/builds"); n != 1 {
		t.Errorf("it staged %d times", n)
	}
	d.dew("start", "shop").must(t, 0, "already started")
	d.dew("restart", "shop").must(t, 0, "Starting app shop")
	if n := d.count("POST /v3/builds"); n != 1 {
		t.Errorf("a restart staged what was staged: %d builds", n)
	}
	d.dew("restage", "shop").must(t, 0)
	if n := d.count("POST /v3/builds"); n != 2 {
		t.Errorf("a restage did not stage: %d builds", n)
	}
	d.dew("stop", "shop").must(t, 0, "Stopped app shop")
	d.dew("stop", "shop").must(t, 0, "already stopped")
	d.dew("restart-app-instance", "shop", "1").must(t, 0)
	if d.count("DELETE /v3/apps/app-1/processes/web/instances/1") != 1 {
		t.Error("no instance was restarted")
	}
	d.refuse["POST /v3/apps/app-1/actions/start"] = v3.Error{Detail: v3.DetailAssignDroplet}
	d.dew("start", "shop").must(t, 4, v3.DetailAssignDroplet)
}

func TestScale(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("scale", "shop").must(t, 0, "name:")
	d.dew("scale", "shop", "-i", "2").must(t, 0, "Scaled app shop")
	if got := d.body("POST /v3/apps/app-1/processes/web/actions/scale"); got != `{"instances":2}` {
		t.Errorf("the body is %s", got)
	}
	if d.count("POST /v3/apps/app-1/actions/restart") != 0 {
		t.Error("more instances restarted the app")
	}
	d.dew("scale", "shop", "-m", "128M", "-k", "1G", "-f").must(t, 0)
	if got := d.body("POST /v3/apps/app-1/processes/web/actions/scale"); got != `{"memory_in_mb":128,"disk_in_mb":1024}` {
		t.Errorf("the body is %s", got)
	}
	if d.count("POST /v3/apps/app-1/actions/restart") != 1 {
		t.Error("another size did not restart the app")
	}
}

func TestDeleteAndRename(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("rename", "shop", "store").must(t, 0, "Renamed app shop to store")
	if got := d.body("PATCH /v3/apps/app-1"); got != `{"name":"store"}` {
		t.Errorf("the body is %s", got)
	}
	to := func(app string) v3.Destination { return v3.Destination{App: v3.DestinationApp{GUID: app}} }
	d.routes = []v3.Route{{GUID: "r1", URL: "shop.dew.localhost", Destinations: []v3.Destination{to("app-1"), to("app-2")}}}
	d.dew("delete", "shop", "-f", "-r").must(t, 1, "is mapped to other apps as well", "Nothing was deleted")
	if d.count("DELETE /v3/apps/app-1") != 0 {
		t.Fatal("the app was deleted")
	}
	d.routes[0].Destinations = d.routes[0].Destinations[:1]
	d.dew("delete", "shop", "-f", "-r").must(t, 0, "Deleted app shop")
	if d.count("DELETE /v3/routes/r1") != 1 {
		t.Error("the route is still there")
	}
	d.dew("delete", "shop", "-f").must(t, 0, "App shop does not exist")
}

func TestEnv(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.env["COLOUR"] = "blue"
	d.dew("env", "shop").must(t, 0, "COLOUR: blue", "VCAP_SERVICES: {}")
	d.dew("set-env", "shop", "JAVA_OPTS", "-Xmx64m").must(t, 0, "dew restart shop")
	if got := d.body("PATCH /v3/apps/app-1/environment_variables"); got != `{"var":{"JAVA_OPTS":"-Xmx64m"}}` {
		t.Errorf("the body is %s", got)
	}
	d.dew("unset-env", "shop", "SIZE").must(t, 0, "no environment variable SIZE")
	d.dew("unset-env", "shop", "COLOUR").must(t, 0, "Removed COLOUR")
	if got := d.body("PATCH /v3/apps/app-1/environment_variables"); got != `{"var":{"COLOUR":null}}` {
		t.Errorf("the body is %s", got)
	}
}

func TestEventsCrashesKill(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("events", "shop").must(t, 0, "app.crash", "index: 0, reason: CRASHED, exit_description: APP/PROC/WEB: Exited with status 1")
	d.dew("crashes", "shop").must(t, 0, "has not crashed")
	at := time.Unix(1763160000, 0)
	d.crashes = []v3.Crash{{
		Type: "web", Description: "APP/PROC/WEB/SIDECAR/CONFIG SERVER: Exited with status 137", Phase: "running", Count: 1, CrashedAt: at, Instance: "i-1",
		First:     v3.CrashExit{Source: "APP/PROC/WEB/SIDECAR/CONFIG SERVER", Sidecar: "config server", Code: 137, Cause: "exited", At: at, MemoryLimit: 64 << 20, MemoryPeak: 8 << 20},
		Followers: []v3.CrashExit{{Source: "APP/PROC/WEB", Code: 143, Cause: "peer_exited", At: at.Add(12 * time.Millisecond)}},
		NextStart: at.Add(30 * time.Second),
	}, {Description: "older"}}
	r := d.dew("crashes", "shop", "-n", "1")
	r.must(t, 0, "web/0  APP/PROC/WEB/SIDECAR/CONFIG SERVER: Exited with status 137", "status 137 (killed by SIGKILL, or exited with 137), exited; peak memory 8.0M of 64.0M",
		"then APP/PROC/WEB: status 143 (killed by SIGTERM, or exited with 143), stopped because config server exited, 12ms later",
		"while running; 1 crash in a row; instance i-1", "next start 30s after the crash")
	d.crashes[0].Count, d.crashes[0].NextStart = 2, time.Now().Add(time.Hour)
	d.dew("crashes", "shop").must(t, 0, "while running; 2 crashes in a row", "next start in ")
	if strings.Contains(r.out, "older") {
		t.Errorf("more than one:\n%s", r.out)
	}
	d.sidecars = []v3.Sidecar{{Name: "config server"}}
	d.dew("kill", "shop", "--sidecar", "config server", "--signal", "sigterm").must(t, 0, `Sent SIGTERM to sidecar "config server"`)
	if got := d.body("POST /dew/v1/processes/app-1/kill"); got != `{"index":0,"sidecar":"config server","signal":"TERM"}` {
		t.Errorf("the body is %s", got)
	}
	d.dew("kill", "shop", "--signal", "9").must(t, 0, "Sent SIGKILL to process web in instance 0")
	d.stats[0].InstanceGUID = "i-1"
	d.crashes[0].Complete = true
	d.successor = "i-2"
	d.dew("kill", "shop", "--wait").must(t, 0, "Sent SIGKILL", "CONFIG SERVER: Exited with status 137", "Instance 0 is running again")
	d.dew("kill", "shop", "--sidecar", "nobody").must(t, 1, `no sidecar "nobody"; its sidecars: "config server"`)
	d.dew("kill", "shop", "--process", "worker").must(t, 1, `no process "worker"; its processes: web`)
}

func TestDaemonCommands(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	d.pid = ended.Process.Pid
	d.dew("status").must(t, 0, fmt.Sprintf("pid %d", d.pid), "http://*.dew.localhost:8080")
	d.dew("credentials").must(t, 0, "cf api "+unusedURL+"\n", `cf login -u admin -p 'it'\''s' -o local -s dev`+"\n")
	d.dew("credentials", "--json").must(t, 0, filepath.Join(d.run, "dew.sock"), `"password": "it's"`, `"apps": "http://*.dew.localhost:8080"`, `"space": "dev"`)
	d.dew("curl", "/v3/nothing", "-i", "-X", "put", "-d", `{"a":1}`).must(t, 0, "404 Not Found", "Unknown request")
	if d.body("PUT /v3/nothing") != `{"a":1}` {
		t.Errorf("asked %v", d.requests)
	}
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.dew("curl", "v3/nothing", "-d", "@"+body).must(t, 0)
	if d.body("POST /v3/nothing") != "from a file" {
		t.Errorf("asked %v", d.requests)
	}
	d.dew("shutdown", "--apps").must(t, 0, "Stopped dewd and all apps")
	if d.body("POST /dew/v1/shutdown") != `{"apps":true}` {
		t.Errorf("the body is %s", d.body("POST /dew/v1/shutdown"))
	}
}

// dew doctor runs the daemon's check and exits with its status.
func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$@ run=$DEW_RUN\"\nexit 9\n"
	if err := os.WriteFile(filepath.Join(dir, "dewd"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	r := runDew(t.Context(), "--run", "/r", "doctor", "--json")
	r.must(t, 9, "doctor --json run=/r")
	if r.err.Error() != "" {
		t.Errorf("it is told twice: %v", r.err)
	}
	t.Setenv("PATH", t.TempDir())
	runDew(t.Context(), "doctor").must(t, 9, "cannot find dewd")
}
