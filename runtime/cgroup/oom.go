package cgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
)

// WatchOOM makes cgroup v1 behave like v2 with memory.oom.group: one kill in a leaf
// kills the whole leaf. Cgroup v1 alone kills one child, and the shell that started it
// can keep running. WatchOOM returns when ctx is done, or at once on v2.
func (c *Hierarchies) WatchOOM(ctx context.Context, id runtime.InstanceID, leaf string) error {
	if c.IsV2() {
		return nil
	}
	events, err := c.oomEvents(id, leaf)
	if err != nil {
		return err
	}
	defer events.Close()
	stop := context.AfterFunc(ctx, func() { _ = events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for buf := make([]byte, 8); ; {
		if c.OOMKills(id, leaf) > 0 {
			return c.Kill(ctx, id, leaf)
		}
		// The event comes when memory is short, and the kill a moment later. The
		// removal of the leaf is also an event.
		if _, err := events.Read(buf); err != nil {
			return nil
		}
		if err := c.awaitKill(ctx, id, leaf); err != nil {
			return nil
		}
	}
}

// killTimeout is how long the kernel can take from the event to its kill. On a busy
// machine the kill waits for a processor.
const killTimeout = time.Minute

// awaitKill gives the kernel time to choose a process. The error means that there is
// nothing to wait for any more.
func (c *Hierarchies) awaitKill(ctx context.Context, id runtime.InstanceID, leaf string) error {
	until := time.Now().Add(killTimeout)
	for wait := 200 * time.Microsecond; c.OOMKills(id, leaf) == 0 && time.Now().Before(until); wait = min(2*wait, 100*time.Millisecond) {
		if _, err := os.Stat(c.Memory(id, leaf)); err != nil {
			return err
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
	return nil
}

// oomEvents opens an event file that becomes readable at every OOM in the leaf.
func (c *Hierarchies) oomEvents(id runtime.InstanceID, leaf string) (*os.File, error) {
	dir := c.Memory(id, leaf)
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return nil, fmt.Errorf("cannot watch for OOM kills: %w", err)
	}
	defer control.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot watch for OOM kills: %w", err)
	}
	events := os.NewFile(uintptr(fd), "oom events of "+leaf)
	if err := write(dir, "cgroup.event_control", fmt.Sprintf("%d %d", fd, control.Fd())); err != nil {
		events.Close()
		return nil, err
	}
	return events, nil
}
