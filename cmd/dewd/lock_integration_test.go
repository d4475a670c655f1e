//go:build integration

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/cmd/dewd/folders"
)

// A dewd that starts right after another was killed takes over, even if the lock is
// held for a while longer.
func TestStartRightAfterKill(t *testing.T) {
	runParallel(t)
	c := newCell(t)
	c.start()
	for range rounds(2, 25) {
		killed := c.cmd
		if err := killed.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.launch()
		_ = killed.Wait() // it was killed
		c.awaitSocket()
	}
	for range rounds(1, 25) {
		c.kill(syscall.SIGKILL)
		// This simulates a thread of the killed dewd that still waits for the disk.
		f, err := os.Open(filepath.Join(c.root, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Fatal(err)
		}
		c.launch()
		c.eventually("dewd tries to take the lock", func() error {
			if !folders.IsRunning(strconv.Itoa(c.cmd.Process.Pid), f) {
				return fmt.Errorf("%s is not open", f.Name())
			}
			return nil
		})
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		c.awaitSocket()
	}
}
