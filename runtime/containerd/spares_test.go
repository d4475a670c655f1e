//go:build integration

package containerd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/network"
)

// A spare has its network and its cgroups whatever other programs remove, and runs right
// after the crash.
func TestSpare(t *testing.T) {
	w := newWorld(t)
	w.spares = 1
	w.boot()
	p := w.put(testApp{
		name: "spare", memory: 96, command: "echo $VCAP_APPLICATION; " + idle,
		sidecars: []app.Sidecar{sidecar("agent", idle, 32)},
	})
	first := w.running(p)
	spare := w.spare()
	id := spare.spec.Instance
	if _, err := os.Stat(filepath.Join(spare.dir, startedFile)); err == nil {
		t.Error("the spare counts as started")
	}

	veth, err := netlink.LinkByName(network.VethName(id))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(netlink.LinkSetNoMaster(veth), unix.Unmount(w.engine.net.Path(id), 0), restoreNetwork(w.engine)); err != nil {
		t.Fatal(err)
	}
	if veth, err = netlink.LinkByName(network.VethName(id)); err != nil || veth.Attrs().MasterIndex == 0 {
		t.Errorf("the veth of the spare is not connected again: %v", err)
	}

	// The start time of an instance is that of its processes, not of its container.
	time.Sleep(time.Until(first.Since.Add(3 * time.Second)))
	killed := time.Now()
	kill(t, w.commandPID(first.Instance, "sidecar-0"))
	second := w.running(p, first.Instance)
	if second.Instance != id {
		t.Errorf("instance %s runs, want the spare %s", second.Instance, id)
	}
	if r := w.record(p, 1); r.Instance != first.Instance || r.First.Exec != "sidecar-0" {
		t.Errorf("record = %+v, want one of the sidecar of %s", r, first.Instance)
	}
	want := `"start":"` + killed.UTC().Format(runtime.StartFormat)
	w.eventually("the app printed its environment", func() error {
		for _, e := range w.lines(p.App) {
			if text := string(e.Text); strings.Contains(text, string(id)) && strings.Contains(text, `"start":"`) {
				if at := text[strings.Index(text, `"start":"`):]; at[:len(want)] < want {
					t.Errorf("the instance says that it started at %.40s, want %s or later", at, want)
				}
				return nil
			}
		}
		return errors.New("it has not")
	})

	w.spare() // the next one
	w.stop(p)
	w.settled(t, "containers", "netns", "veths", "captures", "folders", "shims")
}

// A spare whose processes were killed is not used. The app starts as without a spare.
func TestKilledSpare(t *testing.T) {
	w := newWorld(t)
	w.spares = 1
	w.boot()
	p := w.put(testApp{name: "killed", memory: 96, command: idle, sidecars: []app.Sidecar{sidecar("agent", idle, 32)}})
	first := w.running(p)
	spare := w.spare()
	for _, proc := range spare.procs {
		kill(t, proc.pid)
	}
	kill(t, w.commandPID(first.Instance, "sidecar-0"))
	if second := w.running(p, first.Instance); second.Instance == spare.spec.Instance {
		t.Error("the killed spare runs")
	}
	if rs := w.records(p, 1); len(rs) != 1 || rs[0].Instance != first.Instance {
		t.Errorf("records = %+v, want one of %s", rs, first.Instance)
	}
	w.stop(p)
	w.settled(t, "containers", "netns", "veths", "captures", "folders", "shims")
}

// A spare does not outlive its daemon, even if that was killed.
func TestSpareOfAnEarlierDaemon(t *testing.T) {
	w := newWorld(t)
	w.spares = 1
	w.boot()
	p := w.put(testApp{name: "before", memory: 96, command: idle})
	first := w.running(p)
	spare := w.spare().spec.Instance
	w.leave()
	w.boot()
	if st := w.running(p); st.Instance != first.Instance {
		t.Errorf("instance %s runs, want %s", st.Instance, first.Instance)
	}
	if next := w.spare().spec.Instance; next == spare {
		t.Error("the spare of the earlier daemon is still there")
	}
	w.stop(p)
	w.settled(t, "containers", "netns", "veths", "captures", "folders", "shims")
}
