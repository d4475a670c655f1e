package runtimetest

import (
	"errors"
	"io"
	"syscall"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/runtime"
)

func (s *suite) session(container runtime.Container, exec, command string) runtime.Session {
	s.Helper()
	ses, err := container.Exec(s.ctx, exec, runtime.ExecSpec{Kind: runtime.ExecCommand, Command: command})
	if err != nil {
		s.Fatalf("Exec %q: %v", command, err)
	}
	s.Cleanup(func() {
		if err := ses.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
	return ses
}

// readAll returns everything that a session prints on both streams, and its result.
func (s *suite) readAll(ses runtime.Session) (out, err string, end runtime.SessionEnd) {
	s.Helper()
	st := ses.Streams()
	o, oerr := io.ReadAll(st.Out)
	e, eerr := io.ReadAll(st.Err)
	end, werr := ses.Wait(s.ctx)
	if oerr != nil || eerr != nil || werr != nil {
		s.Fatalf("cannot read a session: %v", errors.Join(oerr, eerr, werr))
	}
	return string(o), string(e), end
}

func (s *suite) sessionsRunBeside() {
	container := s.start(s.spec("sleep 1000", "sleep 1000"))
	for _, c := range []struct {
		exec, command string
		out, err      string
		code          int
	}{
		{mainExec, "echo hello; exit 7", "hello\n", "", 7},
		{"sidecar-0", "echo out; echo err >&2", "out\n", "err\n", 0},
		{mainExec, "kill -9 $$", "", "", 137},
	} {
		out, err, end := s.readAll(s.session(container, c.exec, c.command))
		if diff := cmp.Diff([]any{out, err, end}, []any{c.out, c.err, runtime.SessionEnd{Code: c.code}}); diff != "" {
			s.Errorf("%s: stdout, stderr and end (-got +want):\n%s", c.command, diff)
		}
	}
	s.wantNoExit(container) // the exit of a session does not affect others
}

func (s *suite) sessionsReadInput() {
	container := s.start(s.spec("sleep 1000"))
	ses := s.session(container, mainExec, "cat; echo end")
	in := ses.Streams().In
	if _, err := io.WriteString(in, "some\nlines"); err != nil {
		s.Fatal(err)
	}
	if err := in.Close(); err != nil {
		s.Fatal(err)
	}
	if out, _, end := s.readAll(ses); out != "some\nlinesend\n" || end.Code != 0 {
		s.Errorf("cat printed %q and ended with %d, want its input and 0", out, end.Code)
	}
}

func (s *suite) sessionsEndWithTheInstance() {
	container := s.start(s.spec("sleep 1000"))
	ses := s.session(container, mainExec, "echo ready; sleep 1000")
	if _, err := io.ReadFull(ses.Streams().Out, make([]byte, len("ready\n"))); err != nil {
		s.Fatal(err)
	}
	if err := container.Delete(s.ctx); err != nil {
		s.Fatalf("Delete: %v", err)
	}
	if _, _, end := s.readAll(ses); end.Why == "" {
		s.Errorf("the session ended with %+v, want a reason", end)
	}
	if _, err := container.Exec(s.ctx, mainExec, runtime.ExecSpec{Kind: runtime.ExecCommand, Command: "exit 0"}); err == nil {
		s.Error("a deleted instance accepted a session")
	}
}

func (s *suite) sessionsCanBeEnded() {
	container := s.start(s.spec("sleep 1000"))
	signalled := s.session(container, mainExec, "echo ready; sleep 1000")
	if _, err := io.ReadFull(signalled.Streams().Out, make([]byte, len("ready\n"))); err != nil {
		s.Fatal(err)
	}
	if err := signalled.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	if _, _, end := s.readAll(signalled); end != (runtime.SessionEnd{Code: 143}) {
		s.Errorf("after SIGTERM: %+v, want 143", end)
	}
	closed := s.session(container, mainExec, "sleep 1000")
	for range 2 {
		if err := closed.Close(); err != nil {
			s.Fatalf("Close: %v", err)
		}
	}
	if end, err := closed.Wait(s.ctx); err != nil || end.Code != 137 {
		s.Errorf("after Close: %+v, %v, want 137", end, err)
	}
	s.wantNoExit(container)
}

func (s *suite) sessionsDoNotOutlive() {
	spec := s.spec("sleep 1000")
	old := s.session(s.start(spec), mainExec, "sleep 1000")
	found := s.nextDaemon()
	container := found[spec.Instance]
	if container == nil {
		s.Fatal("the instance was not adopted")
	}
	if end, err := old.Wait(s.ctx); err != nil || end.Why == "" {
		s.Errorf("a session of the previous daemon ended with %+v, %v; want a reason", end, err)
	}
	if out, _, end := s.readAll(s.session(container, mainExec, "echo again; exit 0")); out != "again\n" || end.Code != 0 {
		s.Errorf("a session of the next daemon printed %q and ended with %d", out, end.Code)
	}
	s.wantNoExit(container)
	s.deleteAll(found)
}

func (s *suite) sessionsNeedAProcess() {
	container := s.start(s.spec("sleep 1000", "exit 0"))
	s.nextExit(container)
	for _, exec := range []string{"sidecar-0", "sidecar-7", "init"} {
		_, err := container.Exec(s.ctx, exec, runtime.ExecSpec{Kind: runtime.ExecCommand, Command: "exit 0"})
		if !errors.Is(err, runtime.ErrNoInstance) {
			s.Errorf("Exec beside %s = %v, want ErrNoInstance", exec, err)
		}
	}
}
