package supervisor_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// The files of an instance are stored after a crash, and never after a stop. A session
// on them is possible while the app is stopped, and under the next daemon.
func TestCrashedAreKept(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		crashed := w.fake.Last()
		crashed.End(runtime.MainExec, 3)
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		w.state(p, app.Stopped)
		w.pass(time.Minute)
		record := w.record(p)
		want := []runtime.CrashFiles{{
			Instance: crashed.Spec().Instance, Slot: runtime.SlotID{Process: p}, App: p, Type: app.Web, CrashedAt: record.CrashedAt,
		}}
		w.daemon()
		if diff := cmp.Diff(w.sup.Crashed(p), want); diff != "" {
			t.Errorf("kept (-got +want):\n%s", diff)
		}
		if got := w.sup.Crashed("other"); len(got) != 0 {
			t.Errorf("kept of another process: %+v", got)
		}
		ses, err := w.sup.ExecCrashed(context.Background(), record.Instance, "config server a", runtime.ExecSpec{Kind: runtime.ExecCommand, Command: "echo here"})
		w.must(err)
		out, err := io.ReadAll(ses.Streams().Out)
		w.must(errors.Join(err, ses.Close()))
		if string(out) != "here\n" {
			t.Errorf("the session printed %q", out)
		}
		if _, err := w.sup.ExecCrashed(context.Background(), runtime.NewInstanceID(), "", runtime.ExecSpec{Kind: runtime.ExecShell}); !errors.Is(err, runtime.ErrNoInstance) {
			t.Errorf("of an unknown instance: %v, want ErrNoInstance", err)
		}
	})
}

// The stored files are removed with their app, even if no daemon was running at the
// deletion.
func TestCrashedGoWithTheirApp(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"seen": false, "unseen": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				p := w.push("sleep 1000")
				w.daemon()
				w.fake.Last().End(runtime.MainExec, 3)
				w.pass(time.Minute)
				if n := len(w.sup.AllCrashed()); n != 1 {
					t.Fatalf("%d are kept, want 1", n)
				}
				if away {
					w.stopDaemon()
				}
				w.must(w.registry.DeleteApp(p))
				if away {
					w.daemon()
				}
				w.pass(time.Minute)
				if got := w.sup.AllCrashed(); len(got) != 0 {
					t.Errorf("kept of a deleted app: %+v", got)
				}
				w.wantNothing()
			})
		})
	}
}
