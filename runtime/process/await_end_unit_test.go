package process

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"
)

func TestAwaitEnd(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	born := BornAt(pid)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- AwaitEnd(ctx, pid, born) }()
	cancel()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled wait returned %v", err)
	}
	if err := AwaitEnd(t.Context(), pid, born+1); err != nil {
		t.Errorf("of an earlier process with the same number: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- AwaitEnd(t.Context(), pid, born) }()
	select {
	case err := <-ended:
		t.Fatalf("it returned %v while the process runs", err)
	case <-time.After(20 * time.Millisecond): // the longer, the more errors it finds
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("at the end: %v", err)
	}
	if err := AwaitEnd(t.Context(), pid, born); err != nil {
		t.Errorf("of a zombie: %v", err)
	}
	_ = cmd.Wait()
	if err := AwaitEnd(t.Context(), pid, born); err != nil {
		t.Errorf("of a process that is gone: %v", err)
	}
}
