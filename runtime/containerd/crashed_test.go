//go:build integration

package containerd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// leaver writes a file with its instance id.
const leaver = "echo $CF_INSTANCE_GUID > left; mkdir -p ../tmp && echo secret > ../tmp/core; chmod 600 ../tmp/core; exec ./testapp sleep"

// crash kills main after it has written its file, and waits for the next instance.
func (w *world) crash(t *testing.T, p app.Process, not ...runtime.InstanceID) runtime.InstanceID {
	w.t.Helper()
	st := w.running(p, not...)
	w.eventually("the program runs", func() error { return w.isCommand(st.Instance, "testapp") })
	kill(t, w.mainPID(st.Instance, "main"))
	w.running(p, append(not, st.Instance)...)
	return st.Instance
}

// among runs a command in a copy of the files of a crashed instance.
func (w *world) among(id runtime.InstanceID, sidecar, command string) (string, runtime.SessionEnd) {
	w.t.Helper()
	ses, err := w.sup.ExecCrashed(w.t.Context(), id, sidecar, runtime.ExecSpec{Kind: runtime.ExecCommand, Command: command + " 2>&1"})
	if err != nil {
		w.t.Fatalf("ExecCrashed: %v", err)
	}
	defer func() { _ = ses.Close() }()
	out, err := io.ReadAll(ses.Streams().Out)
	if err != nil {
		w.t.Fatal(err)
	}
	end, err := ses.Wait(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return string(out), end
}

// crashedCount counts the stored snapshots in containerd and the record files.
func (w *world) crashedCount() (snaps, files int) {
	w.t.Helper()
	err := w.engine.images.Snapshotter().Walk(context.Background(), func(_ context.Context, info snapshots.Info) error {
		if strings.HasPrefix(info.Name, crashedPrefix) {
			snaps++
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(w.root, "crashed"))
	if err != nil {
		w.t.Fatal(err)
	}
	return snaps, len(entries)
}

func (w *world) wantRemnants(want int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d are kept", want), func() error {
		if snaps, files := w.crashedCount(); snaps != want || files != want {
			return fmt.Errorf("%d snapshots and %d files are kept", snaps, files)
		}
		return nil
	})
}

// A session in a crashed instance has its files and its environment, and none of its
// processes. Changes in the session are private to it.
func TestCrashedInstanceCanBeEntered(t *testing.T) {
	w := newWorld(t)
	w.policy = crashLoop
	w.boot()
	p := w.put(testApp{name: "crashed", memory: 128, command: leaver, sidecars: []app.Sidecar{sidecar("agent", idle, 32)}})
	id := w.crash(t, p)
	kept := w.sup.Crashed(p.GUID)
	if len(kept) != 1 || kept[0].Instance != id || kept[0].App != p.App || kept[0].Type != "web" || kept[0].Size == 0 || kept[0].CrashedAt.IsZero() {
		t.Fatalf("kept: %+v, want %s", kept, id)
	}
	for range 2 { // the second session finds everything unchanged
		out, end := w.among(id, "", "cat left; echo $CF_INSTANCE_GUID; pwd; cat ../tmp/core; id -u; rm left ../tmp/core; touch new; ls new left; exit 7")
		want := fmt.Sprintf("%s\n%s\n/home/vcap/app\nsecret\n2000\nnew\n", id, id)
		if rest, ok := strings.CutPrefix(out, want); !ok || strings.Count(rest, "\n") > 1 || end.Code != 7 {
			t.Errorf("printed %q and ended with %+v, want %q", out, end, want)
		}
	}
	if out, _ := w.among(id, "agent", "echo $MEMORY_LIMIT"); out != "32m\n" {
		t.Errorf("beside the sidecar MEMORY_LIMIT is %q, want 32m", out)
	}
	if out, _ := w.among(id, "", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); strings.Contains(out, "testapp") || strings.Contains(out, "sleep") {
		t.Errorf("processes of the instance run: %q", out)
	}
	if out, _ := w.among(id, "", "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '"); out != "lo\n" {
		t.Errorf("devices of the network: %q, want lo alone", out)
	}
	info, err := os.Stat(filepath.Join(w.root, "crashed", string(id)+".json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the environment: %v, %v; want 0600", info.Mode(), err)
	}
	w.running(p, id)
	if got := len(w.containers()); got != 1 {
		t.Errorf("%d containers, want the instance alone", got)
	}
}

// Only the newest three are stored. They survive a restart of the daemon, and are
// removed with the app.
func TestCrashedInstancesAreBounded(t *testing.T) {
	w := newWorld(t)
	w.policy = crashLoop
	w.boot()
	p := w.put(testApp{name: "bounded", memory: 128, command: leaver})
	w.running(p)
	before := w.census(t) // with one instance, and nothing stored
	var ids []runtime.InstanceID
	for range runtime.KeptPerApp + 1 {
		ids = append(ids, w.crash(t, p, ids...))
	}
	w.wantRemnants(runtime.KeptPerApp)
	var got []runtime.InstanceID
	for _, files := range w.sup.Crashed(p.GUID) {
		got = append(got, files.Instance)
	}
	if diff := cmp.Diff(got, []runtime.InstanceID{ids[3], ids[2], ids[1]}); diff != "" {
		t.Errorf("kept (-got +want):\n%s", diff)
	}
	// The daemon exits while a session is open.
	_, err := w.sup.ExecCrashed(t.Context(), ids[1], "", runtime.ExecSpec{Kind: runtime.ExecCommand, Command: "sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	w.leave()
	w.boot()
	w.running(p, ids...)
	w.wantRemnants(runtime.KeptPerApp)
	w.eventually("the copy is gone", func() error {
		if cs := w.containers(); len(cs) != 1 {
			return fmt.Errorf("containers: %v", cs)
		}
		return nil
	})
	ses, err := w.sup.ExecCrashed(t.Context(), ids[1], "", runtime.ExecSpec{Kind: runtime.ExecCommand, Command: "cat left; sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len(ids[1])+1)
	if _, err := io.ReadFull(ses.Streams().Out, line); err != nil || string(line) != string(ids[1])+"\n" {
		t.Errorf("after the daemon came back: %q, %v", line, err)
	}
	// A session is open while newer crashes displace its instance: it stays until the
	// session is closed.
	w.crash(t, p, ids...)
	w.engine.crashed.trim(t.Context())
	w.wantRemnants(runtime.KeptPerApp + 1)
	if err := ses.Close(); err != nil {
		t.Fatal(err)
	}
	w.wantRemnants(runtime.KeptPerApp)

	if err := w.reg.DeleteApp(p.App); err != nil {
		t.Fatal(err)
	}
	w.wantRemnants(0)
	w.eventually("nothing is left", func() error {
		after := w.census(t)
		for _, what := range []string{"containers", "snapshots", "netns", "veths", "cgroups", "captures", "folders", "shims", "kept"} {
			if after[what] > before[what] || after[what] == before[what] && what == "snapshots" {
				return fmt.Errorf("%s: %d, and %d with one instance", what, after[what], before[what])
			}
		}
		return nil
	})
}
