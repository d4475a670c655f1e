package smoke

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The smoke.yml that init writes is valid. It sends a request to every app and kills
// every sidecar.
func TestInit(t *testing.T) {
	dir := write(t, map[string]string{"manifest.yml": `
applications:
- name: shop
  services: [db]
  sidecars:
  - {name: config server, process_types: [web, worker], command: ./c}
- name: worker
  no-route: true
`})
	file, err := Init(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(file, text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var names []string
	for _, k := range s.Checks {
		names = append(names, k.Name)
	}
	want := "shop answers|shop restarts when the sidecar config server of web exits|shop restarts when the sidecar config server of worker exits"
	if got := strings.Join(names, "|"); got != want {
		t.Errorf("checks = %s, want %s\n%s", got, want, text)
	}
	if k := s.Checks[2]; k.App != "shop" || k.Kill.Process != "worker" || k.Kill.Sidecar != "config server" || k.Exit.Description != "APP/PROC/WORKER/SIDECAR/CONFIG SERVER: Exited with status 137" {
		t.Errorf("kill = %+v %+v", k.Kill, k.Exit)
	}
	if len(s.Services) != 1 || s.Services[0].Name != "db" {
		t.Errorf("services = %+v", s.Services)
	}
	f := (*Failure)(nil)
	if _, err := Init(dir, false); !errors.As(err, &f) || f.Status != StatusUsage || !strings.Contains(f.Todo, "--force") {
		t.Errorf("a second time: %v", err)
	}
	if _, err := Init(dir, true); err != nil {
		t.Errorf("by force: %v", err)
	}
}

func TestInitOtherManifests(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  string // in the file, or in the error
		bad   bool
	}{
		"yaml":    {map[string]string{"manifest.yaml": "applications: [{name: shop}]"}, "manifests: [manifest.yaml]", false},
		"nothing": {map[string]string{"x": ""}, "cannot read the manifest", true},
		"broken":  {map[string]string{"manifest.yml": "applications: 1"}, "must be a list", true},
		"a clock": {map[string]string{"manifest.yml": "applications: [{name: clock, no-route: true}]"}, "run: dew app", false},
	} {
		dir := write(t, tt.files)
		_, err := Init(dir, false)
		if tt.bad {
			expect(t, err, tt.want)
			continue
		}
		text, rerr := os.ReadFile(filepath.Join(dir, File))
		if _, perr := Parse(File, text); err != nil || rerr != nil || perr != nil || !strings.Contains(string(text), tt.want) {
			t.Errorf("%s: %v, %v, %v\n%s", name, err, rerr, perr, text)
		}
	}
}
