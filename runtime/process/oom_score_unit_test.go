package process

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestSetOOMScore(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if err := SetOOMScore(pid, 700); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(File(pid, "oom_score_adj")); strings.TrimSpace(string(got)) != "700" {
		t.Errorf("oom_score_adj = %q, %v, want 700", got, err)
	}
	if err := SetOOMScore(pid, 1001); err == nil {
		t.Error("the score 1001 was accepted")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := SetOOMScore(pid, 700); err != nil {
		t.Errorf("SetOOMScore of an exited process: %v", err)
	}
}
