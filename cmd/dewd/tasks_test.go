//go:build integration

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// pushForTasks pushes an app that is never started, with a sidecar that must not run in
// tasks.
func (c *cell) pushForTasks() {
	c.t.Helper()
	dir := filepath.Join(filepath.Dir(c.root), "tasks")
	program, err := os.ReadFile(filepath.Join(programs, "testapp"))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	manifest := "applications:\n- name: shop\n  path: .\n  memory: 64M\n  no-route: true\n  health-check-type: process\n" +
		"  buildpacks: [binary_buildpack]\n  env: {COLOUR: green}\n  sidecars: [{name: agent, command: sleep 1000, process_types: [web], memory: 16M}]\n"
	for name, data := range map[string]string{"testapp": string(program), "Procfile": "web: sleep 1000\ntask: echo from the Procfile\n", "manifest.yml": manifest} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o755))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.dew("push", "-f", filepath.Join(dir, "manifest.yml"))
	c.dew("stop", "shop")
	c.noLeaves()
}

// noLeaves waits until nothing runs.
func (c *cell) noLeaves() {
	c.t.Helper()
	c.eventually("nothing runs", func() error {
		if got := c.leaves(); len(got) != 0 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

// containers waits until this number of tasks run, and returns their leaves.
func (c *cell) containers(n int) map[string]map[string][]int {
	c.t.Helper()
	var got map[string]map[string][]int
	c.eventually(fmt.Sprintf("%d tasks run", n), func() error {
		got = c.leaves()
		running := 0
		for _, leaves := range got {
			if len(leaves["main"]) > 0 {
				running++
			}
		}
		if running != n || len(got) != n {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	return got
}

// taskOf reads a task of the app.
func (c *cell) taskOf(id string) v3.Task {
	c.t.Helper()
	out, err := c.dewCommand("task", "shop", id, "--json").Output()
	if err != nil {
		c.t.Fatalf("dew task: %v\n%s", err, c.said)
	}
	var t v3.Task
	if err := json.Unmarshal(out, &t); err != nil {
		c.t.Fatal(err)
	}
	return t
}

// ended waits until a task has finished.
func (c *cell) ended(id string) (state, why string) {
	c.t.Helper()
	c.eventually("task "+id+" ends", func() error {
		t := c.taskOf(id)
		state = t.State
		if t.Result.FailureReason != nil {
			why = *t.Result.FailureReason
		}
		if state != v3.TaskSucceeded && state != v3.TaskFailed {
			return errors.New(state)
		}
		return nil
	})
	return state, why
}

// exitCode runs a command and checks its exit code.
func (c *cell) exitCode(want int, args ...string) string {
	c.t.Helper()
	out, err := c.outcome(args...)
	code := 0
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		code = e.ExitCode()
	}
	if code != want {
		c.t.Errorf("dew %s: status %d, want %d\n%s\ndewd said:\n%s", strings.Join(args, " "), code, want, out, c.said)
	}
	return out
}

// recent returns the newest lines of the app.
func (c *cell) recent() string {
	c.t.Helper()
	out, err := c.outcome("logs", "shop", "--recent")
	if err != nil {
		c.t.Fatalf("dew logs: %v\n%s", err, out)
	}
	return out
}

// Tasks run once in real containers, and their results are reported.
func TestTasks(t *testing.T) {
	runParallel(t)
	c := newCell(t, "--kill-delay", "1s")
	c.start()
	c.pushForTasks()

	c.exitCode(0, "run-task", "shop", "--wait", "--name", "well", "--command", `echo "colour=$COLOUR port=$PORT addr=$CF_INSTANCE_ADDR limit=$MEMORY_LIMIT"; ls; pwd`, "-m", "32M")
	lines := c.recent()
	for _, want := range []string{"[APP/TASK/well/0] OUT colour=green port= addr= limit=32m", "[APP/TASK/well/0] OUT testapp", "OUT /home/vcap/app", "[APP/TASK/well/0] OUT Exit status 0"} {
		if !strings.Contains(lines, want) {
			t.Errorf("the log has no %q:\n%s", want, lines)
		}
	}
	c.exitCode(0, "run-task", "shop", "--wait", "--name", "template")
	if lines := c.recent(); !strings.Contains(lines, "[APP/TASK/template/0] OUT from the Procfile") {
		t.Errorf("the template was not run:\n%s", lines)
	}
	if out := c.exitCode(3, "run-task", "shop", "--wait", "--name", "badly", "--command", "echo oh; exit 3"); !strings.Contains(out, "oh\n") || !strings.Contains(out, "task badly exited with status 3") {
		t.Errorf("dew says %s", out)
	}
	if out := c.exitCode(137, "run-task", "shop", "--wait", "--name", "greedy", "--command", "./testapp alloc 64", "-m", "16M"); !strings.Contains(out, "task greedy exited with status 137 (out of memory)") {
		t.Errorf("dew says %s", out)
	}
	if out := c.exitCode(1, "run-task", "shop", "--wait", "--name", "large", "--command", "head -c 8M /dev/zero >big", "-k", "2M"); !strings.Contains(out, "task large exited with status 1 (disk quota exceeded)") {
		t.Errorf("dew says %s", out)
	}
	c.noLeaves()
	c.cancelsTasks()
}

// cancelsTasks cancels a task that handles SIGTERM, one that ignores it, and one by
// deleting its app.
func (c *cell) cancelsTasks() {
	c.t.Helper()
	c.dew("run-task", "shop", "--command", "sleep 1000")
	c.dew("run-task", "shop", "--command", "trap '' TERM; echo deaf; while :; do sleep 1; done")
	for _, id := range []string{"6", "7"} {
		c.eventually("task "+id+" runs", func() error {
			if s := c.taskOf(id).State; s != v3.TaskRunning {
				return errors.New(s)
			}
			return nil
		})
	}
	c.eventually("the task is deaf", func() error {
		if !strings.Contains(c.recent(), "deaf") {
			return errors.New("it has not said so")
		}
		return nil
	})
	for _, leaves := range c.containers(2) {
		if len(leaves["sidecar-0"]) > 0 {
			c.t.Errorf("a task has a sidecar: %v", leaves)
		}
	}
	for _, id := range []string{"6", "7"} {
		c.dew("terminate-task", "shop", id)
		if state, why := c.ended(id); state != v3.TaskFailed || why != "task was cancelled" {
			c.t.Errorf("task %s is %s, %q", id, state, why)
		}
	}
	c.noLeaves()
	c.dew("run-task", "shop", "--command", "sleep 1000")
	c.containers(1)
	c.dew("delete", "shop", "-f")
	c.noLeaves()
}

// dewd can be killed while tasks run, finish and start. Each task runs once, keeps
// running, and its exit is recorded.
func TestTasksOutliveDaemon(t *testing.T) {
	runParallel(t)
	c := newCell(t, "--kill-delay", "1s")
	c.start()
	c.pushForTasks()
	c.dew("run-task", "shop", "--name", "long", "--command", "echo begun; while ! [ -e /tmp/never ]; do sleep 0.2; done")
	c.dew("run-task", "shop", "--name", "missed", "--command", "sleep 5; echo last words; exit 5")
	before := c.containers(2)
	c.eventually("the second one runs", func() error { // before that, its launcher can still wait for dewd
		if s := c.taskOf("2").State; s != v3.TaskRunning {
			return errors.New(s)
		}
		return nil
	})
	c.kill(syscall.SIGKILL)
	c.eventually("the second one ends while nobody looks", func() error {
		for _, leaves := range c.leaves() {
			if len(leaves["main"]) == 0 {
				return nil
			}
		}
		return errors.New("both run")
	})
	c.start()
	if state, why := c.ended("2"); state != v3.TaskFailed || why != "APP/TASK/missed: Exited with status 5" {
		t.Errorf("the missed end is %s, %q", state, why)
	}
	if got := c.taskOf("1"); got.State != v3.TaskRunning {
		t.Errorf("the living task is %s", got.State)
	}
	for id := range c.containers(1) {
		if before[id] == nil {
			t.Errorf("another container runs: %s", id)
		}
	}
	lines := c.recent()
	for text, want := range map[string]int{"OUT last words": 1, "OUT begun": 1, "Exit status 5": 1} {
		if got := strings.Count(lines, text); got != want {
			t.Errorf("the log has %q %d times, want %d:\n%s", text, got, want, lines)
		}
	}
	// Killed while a task starts: it starts once.
	c.dew("run-task", "shop", "--name", "third", "--command", "echo third begins; sleep 1")
	c.kill(syscall.SIGKILL)
	c.start()
	if state, why := c.ended("3"); state != v3.TaskSucceeded {
		t.Errorf("the third is %s, %q", state, why)
	}
	if lines := c.recent(); strings.Count(lines, "OUT third begins") != 1 {
		t.Errorf("the third did not run once:\n%s", lines)
	}
	c.dew("terminate-task", "shop", "1")
	if state, why := c.ended("1"); state != v3.TaskFailed || why != "task was cancelled" {
		t.Errorf("an adopted task that is canceled is %s, %q", state, why)
	}
	c.noLeaves()
}
