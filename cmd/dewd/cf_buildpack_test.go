//go:build integration

package main

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// stockClient is the unmodified cf client, logged in at a dewd of its own. What
// they say to each other is not recorded.
type stockClient struct {
	*stock
}

// run runs cf and wants a status, and every pattern in what it writes.
func (s stockClient) run(code int, patterns []string, args ...string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.bin, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "CF_HOME="+s.home, "CF_COLOR=false", "LANG=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		s.t.Errorf("cf %s: status %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	for _, p := range patterns {
		if !regexp.MustCompile(p).Match(out) {
			s.t.Errorf("cf %s does not write %s:\n%s", strings.Join(args, " "), p, out)
		}
	}
}

// pack writes the zip of a buildpack.
func (s stockClient) pack(name string, scripts map[string]string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	f, err := os.Create(path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	for name, text := range scripts {
		h := &zip.FileHeader{Name: "bin/" + name}
		h.SetMode(0o755)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write([]byte("#!/bin/sh\n" + text + "\n"))
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// The stock client uploads a buildpack, stages with it, changes, disables and
// deletes it; a Java app is refused while its sidecar has no memory.
func TestCFBuildpacks(t *testing.T) {
	s := stockClient{newStock(t)}
	s.run(0, nil, "api", s.url)
	s.run(0, nil, "login", "-u", "admin", "-p", s.adminPassword(), "-o", "local", "-s", "dev")
	scripts := map[string]string{
		"detect": `[ -f "$1/mine.txt" ] && echo mine`, "compile": `n=$(cat "$2/n" 2>/dev/null || echo 0); echo $((n + 1)) >"$2/n"; echo "compiling for time $n"`, "release": "echo 'default_process_types: {web: sleep 1000}'",
	}
	s.run(0, []string{"OK"}, "create-buildpack", "mine", s.pack("mine.zip", scripts), "1")
	s.run(0, []string{`(?m)^1 +mine .*mine\.zip`}, "buildpacks")
	s.write("app/mine.txt", []byte("x"))
	push := []string{"push", "built", "--no-manifest", "-p", "app", "-u", "process", "-m", "32M", "--no-route"}
	s.run(0, []string{`(?m)^buildpacks: *$|mine`, `#0 +running`}, push...)
	s.run(0, nil, "restage", "built")
	// The client does not wait for the last lines while it pushes; the cache is kept.
	s.run(0, []string{`STG/0.* OUT compiling for time 0`, `STG/0.* OUT compiling for time 1`}, "logs", "built", "--recent")
	for phase, want := range map[string]string{"detect": "NoAppDetectedError", "compile": "BuildpackCompileFailed", "release": "BuildpackReleaseFailed"} {
		bad := map[string]string{"detect": scripts["detect"], "compile": scripts["compile"], "release": scripts["release"]}
		bad[phase] = "exit 9"
		s.run(0, []string{"OK"}, "update-buildpack", "mine", "-p", s.pack("bad.zip", bad))
		s.run(1, []string{want}, push...)
	}
	s.run(0, []string{"OK"}, "update-buildpack", "mine", "--disable")
	s.run(1, []string{"NoAppDetectedError"}, push...)
	s.run(0, []string{"OK"}, "delete-buildpack", "mine", "-f")
	s.run(0, []string{"java_buildpack"}, "buildpacks")

	// What was uploaded over a buildpack that came with dew goes, and it is back.
	s.run(0, []string{"OK"}, "update-buildpack", "go_buildpack", "--unlock")
	s.run(0, []string{"OK"}, "update-buildpack", "go_buildpack", "-p", s.pack("go.zip", scripts))
	s.run(0, []string{`(?m)go_buildpack .*go\.zip`}, "buildpacks")
	s.run(0, []string{"OK"}, "delete-buildpack", "go_buildpack", "-f")
	s.run(0, []string{`(?m)go_buildpack +true +true +READY`}, "buildpacks")
	s.run(1, []string{"came with dew and cannot be deleted"}, "delete-buildpack", "go_buildpack", "-f")

	s.write("java/META-INF/MANIFEST.MF", []byte("Manifest-Version: 1.0\r\nMain-Class: App\r\n"))
	s.write("java.yml", []byte(`applications:
- name: java
  path: java
  no-route: true
  health-check-type: process
  sidecars:
  - {name: debug, process_types: [web], command: sleep 1000}
`))
	s.run(1, []string{`sidecar 'debug' of process 'web' has no memory value: set applications\[\]\.sidecars\[\]\.memory`}, "push", "-f", "java.yml")
	s.run(0, []string{"OK"}, "delete", "-f", "built")
	s.run(0, []string{"OK"}, "delete", "-f", "java")
}
