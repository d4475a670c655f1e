package containerd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/runtime"
)

func instanceNumber(n int) runtime.InstanceID {
	return runtime.InstanceID(fmt.Sprintf("00000000-0000-0000-0000-%04d", n))
}

// The cases are crashed instances, newest first, and the next one to remove. "a5" is
// one of app a with 5 bytes, "a5!" has an open session.
func TestExcess(t *testing.T) {
	limits := Crashed{Bytes: 10}
	for _, tt := range []struct {
		kept    []string
		pressed bool
		want    int // index; -1: none
	}{
		{nil, false, -1},
		{nil, true, -1},
		{[]string{"a1", "a1", "a1"}, false, -1},
		{[]string{"a1", "a1", "a1", "a1"}, false, 3},
		{[]string{"a1", "a1", "a1", "a1!"}, false, -1},
		{[]string{"a1", "a1", "a1", "a1!", "a1"}, false, 4},
		{[]string{"a1", "b1", "a1", "b1", "a1", "b1"}, false, -1},
		{[]string{"a1", "b1", "a1", "a1", "a1", "b1"}, false, 4},
		{[]string{"a5", "b5"}, false, -1},
		{[]string{"a5", "b5", "c1"}, false, 2},
		{[]string{"a5", "b6", "c1"}, false, 2}, // the oldest first
		{[]string{"a5", "b6"}, false, 1},
		{[]string{"a11", "b5", "c5"}, false, 0}, // too large on its own
		{[]string{"a11!", "b5", "c5"}, false, -1},
		{[]string{"a11", "a1", "a1", "a1"}, false, 0},
		{[]string{"a1", "b1"}, true, 1},
		{[]string{"a1", "b1!"}, true, 0},
	} {
		var all []*crashedInstance
		for _, text := range tt.kept {
			ci := &crashedInstance{sessions: map[*crashSession]bool{}}
			ci.App = text[:1]
			var mark string
			_, _ = fmt.Sscanf(text[1:], "%d%s", &ci.Size, &mark) // without a mark it reads only the size
			if mark == "!" {
				ci.sessions[&crashSession{}] = true
			}
			all = append(all, ci)
		}
		got := -1
		for i, ci := range all {
			if ci == excess(all, limits, tt.pressed) {
				got = i
			}
		}
		if got != tt.want {
			t.Errorf("%v, pressed %v: %d goes, want %d", tt.kept, tt.pressed, got, tt.want)
		}
	}
}

// The records of an earlier daemon are read. Incomplete records are not.
func TestCrashedStoreReadsBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "crashed")
	e := &Engine{log: slog.New(slog.DiscardHandler)}
	limits := Crashed{Dir: dir, Bytes: 1 << 20}
	if _, err := newCrashedStore(context.Background(), e, limits); err != nil {
		t.Fatal(err)
	}
	one := `{"instance":"` + string(instanceNumber(1)) + `","app":"a","slot":{"Process":"p","Index":2},"crashed_at":"2026-01-02T03:04:05Z",` +
		`"memory":7,"processes":[{"name":"agent","dir":"/d","env":["A=1"],"shell":"/bin/sh"}]}`
	for name, text := range map[string]string{
		string(instanceNumber(1)) + ".json":     one,
		string(instanceNumber(2)) + ".json":     `{"instance":"`,
		string(instanceNumber(3)) + ".json":     one, // the file name does not match the record
		string(instanceNumber(4)) + ".json.new": one,
		"x.json":                                `{"instance":"x"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	st, err := newCrashedStore(context.Background(), e, limits)
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	e.crashed = st
	want := []runtime.CrashFiles{{
		Instance: instanceNumber(1), App: "a", Slot: runtime.SlotID{Process: "p", Index: 2},
		CrashedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}}
	if diff := cmp.Diff(e.CrashFiles(), want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	ci, around, err := st.admit(instanceNumber(1), "agent")
	if err != nil || ci.Memory != 7 || around.Dir != "/d" || around.Shell != "/bin/sh" || !around.Profile {
		t.Errorf("admit = %+v, %+v, %v", ci, around, err)
	}
	for range maxCrashSessions - 1 {
		if _, _, err := st.admit(instanceNumber(1), "agent"); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := st.admit(instanceNumber(1), "agent"); err == nil {
		t.Errorf("more than %d may enter", maxCrashSessions)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v; want 0700", info.Mode(), err)
	}
}
