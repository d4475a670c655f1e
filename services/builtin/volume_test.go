package builtin

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/testkit"
)

// fakeVolumes has volumes in memory. They do not become larger than max.
type fakeVolumes struct {
	mu   sync.Mutex
	max  int64
	have map[string]runtime.Volume
}

var clusterAddress = netip.MustParseAddr("10.96.0.7")

func (v *fakeVolumes) Put(_ context.Context, want runtime.Volume) (netip.Addr, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if want.Bytes > v.max {
		return netip.Addr{}, errTest
	}
	v.have[want.Server] = want
	return clusterAddress, nil
}

func (v *fakeVolumes) Remove(_ context.Context, server string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.have, server)
	return nil
}

func (v *fakeVolumes) all() map[string]runtime.Volume {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.have)
}

// In a cluster a database has a volume and an address of the cluster.
func TestVolumes(t *testing.T) {
	v := &fakeVolumes{max: 512 << 20, have: map[string]runtime.Volume{}}
	inBubble(t, func(c *Config) { c.Volumes = v }, func(t *testing.T, b *Broker, h *fakeHost) {
		if p := ask(t, b, req(services.Create, "redis", smallPlan, "")); p.State != services.Succeeded {
			t.Fatalf("create = %+v", p)
		}
		want := runtime.Volume{Server: guid, Bytes: 512 << 20, Port: redisPort}
		if got := v.all()[guid]; got != want {
			t.Errorf("volume = %+v, want %+v", got, want)
		}
		h.mu.Lock()
		mounts := h.servers[guid].Mounts
		h.mu.Unlock()
		if len(mounts) != 2 || mounts[0].Type != stack.MountVolume || mounts[0].Source != guid || mounts[1].Type != "bind" {
			t.Errorf("mounts = %+v", mounts)
		}
		if _, err := b.Binding(t.Context(), services.BindingRequest{Action: services.Create, Binding: "b", Instance: guid}); err != nil {
			t.Fatal(err)
		}
		bound, err := b.FetchBinding(t.Context(), services.BindingRequest{Binding: "b", Instance: guid})
		var c credentials
		if err == nil {
			err = json.Unmarshal(bound.Credentials, &c)
		}
		if err != nil || c.Host != clusterAddress.String() || !strings.Contains(c.URI, c.Host) {
			t.Errorf("credentials = %+v, %v", c, err)
		}
		// A volume that cannot become larger keeps the plan, and the server runs on.
		puts := len(h.puts)
		p := ask(t, b, req(services.Update, "redis", largePlan, ""))
		if p.State != services.Failed || !strings.Contains(p.Description, "keeps the old plan: no luck") || len(h.puts) != puts {
			t.Errorf("update = %+v with %d servers, want a failure", p, len(h.puts)-puts)
		}
		v.mu.Lock()
		v.max = 1 << 40
		v.mu.Unlock()
		for _, plan := range []string{largePlan, smallPlan} { // a volume never becomes smaller
			if p := ask(t, b, req(services.Update, "redis", plan, "")); p.State != services.Succeeded {
				t.Errorf("update = %+v", p)
			}
			if got := v.all()[guid].Bytes; got != 2<<30 {
				t.Errorf("plan %s has a volume of %d MB", plan, got>>20)
			}
		}
		if p := ask(t, b, req(services.Delete, "", "", "")); p.State != services.Succeeded {
			t.Errorf("delete = %+v", p)
		}
		if left := v.all(); len(left) != 0 {
			t.Errorf("left = %v", left)
		}
		nothingLeft(t, b, h)
	})
}

// The error of a server in a cluster has the last line that it printed.
func TestLastError(t *testing.T) {
	v := &fakeVolumes{max: 1 << 40, have: map[string]runtime.Volume{}}
	last := func(instance, source string) string { return source + " of " + instance + " is not installed" }
	inBubble(t, func(c *Config) { c.Volumes, c.LastError = v, last }, func(t *testing.T, b *Broker, h *fakeHost) {
		h.broken = func(runtime.Server) string { return "Exited with status 1" }
		p := ask(t, b, req(services.Create, "redis", smallPlan, ""))
		if want := "Exited with status 1: SERVICE/REDIS of " + guid + " is not installed"; p.State != services.Failed || p.Description != want {
			t.Errorf("create = %+v, want %q", p, want)
		}
		if left := v.all(); len(left) != 0 {
			t.Errorf("left = %v", left)
		}
	})
}

// A server in a cluster replaces its data before it starts, once for each version, and
// finishes after an interruption.
func TestReplaceData(t *testing.T) {
	for name, tt := range map[string]struct {
		folders map[string]string // with the content of their file
		done    string
		replace string
		want    map[string]string
	}{
		"nothing to do":      {map[string]string{"data": "now"}, "", "", map[string]string{"data": "now"}},
		"restore":            {map[string]string{"data": "now", "snapshots/1": "then"}, "", "v2 1", map[string]string{"data": "then", "before": "now", "snapshots/1": "then"}},
		"restored already":   {map[string]string{"data": "later", "before": "now", "snapshots/1": "then"}, "v2", "v2 1", map[string]string{"data": "later", "before": "now", "snapshots/1": "then"}},
		"lost data":          {map[string]string{"snapshots/1": "then"}, "", "v2 1", map[string]string{"data": "then", "snapshots/1": "then"}},
		"interrupted copy":   {map[string]string{"data": "now", "restored": "par", "snapshots/1": "then"}, "", "v2 1", map[string]string{"data": "then", "before": "now", "snapshots/1": "then"}},
		"interrupted rename": {map[string]string{"before": "now", "restored": "then", "snapshots/1": "then"}, "", "v2 1", map[string]string{"data": "then", "before": "now", "snapshots/1": "then"}},
		"not recorded":       {map[string]string{"data": "then", "before": "now", "snapshots/1": "then"}, "", "v2 1", map[string]string{"data": "then", "before": "now", "snapshots/1": "then"}},
		"undo":               {map[string]string{"data": "then", "before": "now"}, "v2", "v3 before", map[string]string{"data": "now"}},
		"undo before rename": {map[string]string{"data": "now", "restored": "par"}, "", "v3 before", map[string]string{"data": "now"}},
		"interrupted undo":   {map[string]string{"trash": "then", "before": "now"}, "v2", "v3 before", map[string]string{"data": "now"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script := strings.NewReplacer("/data/", dir+"/data/", "/conf/", dir+"/conf/").Replace(commonScript)
			for folder, text := range tt.folders {
				path := filepath.Join(dir, "data", folder)
				if err := os.MkdirAll(path, 0o700); err != nil {
					t.Fatal(err)
				}
				testkit.WriteFile(t, filepath.Join(path, "file"), text)
			}
			if err := os.MkdirAll(filepath.Join(dir, "conf"), 0o700); err != nil {
				t.Fatal(err)
			}
			if tt.replace != "" {
				tt.replace += "\n"
			}
			testkit.WriteFile(t, filepath.Join(dir, "conf", replaceFile), tt.replace)
			testkit.WriteFile(t, filepath.Join(dir, "data", "replaced"), tt.done)
			for range 2 { // the second start changes nothing
				if out, err := exec.CommandContext(t.Context(), "sh", "-c", script+"\nreplace\n").CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				for _, folder := range []string{"data", "before", "restored", "trash", "snapshots/1"} {
					b, err := os.ReadFile(filepath.Join(dir, "data", folder, "file"))
					if err != nil && !os.IsNotExist(err) || string(b) != tt.want[folder] {
						t.Errorf("%s has %q, %v, want %q", folder, b, err, tt.want[folder])
					}
				}
			}
		})
	}
}
