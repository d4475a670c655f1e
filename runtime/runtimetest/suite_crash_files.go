package runtimetest

import (
	"errors"
	"io"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/runtime"
)

func (s *suite) crashKeeper() runtime.CrashKeeper {
	s.Helper()
	crashKeeper, ok := s.engine.(runtime.CrashKeeper)
	if !ok {
		s.Fatal("the engine does not store files of crashed instances")
	}
	return crashKeeper
}

// crash starts an instance that exits by itself, and deletes it as crashed.
func (s *suite) crash(spec runtime.Spec, at time.Time) runtime.CrashFiles {
	s.Helper()
	container := s.start(spec)
	s.nextExit(container)
	k, ok := container.(runtime.KeepableContainer)
	if !ok {
		s.Fatal("the files of the task cannot be stored")
	}
	k.KeepFiles(at)
	if err := container.Delete(s.ctx); err != nil {
		s.Fatalf("Delete: %v", err)
	}
	return runtime.CrashFiles{Instance: spec.Instance, Slot: spec.Slot, App: spec.App, Type: spec.Type, CrashedAt: at}
}

// execCrashFiles opens a session on stored files.
func (s *suite) execCrashFiles(id runtime.InstanceID, sidecar, command string) runtime.Session {
	s.Helper()
	ses, err := s.crashKeeper().ExecCrashFiles(s.ctx, id, sidecar, runtime.ExecSpec{Kind: runtime.ExecCommand, Command: command})
	if err != nil {
		s.Fatalf("ExecRemains %q: %v", command, err)
	}
	s.Cleanup(func() {
		if err := ses.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
	return ses
}

func (s *suite) wantKept(want ...runtime.CrashFiles) {
	s.Helper()
	got := s.crashKeeper().CrashFiles()
	for i := range got {
		got[i].Size = 0 // the size depends on the engine
	}
	if diff := cmp.Diff(got, want); diff != "" {
		s.Errorf("kept (-got +want):\n%s", diff)
	}
}

func (s *suite) crashFilesCanBeEntered() {
	at := time.Now().UTC().Round(0)
	kept := s.crash(s.spec("exit 3", "sleep 1000"), at)
	container := s.start(s.spec("exit 4"))
	s.nextExit(container)
	if err := container.Delete(s.ctx); err != nil { // not crashed: its files are not needed
		s.Fatal(err)
	}
	s.wantKept(kept)
	for _, sidecar := range []string{"", "side a"} {
		out, _, end := s.readAll(s.execCrashFiles(kept.Instance, sidecar, "echo hello; exit 7"))
		if out != "hello\n" || end != (runtime.SessionEnd{Code: 7}) {
			s.Errorf("beside %q: %q and %+v, want hello and 7", sidecar, out, end)
		}
	}
	for _, c := range []struct {
		id      runtime.InstanceID
		sidecar string
	}{{kept.Instance, "nobody"}, {container.Spec().Instance, ""}, {"", ""}, {"../x", ""}} {
		_, err := s.crashKeeper().ExecCrashFiles(s.ctx, c.id, c.sidecar, runtime.ExecSpec{Kind: runtime.ExecShell})
		if !errors.Is(err, runtime.ErrNoInstance) {
			s.Errorf("%+v: %v, want ErrNoInstance", c, err)
		}
	}
}

func (s *suite) crashFilesOutliveTheirDaemon() {
	kept := s.crash(s.spec("exit 3"), time.Now().UTC().Round(0))
	if found := s.nextDaemon(); len(found) > 0 {
		s.Errorf("the next daemon adopted %d instances, want none", len(found))
	}
	if err := s.engine.Sweep(s.ctx, nil); err != nil {
		s.Fatal(err)
	}
	s.wantKept(kept)
	if out, _, _ := s.readAll(s.execCrashFiles(kept.Instance, "", "echo hello")); out != "hello\n" {
		s.Errorf("a session of the next daemon printed %q", out)
	}
}

func (s *suite) crashFilesAreBounded() {
	spec := s.spec("exit 3")
	var all []runtime.CrashFiles
	for i := range runtime.KeptPerApp + 2 {
		next := s.spec("exit 3")
		next.App, next.Slot = spec.App, spec.Slot
		all = append([]runtime.CrashFiles{s.crash(next, time.Now().UTC().Round(0).Add(time.Duration(i)*time.Second))}, all...)
	}
	s.eventually(func() bool { return len(s.crashKeeper().CrashFiles()) == runtime.KeptPerApp })
	s.wantKept(all[:runtime.KeptPerApp]...)
}

func (s *suite) crashFilesCanBeDropped() {
	kept := s.crash(s.spec("exit 3"), time.Now().UTC().Round(0))
	other := s.crash(s.spec("exit 3"), time.Now().UTC().Round(0).Add(-time.Second))
	ses := s.execCrashFiles(kept.Instance, "", "echo ready; sleep 1000")
	if _, err := io.ReadFull(ses.Streams().Out, make([]byte, len("ready\n"))); err != nil {
		s.Fatal(err)
	}
	for range 2 {
		if err := s.crashKeeper().DropCrashFiles(s.ctx, kept.Slot.Process); err != nil {
			s.Fatal(err)
		}
	}
	if end, err := ses.Wait(s.ctx); err != nil || end.Why == "" {
		s.Errorf("the session ended with %+v, %v; want a reason", end, err)
	}
	s.wantKept(other)
	if _, err := s.crashKeeper().ExecCrashFiles(s.ctx, kept.Instance, "", runtime.ExecSpec{Kind: runtime.ExecShell}); !errors.Is(err, runtime.ErrNoInstance) {
		s.Errorf("dropped: %v, want ErrNoInstance", err)
	}
}

// eventually waits for background work of an engine.
func (s *suite) eventually(ok func() bool) {
	s.Helper()
	for !ok() {
		select {
		case <-s.ctx.Done():
			s.Fatal("the condition was not met in time")
		case <-time.After(time.Millisecond):
		}
	}
}
