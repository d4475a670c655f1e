//go:build integration

package containerd

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/app"
)

// Instances run as their user without any privileges, and cannot see the host or each
// other.
func TestInstancesAreConfined(t *testing.T) {
	w := newWorld(t)
	w.boot()
	other := w.put(testApp{name: "other", memory: 64, command: "exec ./testapp serve 0.0.0.0:8080"})
	w.running(other)
	p := w.put(testApp{
		name: "caged", memory: 128, command: "./testapp facts && exec sleep 1000",
		sidecars: []app.Sidecar{sidecar("s", "./testapp facts && exec sleep 1000", 32)},
	})
	w.running(p)
	for _, src := range []string{"PROC/WEB", "SIDECAR/S"} {
		var f struct {
			UID                                         int
			Caps, Bounding, NoNewPrivs, Seccomp, Cgroup string
			PIDs                                        []string
			UsrWritable                                 bool `json:"usr_writable"`
			AppWritable                                 bool `json:"app_writable"`
			KcoreReadable                               bool `json:"kcore_readable"`
			SysctlWritable                              bool `json:"sysctl_writable"`
			ShadowReadable                              bool `json:"shadow_readable"`
		}
		if err := json.Unmarshal(w.line(p.App, src, `"uid"`).Text, &f); err != nil {
			t.Fatal(err)
		}
		none := "0000000000000000"
		if f.UID != 2000 || f.Caps != none || f.Bounding != none || f.NoNewPrivs != "1" || f.Seccomp != "2" {
			t.Errorf("%s: uid %d, caps %s, bounding %s, no_new_privs %s, seccomp %s; want 2000, none, none, 1, 2",
				src, f.UID, f.Caps, f.Bounding, f.NoNewPrivs, f.Seccomp)
		}
		if f.UsrWritable || f.KcoreReadable || f.SysctlWritable || f.ShadowReadable {
			t.Errorf("%s: can write /usr %v, read kcore %v, write sysctl %v, read shadow %v; want none of it",
				src, f.UsrWritable, f.KcoreReadable, f.SysctlWritable, f.ShadowReadable)
		}
		if !f.AppWritable {
			t.Errorf("%s: cannot write its own folder", src)
		}
		if len(f.PIDs) > 8 || !slices.Contains(f.PIDs, "1") {
			t.Errorf("%s: sees processes %v, want only those of its own instance", src, f.PIDs)
		}
	}
}

// The host's ports are closed to instances, except the allowed ones. Other instances
// and the own loopback are reachable.
func TestHostIsClosedToInstances(t *testing.T) {
	w := newWorld(t)
	w.boot()
	gateway := w.engine.net.Gateway().String()
	listen := func(port int) string {
		l, err := net.Listen("tcp4", fmt.Sprintf("%s:%d", gateway, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l.Addr().String()
	}
	closed, door := listen(0), listen(8484)
	all, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { all.Close() })
	wide := fmt.Sprintf("%s:%d", gateway, all.Addr().(*net.TCPAddr).Port)
	peer := w.put(testApp{name: "peer", memory: 64, command: "exec ./testapp serve 0.0.0.0:8080", check: app.HealthCheck{Type: "port"}})
	reach := w.running(peer).Address.String() + ":8080"
	p := w.put(testApp{name: "caller", memory: 64, command: fmt.Sprintf(
		"for a in %s %s; do ./testapp dial tcp $a 2; done; for a in %s %s; do ./testapp dial tcp $a 60; done; ls -la /run /run/containerd 2>&1; echo done; exec sleep 1000", closed, wide, door, reach)})
	w.line(p.App, "PROC/WEB", "done")
	got := map[string]bool{}
	for _, e := range w.lines(p.App) {
		if rest, ok := strings.CutPrefix(string(e.Text), "dial "); ok {
			addr, how, _ := strings.Cut(rest, ": ")
			got[addr] = how == "connected"
		}
		if strings.Contains(string(e.Text), ".sock") {
			t.Errorf("a socket of the host is visible: %s", e.Text)
		}
	}
	for addr, want := range map[string]bool{closed: false, wide: false, door: true, reach: true} {
		if got[addr] != want {
			t.Errorf("%s reachable = %v, want %v", addr, got[addr], want)
		}
	}
}
