package plan

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/runtime"
)

func TestSplitMemory(t *testing.T) {
	t.Parallel()
	side := func(name string, mb int) app.Sidecar { return app.Sidecar{Name: name, MemoryMB: mb} }
	for _, c := range []struct {
		name     string
		total    int
		sidecars []app.Sidecar
		want     split
		err      string
	}{
		{"alone", 256, nil, split{256, 256, nil}, ""},
		{"two", 256, []app.Sidecar{side("a", 64), side("b", 32)}, split{256, 160, []int{64, 32}}, ""},
		{"undeclared", 256, []app.Sidecar{side("a", 0), side("b", 32)}, split{256, 224, []int{0, 32}}, ""},
		{"one left", 97, []app.Sidecar{side("a", 64), side("b", 32)}, split{97, 1, []int{64, 32}}, ""},
		{
			"none left", 96,
			[]app.Sidecar{side("config server", 64), side("b", 32), side("c", 0)},
			split{},
			"the memory of the sidecars ('config server' 64M, 'b' 32M) must be less than the memory of the process (96M): increase the memory of the process or decrease that of the sidecars",
		},
	} {
		got, err := splitMemory(c.total, c.sidecars)
		if text := errText(err); text != c.err {
			t.Errorf("%s: error %q, want %q", c.name, text, c.err)
		}
		if diff := cmp.Diff(got, c.want, cmp.AllowUnexported(split{})); diff != "" {
			t.Errorf("%s (-got +want):\n%s", c.name, diff)
		}
	}
}

func testDesired() Desired {
	return Desired{
		space: app.Space{GUID: "space-1", Name: "dev"}, org: app.Org{GUID: "org-1", Name: "local"},
		uris: []string{"shop.dew.localhost"},
		App: app.App{GUID: "app-1", Name: "shop", Space: "space-1", Env: map[string]string{
			"CONFIG_SERVER_PORT": "8082", "PATH": "/opt/bin", "PORT": "1", "VCAP_APPLICATION": "{}",
		}},
		Process: app.Process{GUID: "app-1", App: "app-1", Type: "web", MemoryMB: 256, DiskMB: 512, Version: "version-1", Ports: []int{8081, 9090}},
		sidecars: byName([]app.Sidecar{
			{GUID: "s2", Name: "config server", Command: "./config", MemoryMB: 64},
			{GUID: "s1", Name: "agent", Command: "./agent"},
		}),
		Droplet: droplet.Droplet{GUID: "droplet-1", Image: "sha", Commands: map[string]string{"web": "./web"}},
	}
}

func testIdentity() identity {
	return identity{
		id: "01234567-89ab-cdef-0123-4567", index: 2, address: netip.MustParseAddr("10.201.0.2"),
		publicURL: "http://127.0.0.1:8484", start: time.Unix(1763160000, 0),
	}
}

// The environment is the same as on the platform. An app's own variables cannot replace
// the platform's.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	env, err := instanceEnvironment(testDesired(), testIdentity(), 192)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(env) {
		t.Error("the environment is not sorted")
	}
	golden(t, "environment.txt", strings.Join(env, "\n")+"\n")
}

func TestSpecOfDesiredState(t *testing.T) {
	t.Parallel()
	s, err := testDesired().instanceSpec(runtime.SlotID{Process: "app-1", Index: 2}, "cell-1", testIdentity())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range s.Processes {
		i := slices.IndexFunc(p.Env, func(v string) bool { return strings.HasPrefix(v, "MEMORY_LIMIT=") })
		got = append(got, strings.Join([]string{p.Exec, p.Name, p.Source, p.Command, p.Dir, p.Env[i]}, "|"))
	}
	if diff := cmp.Diff(got, []string{
		"main||APP/PROC/WEB|./web|/home/vcap/app|MEMORY_LIMIT=192m",
		"sidecar-0|agent|APP/PROC/WEB/SIDECAR/AGENT|./agent|/home/vcap/app|MEMORY_LIMIT=256m",
		"sidecar-1|config server|APP/PROC/WEB/SIDECAR/CONFIG SERVER|./config|/home/vcap/app|MEMORY_LIMIT=64m",
	}); diff != "" {
		t.Errorf("processes (-got +want):\n%s", diff)
	}
	leaves := []int64{s.Memory, s.Processes[0].Memory, s.Processes[1].Memory, s.Processes[2].Memory}
	if diff := cmp.Diff(leaves, []int64{256 << 20, 192 << 20, 0, 64 << 20}); diff != "" {
		t.Errorf("limits of container and leaves (-got +want):\n%s", diff)
	}
}

func TestSpecThatCannotBe(t *testing.T) {
	t.Parallel()
	none := testDesired()
	none.Droplet.Commands = nil
	full := testDesired()
	full.Process.MemoryMB = 64
	for name, d := range map[string]Desired{"No start command found": none, "must be less than": full} {
		_, err := d.instanceSpec(runtime.SlotID{}, "", testIdentity())
		if _, ok := errors.AsType[*runtime.StartError](err); !ok || !strings.Contains(err.Error(), name) {
			t.Errorf("spec = %v, want a StartError with %q", err, name)
		}
	}
}

var update = flag.Bool("update", false, "write the golden files again")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, string(want)); diff != "" {
		t.Errorf("%s (-got +want):\n%s", name, diff)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
