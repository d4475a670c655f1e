//go:build integration

package main

import (
	"archive/zip"
	"os"
	"path/filepath"
	"testing"
)

// pack writes the zip of a buildpack.
func (s *stock) pack(name string, scripts map[string]string) string {
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

// The cf CLI uploads a buildpack, stages with it, and changes, disables and deletes it.
// A Java app is refused while its sidecar has no memory value.
func TestCFBuildpacks(t *testing.T) {
	s := newStockClient(t, "")
	scripts := map[string]string{
		"detect": `[ -f "$1/mine.txt" ] && echo mine`, "compile": `n=$(cat "$2/n" 2>/dev/null || echo 0); echo $((n + 1)) >"$2/n"; echo "compiling for time $n"`, "release": "echo 'default_process_types: {web: sleep 1000}'",
	}
	s.cf("create-buildpack mine "+s.pack("mine.zip", scripts)+" 1", "OK")
	s.cf("buildpacks", `^1 +mine .*mine\.zip`)
	s.write("app/mine.txt", []byte("x"))
	const push = "push built --no-manifest -p app -u process -m 32M --no-route"
	s.cf(push, "^buildpacks: *$|mine", "#0 running")
	s.cf("restage built")
	// The client does not wait for the last lines of a push; the cache is kept.
	s.cf("logs built --recent", "^.*STG/0.* OUT compiling for time 0", "^.*STG/0.* OUT compiling for time 1")
	for phase, want := range map[string]string{"detect": "NoAppDetectedError", "compile": "BuildpackCompileFailed", "release": "BuildpackReleaseFailed"} {
		bad := map[string]string{"detect": scripts["detect"], "compile": scripts["compile"], "release": scripts["release"]}
		bad[phase] = "exit 9"
		s.cf("update-buildpack mine -p "+s.pack("bad.zip", bad), "OK")
		s.refuses(push, want)
	}
	s.cf("update-buildpack mine --disable", "OK")
	s.refuses(push, "NoAppDetectedError")
	s.cf("delete-buildpack mine -f", "OK")
	s.cf("buildpacks", "java_buildpack")

	// Deleting the uploaded version of a built-in buildpack restores the original.
	s.cf("update-buildpack go_buildpack --unlock", "OK")
	s.cf("update-buildpack go_buildpack -p "+s.pack("go.zip", scripts), "OK")
	s.cf("buildpacks", `^.*go_buildpack .*go\.zip`)
	s.cf("delete-buildpack go_buildpack -f", "OK")
	s.cf("buildpacks", "^.*go_buildpack +true +true +READY")
	s.refuses("delete-buildpack go_buildpack -f", "built in and cannot be deleted")

	s.write("java/META-INF/MANIFEST.MF", []byte("Manifest-Version: 1.0\r\nMain-Class: App\r\n"))
	s.write("java.yml", []byte(`applications:
- name: java
  path: java
  no-route: true
  health-check-type: process
  sidecars:
  - {name: debug, process_types: [web], command: sleep 1000}
`))
	s.refuses("push -f java.yml", "sidecar 'debug' of process 'web' has no memory value: set applications[].sidecars[].memory")
	s.cf("delete -f built", "OK")
	s.cf("delete -f java", "OK")
}
