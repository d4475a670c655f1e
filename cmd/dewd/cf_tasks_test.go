//go:build integration

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"path/filepath"
	"strings"
	"testing"
)

// The cf CLI runs tasks, and runs the steps of a push one by one: packages, stagings,
// droplets. It copies sources, and changes health checks.
func TestCFTasks(t *testing.T) {
	s := newStockClient(t, "tasks")
	s.hide(noSuchGUID, "$nobody1")
	s.write("small/hello.txt", []byte("hello\n"))
	s.write("small/Procfile", []byte("web: sleep 1000\ntask: true\nmigrate: echo migrated\n"))
	s.cf("push shop --no-manifest -p small -u process -m 32M -b binary_buildpack --no-route", oneRunning)
	s.parts(
		part{"tasks", s.runsTasks},
		part{"packages", s.makesPackages},
		part{"droplets", s.setsDroplets},
		part{"copies", s.copiesSources},
		part{"looks", s.looksOtherwise},
		part{"checks", s.changesChecks},
		part{"pushes", s.pushesOtherwise},
	)
	s.finish()
}

func (s *stock) runsTasks() {
	s.cf("run-task shop --command 'echo done' --name one -m 16M -k 32M -l 16K", "Task has been submitted successfully for execution.", "OK", "task name: one", "task id: 1")
	s.cf("run-task shop -c true --wait", "task id: 2", "Task has completed successfully.")
	s.refuses("run-task shop -c 'exit 3' --wait", "Task failed to complete successfully")
	s.cf("run-task shop --process migrate --wait", "task id: 4")
	s.cf("run-task shop --wait", "task id: 5")
	s.cf("run-task shop -c '"+sleepy+"' --name long", "task id: 6")
	s.refuses("run-task shop --process none", "Process none not found")
	s.refuses("run-task none -c true", "App 'none' not found.")
	s.eventuallySays("^6 +long +RUNNING", "tasks shop")
	s.cf("tasks shop", "^1 +one +SUCCEEDED .*echo done", "^3 .* FAILED .*exit 3", "^4 .* SUCCEEDED ", "^6 +long +RUNNING ")
	s.cf("task shop 3", "id: 3", "state: FAILED", "^failure reason: +APP/TASK/\\S+: Exited with status 3$", "command: exit 3")
	s.cf("task shop 1", "^.*memory in mb: +16$", "^.*disk in mb: +32$")
	s.refuses("task shop 99", "Task sequence ID 99 not found.")
	s.cf("terminate-task shop 6", "OK")
	s.eventuallySays("^6 +long +FAILED", "tasks shop")
	s.refuses("terminate-task shop 99", "Task sequence ID 99 not found.")
	s.refuses("terminate-task shop 6", "Task state is FAILED and therefore cannot be canceled")
	s.cf("task shop 6", "failure reason: task was cancelled")
	s.live(0, "logs shop --recent", `^.*\[APP/TASK/one/0\] +OUT done`)
	s.cf("events shop", "audit.app.task.create", "audit.app.task.cancel")
}

func (s *stock) makesPackages() {
	s.cf("create-app bare -b binary_buildpack", "OK")
	s.cf("packages bare", "No packages found.")
	s.cf("droplets bare", "No droplets found")
	s.refuses("stage-package bare", "App 'bare' has no eligible packages.")
	s.cf("create-package bare -p small", "^Package with guid '[0-9a-f-]{36}' has been created.", "OK")
	s.cf("packages bare", "^[0-9a-f-]{36} +ready ")
	s.cf("stage-package bare", "Package staged", "^droplet guid: +[0-9a-f-]{36}$")
	guid := firstGUID(s.live(0, "packages bare"))
	s.cf("stage bare --package-guid "+guid, "Package staged")
	s.refuses("stage-package bare --package-guid "+noSuchGUID, "Package with guid '"+noSuchGUID+"' not found in app 'bare'.")
	s.refuses("create-package none -p small", "App 'none' not found.")
	s.cf("create-app boxed --app-type docker", "OK")
	s.cf("create-package boxed --docker-image images.example/shop:1", "OK")
	s.refuses("create-package bare --docker-image images.example/shop:1", "Cannot create Docker package for a buildpack app.")
}

const noSuchGUID = "11111111-2222-3333-4444-555555555555"

// firstGUID returns the first guid in an output.
func firstGUID(out string) string {
	for l := range strings.Lines(out) {
		if first, _, _ := strings.Cut(strings.TrimSpace(l), " "); len(first) == 36 && strings.Count(first, "-") == 4 {
			return first
		}
	}
	return ""
}

func (s *stock) setsDroplets() {
	guid := firstGUID(s.live(0, "droplets bare"))
	s.cf("set-droplet bare "+guid, "OK")
	s.cf("droplets bare", "^"+guid+" \\(current\\) +staged ")
	s.refuses("set-droplet bare "+noSuchGUID, "Unable to assign droplet: Unable to assign current droplet. Ensure the droplet exists and belongs to this app.")
	s.refuses("set-droplet none "+guid, "App 'none' not found.")
	s.live(0, "download-droplet bare", "^Droplet downloaded successfully at .*/droplet_"+guid+"\\.tgz", "OK")
	s.live(0, "download-droplet bare --droplet "+guid+" --path took.tgz", "OK")
	if b := s.readFile(filepath.Join(s.dir, "took.tgz")); !bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		s.t.Errorf("the droplet is no gzip: %.20q", b)
	}
	s.refuses("download-droplet bare --droplet "+noSuchGUID, "Droplet '"+noSuchGUID+"' not found for app 'bare'")
	s.refuses("download-droplet boxed", "App 'boxed' does not have a current droplet.")
	s.cf("set-health-check bare process", "OK")
	s.cf("start bare", oneRunning)
}

func (s *stock) copiesSources() {
	s.cf("create-space annex", "OK")
	s.cf("create-app twin -b binary_buildpack", "OK")
	s.cf("set-health-check twin process", "OK")
	s.cf("copy-source shop twin --no-restart", "OK")
	s.cf("packages twin", "^[0-9a-f-]{36} +(ready|copying) ")
	s.cf("copy-source shop twin", "Staging app twin")
	s.passes("copy-source shop twin --strategy rolling --max-in-flight 1 --no-wait", "^.*deploy")
	s.cf("target -s annex", "space: annex")
	s.cf("create-app twin -b binary_buildpack", "OK")
	s.cf("target -s dev", "space: dev")
	s.cf("copy-source shop twin -s annex -o local --no-restart", "OK")
	s.refuses("copy-source shop none", "App 'none' not found.")
	s.refuses("copy-source none twin", "App 'none' not found.")
	s.refuses("copy-source shop twin -s nowhere", "Space 'nowhere' not found.")
}

func (s *stock) changesChecks() {
	s.cf("set-health-check shop http --endpoint /health --invocation-timeout 5", "OK", "TIP: An app restart is required for the change to take effect.")
	s.cf("get-health-check shop", `^web +http +/health +5$`)
	s.cf("set-health-check shop process --process task", "OK")
	s.cf("set-health-check shop port", "OK")
	s.cf("get-health-check shop", `^web +port +`)
	s.refuses("set-health-check shop port --process none", "Process none not found")
	s.refuses("get-health-check none", "App 'none' not found.")
	s.cf("get-readiness-health-check shop", `^web +process`)
	s.write("ready.yml", []byte("applications:\n- name: shop\n  readiness-health-check-type: http\n  readiness-health-check-http-endpoint: /ready\n  readiness-health-check-interval: 4\n"))
	s.cf("apply-manifest -f ready.yml", "OK")
	s.cf("get-readiness-health-check shop", `^web +http +/ready +`)
}

// looksOtherwise uses flags that other scripts do not use.
func (s *stock) looksOtherwise() {
	s.write("labels.json", []byte(`{"metadata":{"labels":{"tier":"back"}}}`))
	guid := strings.TrimSpace(s.live(0, "app shop --guid"))
	s.cf("curl -X PATCH /v3/apps/"+guid+" -d @labels.json -H 'Content-Type: application/json'", `"labels":{"tier":"back"}`)
	s.cf("curl -i /v3/apps/"+guid, "^HTTP/1.1 200 OK")
	s.cf("curl /v3/apps/" + guid + " --output answer.json")
	s.cf("apps --no-stats", "^shop +started")
	s.cf("scale shop -l 32K -f", "^.*of 32K")
	s.refuses("scale none -i 2", "App 'none' not found.")
	s.refuses("events none", "App 'none' not found.")
}

// pushesOtherwise pushes without staging or without a start.
func (s *stock) pushesOtherwise() {
	s.cf("push chore --no-manifest -p small -b binary_buildpack --task", "requested state: stopped", `^routes: *$`)
	s.cf("run-task chore -c true --wait", "Task has completed successfully.")
	s.write("ready.tgz", handMade(s.t))
	s.cf("push ready --no-manifest --droplet ready.tgz -u process -m 32M --no-route -c '"+sleepy+"'", oneRunning)
	s.cf("push boxed --no-manifest -o images.example/shop:2 --no-start", "requested state: stopped", "^docker image:")
	s.cf("push shop --no-manifest -p small -s cflinuxfs4 -l 16K -u process --no-route -b binary_buildpack --no-wait", "^#0 +running ", "^.*of 16K")
	s.cf("push twin --no-manifest -p small -c null -b null --no-start", "requested state: stopped")
	s.write("vars.yml", []byte("applications:\n- name: shop\n  path: small\n  memory: ((memory))\n  env: {COLOUR: ((colour))}\n  no-route: true\n  health-check-type: process\n"))
	s.write("values.yml", []byte("memory: 48M\n"))
	s.cf("push -f vars.yml --vars-file values.yml --var colour=blue --redact-env", "^memory usage: +48M$", "!COLOUR: blue")
	s.refuses("push -f vars.yml --var colour=blue", "Expected to find variables: memory")
	s.refuses("push shop --no-manifest -p small -b none", `For application 'shop': Buildpack must be an existing admin buildpack or a valid git URI. "none" cannot be used`)
	s.cf("create-app packed -b go_buildpack", "OK")
	s.refuses("create-app clouded --app-type cnb -b docker://images.example/pack:1", `lifecycle.type must be buildpack or docker, not "cnb"`)
	s.cf("delete shop -f", "OK")
}

// handMade returns a droplet in the format of staging.
func handMade(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range []struct{ name, text string }{
		{"./app/", ""}, {"./app/hello.txt", "hello\n"}, {"./staging_info.yml", `{"detected_buildpack":"","start_command":"sleep 1000"}` + "\n"},
	} {
		h := &tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.text)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Close() error }{w, z} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}
