package supervisor_test

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/runtime"
)

// The exit of a session is not a crash of its instance. If the instance exits, the
// session ends with it and reports that.
func TestSessionsAreNotCodependent(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		ctx := context.Background()
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		at := runtime.ExecTarget{Process: p, Sidecar: "config server a"}
		failing, err := w.sup.Exec(ctx, at, runtime.ExecSpec{Kind: runtime.ExecCommand, Command: "echo hello; exit 3"})
		w.must(err)
		out, err := io.ReadAll(failing.Streams().Out)
		w.must(err)
		if end, err := failing.Wait(ctx); err != nil || end.Code != 3 || string(out) != "hello\n" {
			t.Errorf("the session printed %q and ended with %+v, %v; want hello and 3", out, end, err)
		}
		w.must(failing.Close())
		w.pass(time.Minute)
		w.wantRecords(p, 0)

		lasting, err := w.sup.Exec(ctx, runtime.ExecTarget{Process: p}, runtime.ExecSpec{Kind: runtime.ExecCommand, Command: "sleep 1000"})
		w.must(err)
		w.must(w.sup.Signal(ctx, p, 0, "config server a", runtime.SentSignal{Number: int(syscall.SIGKILL), User: "admin"}))
		w.pass(time.Minute)
		if end, err := lasting.Wait(ctx); err != nil || end.Why == "" {
			t.Errorf("the session ended with %+v, %v; want to be told that its instance did", end, err)
		}
		w.must(lasting.Close())
		w.wantRecords(p, 1)
		w.wantState(p, runtime.Running)
	})
}

func TestSessionsNeedAnInstance(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		ctx := context.Background()
		p := w.push("sleep 1000")
		w.daemon()
		for _, at := range []runtime.ExecTarget{{Process: "none"}, {Process: p, Index: 7}, {Process: p, Sidecar: "nobody"}} {
			if _, err := w.sup.Exec(ctx, at, runtime.ExecSpec{Kind: runtime.ExecShell}); !errors.Is(err, runtime.ErrNoInstance) {
				t.Errorf("%+v: %v, want ErrNoInstance", at, err)
			}
		}
	})
}
