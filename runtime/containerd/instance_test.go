//go:build integration

package containerd

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup"
)

// Main and two sidecars share one container, one network namespace, localhost, files
// and a UNIX socket, as three execs. A sidecar attaches only to the process types that
// it lists.
func TestOneTaskForMainAndSidecars(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{
		name: "shared", memory: 256,
		command: "./testapp facts && ./testapp fetch http://127.0.0.1:9001/ && ./testapp fetch unix:/home/vcap/tmp/s && cat /home/vcap/tmp/note && exec ./testapp serve 0.0.0.0:8080",
		types:   map[string]string{"worker": "./testapp facts && exec ./testapp sleep"},
		sidecars: []app.Sidecar{
			sidecar("config server", "./testapp facts && exec ./testapp serve 127.0.0.1:9001", 64),
			sidecar("agent", "echo from the agent >/home/vcap/tmp/note && ./testapp facts && exec ./testapp serve /home/vcap/tmp/s", 32),
		},
	})
	st := w.running(p)
	w.line(p.App, "PROC/WEB", "listening on 0.0.0.0:8080")

	facts := map[string]map[string]any{}
	for _, src := range []string{"PROC/WEB", "WEB/SIDECAR/CONFIG SERVER", "WEB/SIDECAR/AGENT", "PROC/WORKER"} {
		var f map[string]any
		if err := json.Unmarshal(w.line(p.App, src, `"uid"`).Text, &f); err != nil {
			t.Fatal(err)
		}
		facts[src] = f
	}
	for _, src := range []string{"WEB/SIDECAR/CONFIG SERVER", "WEB/SIDECAR/AGENT"} {
		if got, want := facts[src]["net"], facts["PROC/WEB"]["net"]; got != want {
			t.Errorf("network namespace of %s = %v, want main's %v", src, got, want)
		}
	}
	if facts["PROC/WORKER"]["net"] == facts["PROC/WEB"]["net"] {
		t.Error("worker and web share a network namespace, want one for each instance")
	}
	w.line(p.App, "PROC/WEB", "from the agent")
	fetched := 0
	for _, e := range w.lines(p.App) {
		if strings.HasSuffix(e.Source.Type, "PROC/WEB") && string(e.Text) == "fetched 200 hello" {
			fetched++
		}
		if strings.HasPrefix(e.Source.Type, "APP/PROC/WORKER/SIDECAR") {
			t.Errorf("line %s: a sidecar runs on a process type that it does not list", e)
		}
	}
	if fetched != 2 {
		t.Errorf("answers from sidecars = %d, want 2 (localhost and socket)", fetched)
	}
	if got, want := w.execs(st.Instance), []string{"sidecar-0", "sidecar-1"}; !cmp.Equal(got, want) {
		t.Errorf("execs = %v, want %v: PID 1 starts main", got, want)
	}
	if got := len(w.containers()); got != 2 {
		t.Errorf("containers = %d, want 2: one for web, one for worker", got)
	}
}

// Any exit of any process is a crash of the instance. The record names the process and
// the cause and comes right after its last line. A new container follows.
func TestEveryEndIsACrashWithARecord(t *testing.T) {
	tests := []struct {
		name    string
		exec    string
		end     string // command of the process that exits (empty: it is killed from outside)
		sig     syscall.Signal
		status  int
		process string
	}{
		{"sidecar killed", "sidecar-0", "", syscall.SIGKILL, 137, "APP/PROC/WEB/SIDECAR/CONFIG SERVER"},
		{"main killed", "main", "", syscall.SIGKILL, 137, "APP/PROC/WEB"},
		{"sidecar SIGTERM", "sidecar-0", "", syscall.SIGTERM, 143, "APP/PROC/WEB/SIDECAR/CONFIG SERVER"},
		{"main SIGSEGV", "main", "", syscall.SIGSEGV, 139, "APP/PROC/WEB"},
		{"sidecar exits 0", "sidecar-0", "read < go; exit 0", 0, 0, "APP/PROC/WEB/SIDECAR/CONFIG SERVER"},
		{"main exits 0", "main", "read < go; exit 0", 0, 0, "APP/PROC/WEB"},
		{"sidecar exits 3", "sidecar-0", "read < go; exit 3", 0, 3, "APP/PROC/WEB/SIDECAR/CONFIG SERVER"},
	}
	w := newWorld(t)
	w.boot()
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// A FIFO in the shared file system lets the test choose the moment.
			commands := map[string]string{"main": "exec sleep 1000", "sidecar-0": "exec sleep 1000"}
			if tt.end != "" {
				commands[tt.exec] = "mkfifo go; echo waiting; " + tt.end
			}
			p := w.put(testApp{
				name: fmt.Sprintf("e%d", i), memory: 128, command: "echo last of main; " + commands["main"],
				sidecars: []app.Sidecar{sidecar("config server", "echo last of sidecar; "+commands["sidecar-0"], 32)},
			})
			before := w.running(p)
			w.line(p.App, "PROC/WEB", "last of main")
			w.line(p.App, "CONFIG SERVER", "last of sidecar")
			pid := w.mainPID(before.Instance, tt.exec)
			if tt.end != "" {
				w.line(p.App, strings.TrimPrefix(tt.process, "APP/"), "waiting")
				release(t, pid)
			} else if err := syscall.Kill(pid, tt.sig); err != nil {
				t.Fatal(err)
			}
			r := w.record(p, 1)
			want := fmt.Sprintf("%s: Exited with status %d", tt.process, tt.status)
			if r.Description != want {
				t.Errorf("description = %q, want %q", r.Description, want)
			}
			w.checkRecordLine(p, r, tt.process)
			after := w.running(p, before.Instance)
			if after.Instance == before.Instance {
				t.Error("the next instance has the same id")
			}
			if len(r.Followers) != 1 || r.Followers[0].Cause != runtime.CausePeerExited {
				t.Errorf("followers = %+v, want one with cause peer_exited after %+v (order %q)", r.Followers, r.First, r.Order)
			}
			w.stop(p)
		})
	}
}

// release writes into the FIFO that a process of the instance reads from.
func release(t *testing.T, pid int) {
	t.Helper()
	f, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/cwd/go", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
}

// checkRecordLine finds the line of a record and reads its payload. It checks that the
// line comes right after the last line of the process that exited.
func (w *world) checkRecordLine(p app.Process, r runtime.ExitRecord, source string) {
	w.t.Helper()
	prefix := "App instance exited with guid " + p.App + " payload: "
	line := w.line(p.App, "API", prefix)
	payload := strings.TrimPrefix(string(line.Text), prefix)
	want := fmt.Sprintf(`{"instance":%q,"index":0,"cellid":"cell-of-the-test","reason":"CRASHED","exitdescription":%q,"crashcount":1,"crashtimestamp":%d,"version":%q}`,
		r.Instance, r.Description, r.CrashedAt.UnixNano(), r.Version)
	if payload != want {
		w.t.Errorf("payload = %s\n   want = %s", payload, want)
	}
	if line.Source.Type != "API" || line.Source.Index != 0 {
		w.t.Errorf("source of the record = %+v, want API/0", line.Source)
	}
	for _, e := range w.lines(p.App) {
		if e.Seq > line.Seq && e.Source.Type == source && e.Source.InstanceID == string(r.Instance) {
			w.t.Errorf("a line of the ended process stands after its record: %s", e)
		}
	}
}

// The test checks a sidecar's name, the split of the memory, and the limit that each
// process sees.
func TestMemorySplit(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{
		name: "split", memory: 256, command: "echo limit $MEMORY_LIMIT; exec sleep 1000",
		sidecars: []app.Sidecar{
			sidecar("big", "echo limit $MEMORY_LIMIT; exec sleep 1000", 64),
			sidecar("none", "echo limit $MEMORY_LIMIT; exec sleep 1000", 0),
			sidecar("small", "echo limit $MEMORY_LIMIT; exec sleep 1000", 32),
		},
	})
	st := w.running(p)
	for exec, want := range map[string]int64{"main": 160 << 20, "sidecar-0": 64 << 20, "sidecar-1": 0, "sidecar-2": 32 << 20} {
		if got := w.engine.cg.MemoryOf(st.Instance, exec).Limit; got != want {
			t.Errorf("limit of %s = %d, want %d", exec, got, want)
		}
	}
	if got, want := w.engine.cg.MemoryOf(st.Instance, "").Limit, int64(256<<20); got != want {
		t.Errorf("limit of the container = %d, want %d", got, want)
	}
	for src, want := range map[string]string{"PROC/WEB": "limit 160m", "SIDECAR/BIG": "limit 64m", "SIDECAR/NONE": "limit 256m", "SIDECAR/SMALL": "limit 32m"} {
		w.line(p.App, src, want)
	}
}

// A process that exceeds its share is killed, and only that process is reported.
func TestOutOfMemoryNamesItsLeaf(t *testing.T) {
	tests := []struct {
		name, main, sidecar string
		memory              int
		want                string
	}{
		{"sidecar", "exec sleep 1000", "exec ./testapp alloc 100", 32, "APP/PROC/WEB/SIDECAR/GREEDY: Exited with status 137 (out of memory)"},
		{"main", "exec ./testapp alloc 200", "exec sleep 1000", 32, "APP/PROC/WEB: Exited with status 137 (out of memory)"},
		{"only a child of the sidecar", "exec sleep 1000", "./testapp child-alloc 100; exit 3", 48, "APP/PROC/WEB/SIDECAR/GREEDY: Exited with status 137 (out of memory)"},
		{"sidecar without memory", "exec sleep 1000", "exec ./testapp alloc 300", 0, "APP/PROC/WEB/SIDECAR/GREEDY: Exited with status 137 (out of memory)"},
	}
	w := newWorld(t)
	w.boot()
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := w.put(testApp{
				name: fmt.Sprintf("oom%d", i), memory: 128, command: tt.main,
				sidecars: []app.Sidecar{sidecar("greedy", tt.sidecar, tt.memory)},
			})
			r := w.record(p, 1)
			if r.Description != tt.want {
				t.Errorf("description = %q, want %q", r.Description, tt.want)
			}
			if r.First.Cause != runtime.CauseOutOfMemory || !r.First.OOM {
				t.Errorf("first = %+v, want an out-of-memory exit", r.First)
			}
			for _, f := range r.Followers {
				if f.OOM {
					t.Errorf("follower %s is blamed for memory too", f.Exec)
				}
			}
			w.stop(p)
		})
	}
}

// Children are in the leaf of their process from their first page on.
func TestChildrenAreInTheLeaf(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{
		name: "kids", memory: 128, command: "sleep 1000 & sleep 1000 & wait",
		sidecars: []app.Sidecar{sidecar("s", "sleep 1000 & wait", 32)},
	})
	st := w.running(p)
	for exec, want := range map[string]int{"main": 3, "sidecar-0": 2} {
		w.eventually(fmt.Sprintf("%d processes in %s", want, exec), func() error {
			if got := len(w.pids(st.Instance, exec)); got != want {
				return fmt.Errorf("%d", got)
			}
			return nil
		})
	}
	if got, _ := w.engine.cg.Procs(st.Instance, cgroup.InitLeaf); len(got) != 1 {
		t.Errorf("processes in the init leaf = %v, want PID 1 alone", got)
	}
}

// Sidecars that leave no memory for main are refused before anything is created.
func TestSidecarsThatTakeAllAreRefused(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{name: "full", memory: 64, command: "sleep 1000"})
	_, err := w.reg.PutSidecar(app.Sidecar{GUID: "s", App: p.App, Name: "s", Command: "sleep 1", ProcessTypes: []string{"web"}, MemoryMB: 64})
	if err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("error = %v, want one that names memory", err)
	}
}
