package supervisor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
)

// staging is one build in progress.
type staging struct {
	w      *world
	app    string
	cancel context.CancelFunc
	ended  bool
	err    error
	code   int
	packed string
	full   atomic.Bool // the disk is full
}

// stage starts a build of the app and waits until it runs.
func (w *world) stage(change func(s *droplet.Staging)) *staging {
	w.t.Helper()
	a, err := w.registry.PutApp(app.App{Name: "built", Space: "dev", State: app.Stopped, Env: map[string]string{"COLOUR": "red"}})
	w.must(err)
	w.change(a.GUID, func(p *app.Process) { p.MemoryMB = 512 })
	_, err = w.registry.PutSidecar(app.Sidecar{App: a.GUID, Name: "agent", Command: "x", ProcessTypes: []string{app.Web}, MemoryMB: 128, Origin: app.OriginUser})
	w.must(err)
	s := droplet.Staging{
		Build: "build-1", App: a.GUID, Command: "sleep", Dir: "/home/vcap", Env: map[string]string{"COLOUR": "red", "HOME": "/etc"},
		MemoryMB: 256, DiskMB: 64, MaxFiles: 100, Timeout: time.Minute,
		Stack: stack.Stack{Name: "host", Mounts: []stack.Mount{{Path: "/tmp", Type: "tmpfs"}, {Path: "/usr", Type: "bind"}}},
	}
	if change != nil {
		change(&s)
	}
	b := &staging{w: w, app: a.GUID}
	s.Space = func() error {
		if b.full.Load() {
			return droplet.ErrNoSpace
		}
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	go func() {
		err := w.sup.Stager().Build(ctx, s, func(ctx context.Context, code int, f droplet.Files) error {
			var out bytes.Buffer
			b.code = code
			err := f.Pack(ctx, &out, droplet.Packing{Folders: []droplet.Folder{{From: "/tmp/app"}}})
			b.packed = out.String()
			return err
		})
		b.ended, b.err = true, err
	}()
	synctest.Wait()
	return b
}

// failed checks that the build failed with the given reason and left nothing behind.
func (b *staging) failed(reason string) {
	b.w.t.Helper()
	synctest.Wait()
	if e := (*droplet.StagingError)(nil); !b.ended || !errors.As(b.err, &e) || !strings.Contains(e.Reason, reason) {
		b.w.t.Errorf("ended %v, %v, want it to say %q", b.ended, b.err, reason)
	}
	b.gone()
}

func (b *staging) gone() {
	b.w.t.Helper()
	if left := b.w.fake.Present(); len(left) != 0 {
		b.w.t.Errorf("%d containers are left", len(left))
	}
}

func TestStage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		b := w.stage(nil)
		container := w.fake.Last()
		spec := container.Spec()
		if spec.Kind != runtime.KindStaging || spec.Build != "build-1" || spec.Memory != 256<<20 || len(spec.Processes) != 1 || spec.Processes[0].Source != "STG" || !spec.Address.IsValid() {
			t.Errorf("spec = %+v", spec)
		}
		if len(spec.Stack.Mounts) != 1 || spec.Stack.Mounts[0].Path != "/usr" {
			t.Errorf("mounts = %+v, want /tmp on disk", spec.Stack.Mounts)
		}
		env := map[string]string{}
		for _, kv := range spec.Processes[0].Env {
			name, value, _ := strings.Cut(kv, "=")
			env[name] = value
		}
		for name, want := range map[string]string{
			"CF_STACK": "host", "COLOUR": "red", "HOME": "/home/vcap", "MEMORY_LIMIT": "256m", "VCAP_SERVICES": "{}",
			"CF_INSTANCE_PORT": "", "CF_INSTANCE_ADDR": "", "CF_INSTANCE_PORTS": "[]", "CF_INSTANCE_IP": spec.Address.Addr().String(),
		} {
			if got, ok := env[name]; !ok || got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
		var vcap struct {
			Limits struct{ Mem int }
		}
		if err := json.Unmarshal([]byte(env["VCAP_APPLICATION"]), &vcap); err != nil || vcap.Limits.Mem != 512-128 {
			t.Errorf("VCAP_APPLICATION says %d MB, %v, want the share of the main process", vcap.Limits.Mem, err)
		}
		if got := w.sup.Instances(b.app); len(got) != 0 {
			t.Errorf("the build is shown as an instance: %+v", got)
		}
		container.Print(runtime.MainExec, "the last line")
		container.End(runtime.MainExec, 7)
		synctest.Wait()
		if !b.ended || b.err != nil || b.code != 7 || b.packed != "/tmp/app\n" {
			t.Errorf("build = %+v, want it ended with 7", b)
		}
		if !slices.ContainsFunc(w.logs.lines(), func(s string) bool { return strings.Contains(s, "the last line") }) {
			t.Error("its last line is lost")
		}
		b.gone()
	})
}

func TestStageIsEnded(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *world, b *staging)
		want string
	}{
		"time":   {func(w *world, _ *staging) { w.pass(time.Minute) }, "staging took longer than 1m0s"},
		"memory": {func(w *world, _ *staging) { w.fake.Last().OOM(runtime.MainExec) }, "staging ran out of memory: the limit is 256M"},
		"disk": {func(w *world, _ *staging) {
			w.fake.Last().SetConsumption(runtime.Consumption{Disk: 65 << 20})
			w.pass(3 * time.Second)
		}, "disk quota exceeded: the limit for staging is 64M"},
		"files":         {func(w *world, _ *staging) { w.fake.Last().Write(101); w.pass(3 * time.Second) }, "disk quota exceeded: the limit for staging is 100 files"},
		"space":         {func(w *world, b *staging) { b.full.Store(true); w.pass(3 * time.Second) }, "the disk is nearly full"},
		"lost shim":     {func(w *world, _ *staging) { w.fake.Last().LoseShim() }, "the staging container was lost"},
		"first process": {func(w *world, _ *staging) { w.fake.Last().EndInit() }, "the staging container was lost"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.daemon()
				b := w.stage(nil)
				c.do(w, b)
				b.failed(c.want)
			})
		})
	}
}

func TestStageIsCancelled(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		b := w.stage(nil)
		b.cancel()
		synctest.Wait()
		if !b.ended || !errors.Is(b.err, context.Canceled) {
			t.Errorf("build = %+v, want it cancelled", b)
		}
		b.gone()
	})
}

// The stager waits for a container service that is unavailable, but not for one that
// refuses.
func TestStageStarts(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		w.fake.FailStart(runtime.ErrUnavailable)
		b := w.stage(nil)
		if b.ended {
			t.Fatalf("build = %+v, want it to wait", b)
		}
		w.fake.FailStart(nil)
		w.pass(30 * time.Second)
		w.fake.Last().End(runtime.MainExec, 0)
		synctest.Wait()
		if !b.ended || b.err != nil {
			t.Errorf("build = %+v, want it done", b)
		}
		w.fake.FailStart(&runtime.StartError{Reason: "no such program"})
		again := &staging{w: w}
		again.err = w.sup.Stager().Build(context.Background(), droplet.Staging{Build: "build-2", App: b.app, Timeout: time.Minute, MemoryMB: 64}, nil)
		again.ended = true
		again.failed("the staging container cannot start: no such program")
	})
}

// The next daemon does not adopt the build container of a killed daemon.
func TestStageIsNotAdopted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		b := w.stage(nil)
		if len(w.fake.Present()) != 1 {
			t.Fatal("no build")
		}
		w.daemon() // the first one is killed without a shutdown
		b.gone()
		if got := w.sup.Instances("build-1"); len(got) != 0 {
			t.Errorf("instances of a build: %+v", got)
		}
		b.cancel()
	})
}

// A sidecar next to a JVM without a memory value prevents the start of the instance.
func TestJavaRule(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		guid := w.push("run")
		w.state(guid, app.Stopped)
		w.must(w.droplets.Put(droplet.Droplet{GUID: "d1", App: guid, Java: true, Commands: map[string]string{"web": "run"}}))
		_, err := w.registry.PutSidecar(app.Sidecar{App: guid, Name: "agent", Command: "x", ProcessTypes: []string{app.Web}, Origin: app.OriginUser})
		w.must(err)
		_, err = w.registry.UpdateApp(guid, func(a *app.App) error { a.Droplet = "d1"; return nil })
		w.must(err)
		started := len(w.fake.Containers())
		w.state(guid, app.Started)
		st := w.wantState(guid, runtime.Crashed)
		if !strings.Contains(st.Details, "sidecar 'agent' of process 'web' has no memory value") || len(w.fake.Containers()) != started {
			t.Errorf("details %q, %d containers, want the rule and none", st.Details, len(w.fake.Containers())-started)
		}
	})
}
