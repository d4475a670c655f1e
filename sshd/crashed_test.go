package sshd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/runtime"
)

func (w *world) Crashed(process string) []runtime.CrashFiles {
	return slices.DeleteFunc(w.fake.CrashFiles(), func(files runtime.CrashFiles) bool { return files.Slot.Process != process })
}

func (w *world) ExecCrashed(ctx context.Context, id runtime.InstanceID, sidecar string, spec runtime.ExecSpec) (runtime.Session, error) {
	return w.fake.ExecCrashFiles(ctx, id, sidecar, spec)
}

// crash creates a crashed instance of the app, with index 3.
func (w *world) crash() runtime.InstanceID {
	w.t.Helper()
	container, err := w.fake.Start(w.t.Context(), runtime.Spec{
		Kind: runtime.KindInstance, Instance: runtime.NewInstanceID(), Slot: runtime.SlotID{Process: appGUID, Index: 3}, App: appGUID, Type: "web",
		Processes: []runtime.ProcessSpec{{Exec: runtime.MainExec, Command: "exit 1"}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	k, ok := container.(runtime.KeepableContainer)
	if !ok {
		w.t.Fatal("nothing of the task can be kept")
	}
	k.KeepFiles(time.Now())
	if err := container.Delete(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return container.Spec().Instance
}

// The same users can log in to a crashed instance as to a running one. Forwards are
// refused.
func TestEnterCrashed(t *testing.T) {
	w := newWorld(t, Limits{})
	id := w.crash()
	user := "cf:" + appGUID + "/crashed-" + string(id)
	c := w.client(user)
	out, err := w.session(c).Output("echo hello")
	if err != nil || string(out) != "hello\n" {
		t.Errorf("a command printed %q, %v", out, err)
	}
	for _, at := range [][2]string{{"tcp", "localhost:8080"}, {"unix", "/tmp/x"}} {
		if _, err := c.Dial(at[0], at[1]); err == nil || !strings.Contains(err.Error(), "cannot forward to a crashed instance") {
			t.Errorf("a forward to %s = %v, want to be refused", at[1], err)
		}
	}
	w.eventually("the access is written down", func() bool { return len(w.accessList()) == 1 })
	if got := w.accessList()[0]; got.Index != 3 || got.Err != nil || got.App.GUID != appGUID {
		t.Errorf("access = %+v, want to index 3", got)
	}
	w.mu.Lock()
	lines := slices.Clone(w.lines)
	w.mu.Unlock()
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "SSH/3 Successful remote access by ") {
		t.Errorf("lines = %q", lines)
	}

	w.deny(errors.New("not you"))
	if _, banner, err := w.login(user, w.code("other")); err == nil || !strings.Contains(banner, "not you") {
		t.Errorf("whoever may not enter: %v, %q", err, banner)
	}
	w.deny(nil)
	for _, user := range []string{
		"cf:" + appGUID + "/crashed-" + string(runtime.NewInstanceID()),
		"cf:" + workerGUID + "/crashed-" + string(id), // of another process
	} {
		if _, banner, err := w.login(user, w.code("more")); err == nil || !strings.Contains(banner, "the files of crashed instance ") {
			t.Errorf("%s: %v, %q; want that nothing is kept", user, err, banner)
		}
	}
	if diff := cmp.Diff(w.fake.CrashFiles()[0].Instance, id); diff != "" {
		t.Errorf("kept (-got +want):\n%s", diff)
	}
}

func (w *world) accessList() []Access {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.accesses)
}
