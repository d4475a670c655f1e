//go:build integration

package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
)

// An instance that cannot be taken over keeps running, and no second one starts. The
// others are taken over at once, and this one as soon as that works.
func TestUnadoptedInstanceRunsOn(t *testing.T) {
	w := newWorld(t)
	w.boot()
	ps := []app.Process{w.put(testApp{name: "one", memory: 64, command: idle}), w.put(testApp{name: "two", memory: 64, command: idle})}
	var ids []runtime.InstanceID
	var pids []int
	for _, p := range ps {
		ids = append(ids, w.running(p).Instance)
		pids = append(pids, w.commandPID(w.running(p).Instance, "main"))
	}
	w.leave()
	w.open()
	started := filepath.Join(w.engine.instanceDir(ids[1]), startedFile)
	spoilt := errors.Join(os.Rename(started, started+".old"), os.Mkdir(started, 0o700)) // a time cannot be read from a folder
	if spoilt != nil {
		t.Fatal(spoilt)
	}
	w.boot()
	w.running(ps[0])
	if err := w.sup.Unadopted(); err == nil || !strings.Contains(err.Error(), string(ids[1])) {
		t.Errorf("Unadopted = %v, want it to name %s", err, ids[1])
	}
	if got := w.sup.Instances(ps[1].GUID); len(got) > 0 {
		t.Errorf("instances = %+v, want none beside the one that is set aside", got)
	}
	if got := w.commandPID(ids[1], "main"); got != pids[1] {
		t.Errorf("main process of the one set aside = %d, want %d as before", got, pids[1])
	}
	if err := errors.Join(os.Remove(started), os.Rename(started+".old", started)); err != nil {
		t.Fatal(err)
	}
	for i, p := range ps {
		if got := w.commandPID(w.running(p).Instance, "main"); got != pids[i] {
			t.Errorf("main process of %s = %d, want %d as before", p.GUID, got, pids[i])
		}
	}
	if err := w.sup.Unadopted(); err != nil {
		t.Errorf("Unadopted = %v, want nothing", err)
	}
}

// dewd kills a process whose output is not captured. If dewd is killed before the exit, or
// even before the kill, the next one names the same cause.
func TestLostOutputOverDaemons(t *testing.T) {
	for _, c := range []struct {
		name   string
		killed bool // the process, by the first daemon
	}{{"after the kill", true}, {"before the kill", false}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.policy = crashLoop
			w.boot()
			p := w.put(testApp{name: "lost", memory: 64, command: idle})
			st := w.running(p)
			if err := w.engine.known.get(st.Instance).procs[0].saveCaptureFailed(); err != nil {
				t.Fatal(err)
			}
			pid := w.commandPID(st.Instance, "main")
			w.leave()
			if c.killed {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			w.boot()
			if r := w.record(p, 1); r.First.Cause != runtime.CauseCaptureFailed || r.Instance != st.Instance {
				t.Errorf("record = %s of %s (%s), want capture_failed of %s", r.Description, r.Instance, r.First.Cause, st.Instance)
			}
		})
	}
}

// A process that merges or closes its streams does not count as a broken capture.
func TestOddStreamsAreNoBrokenCapture(t *testing.T) {
	w := newWorld(t)
	w.boot()
	var ps []app.Process
	for i, redirect := range []string{"2>&1", ">&2", ">/dev/null", "2>/dev/null", ">/dev/null 2>&1", ">&- 2>&-", ""} {
		ps = append(ps, w.put(testApp{name: "odd" + string(rune('a'+i)), memory: 64, command: "exec ./testapp sleep " + redirect}))
	}
	for _, p := range ps {
		st := w.running(p)
		w.eventually("the command runs", func() error { return w.isCommand(st.Instance, "testapp") })
	}
	w.eventually("the shims see the ends of the pipes", func() error {
		for _, c := range w.engine.known.all() {
			if err := unusedClosed(c.procs[0], c.init.shim.PID); err != nil {
				return err
			}
		}
		return nil
	})
	w.engine.checkCaptures(context.Background())
	for _, p := range ps {
		if rs, err := w.sup.Exits().Process(p.GUID); err != nil || len(rs) != 0 {
			t.Errorf("records of %s = %+v, %v, want none", p.GUID, rs, err)
		}
	}
}

// unusedClosed returns an error while a shim holds more capture files of a process than
// the process has pipes for its output.
func unusedClosed(p *proc, shim int) error {
	held := process.OpenFiles(shim)
	if len(held) == 0 {
		return fmt.Errorf("shim %d does not run", shim)
	}
	files, pipes := 0, map[string]bool{}
	for _, path := range []string{p.OutPath, p.ErrPath} {
		if id, err := process.FileID(path); err == nil && held[id] {
			files++
		}
	}
	for _, fd := range []string{"1", "2"} {
		if id, err := process.FileID(process.File(p.pid, "fd/"+fd)); err == nil && held[id] {
			pipes[id] = true
		}
	}
	if files > len(pipes) {
		return fmt.Errorf("process %d has %d pipes and %d capture files", p.pid, len(pipes), files)
	}
	return nil
}
