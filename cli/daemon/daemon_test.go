package daemon

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestAlive(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(hang); alive(cmd.Process.Pid); time.Sleep(time.Millisecond) { // ended, and nobody asked for its status yet
		if time.Now().After(deadline) {
			t.Fatal("a process that has ended counts as alive")
		}
	}
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
