package daemon

import (
	"os"
	"os/exec"
	"testing"

	"github.com/dewrun/dew/testkit"
)

func TestAlive(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The process exits and stays a zombie, because its parent has not read its status.
	testkit.EventuallyTrue(t, "a process that has exited is not alive", func() bool { return !alive(cmd.Process.Pid) })
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !alive(os.Getpid()) || alive(cmd.Process.Pid) {
		t.Error("the living and the dead are mixed up")
	}
}

func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{"": "''", "abc-1": "abc-1", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "a*": "'a*'", "~": "'~'"} {
		if got := ShellWord(text); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}
