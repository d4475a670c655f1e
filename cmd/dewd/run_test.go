//go:build integration

package main

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// dew run has its own container, with a terminal and in pipes. It leaves nothing, even
// if dew or dewd is killed.
func TestRun(t *testing.T) {
	runParallel(t)
	c := newCell(t, "--kill-delay", "1s")
	c.start()
	c.pushForTasks() // the app does not run

	piped := c.dewCommand("run", "shop", "-m", "32M", "--", "sh", "-c", `echo "$COLOUR $MEMORY_LIMIT $(pwd)"; cat; echo oh >&2; exit 3`)
	piped.Stdin = strings.NewReader("a \xff\x00 b\r\nc")
	if got := finish(t, piped); got != (outcome{"green 32m /home/vcap/app\na \xff\x00 b\r\nc", "oh\n", 3}) {
		t.Errorf("in pipes: %+v", got)
	}
	if got := finish(t, c.dewCommand("run", "shop", "kill -9 $$")); got.code != 137 {
		t.Errorf("killed by a signal: %+v", got)
	}
	if state, why := c.ended("1"); state != v3.TaskFailed || !strings.HasSuffix(why, ": Exited with status 3") {
		t.Errorf("the task is %s, %q", state, why)
	}
	c.runsOnTerminal(t)
	c.noLeaves()

	for _, one := range []struct {
		id, why string
		end     func(killDew func())
	}{
		{"4", "dew run disconnected", func(killDew func()) { killDew() }},
		{"5", "task was cancelled", func(func()) { c.dew("terminate-task", "shop", "5") }},
		{"6", "dewd was restarted, which disconnected dew run", func(func()) { c.kill(syscall.SIGKILL); c.start() }},
	} {
		cmd := c.dewCommand("run", "shop", "sleep 1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c.eventually("the command runs", func() error {
			for _, leaves := range c.leaves() {
				if len(leaves["ssh-1"]) > 0 {
					return nil
				}
			}
			return errors.New("it does not")
		})
		one.end(func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // it was killed
		if state, why := c.ended(one.id); state != v3.TaskFailed || why != one.why {
			t.Errorf("task %s is %s, %q, want %q", one.id, state, why, one.why)
		}
		c.noLeaves()
	}
}

// runsOnTerminal opens a shell on a terminal.
func (c *cell) runsOnTerminal(t *testing.T) {
	t.Helper()
	scr := onTerminal(t, c.dewCommand("run", "shop"), 91, 33)
	scr.typed("stty size; echo in-$COLOUR\n")
	scr.await("33 91")
	scr.await("in-green")
	scr.resize(77, 22)
	scr.typed("until [ \"$(stty size)\" = '22 77' ]; do sleep 0.1; done; echo re''sized\n")
	scr.await("resized")
	// The inner shell prints that it sleeps. By then it has the terminal, and the outer
	// shell no longer receives the interrupt.
	scr.typed("sh -c 'echo sl\"\"eeps; exec sleep 1000'\n")
	scr.await("sleeps")
	scr.typed("\x03")
	scr.awaitAfter("^C", "$ ") // the shell discards input before its prompt
	scr.typed("exit 9\n")
	if code := scr.end(); code != 9 {
		t.Errorf("exit status %d, want 9; the screen:\n%s", code, scr.text.String())
	}
	if state, why := c.ended("3"); state != v3.TaskFailed || !strings.HasSuffix(why, ": Exited with status 9") {
		t.Errorf("the shell is %s, %q", state, why)
	}
}
