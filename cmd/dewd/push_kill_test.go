//go:build integration

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dewd is killed after the n-th commit and after the n-th call of containerd of a push,
// for every n. After a restart, the same push succeeds and nothing is left of the first
// one.
func TestPushSurvivesEveryKill(t *testing.T) {
	runParallel(t)
	step := rounds(8, 1)
	for _, kind := range []string{"commit", "call"} {
		t.Run(kind, func(t *testing.T) {
			c := newCell(t, "--kill-delay", "1s")
			for n := 1 + rand.N(step); ; n += step { // every run tries different numbers
				died := c.pushAndKill(n, kind)
				c.start()
				c.dew("push", "mortal", "-f", c.manifest(n))
				c.settled(1)
				c.eventually("the things of one instance", c.checkOneInstance)
				c.dew("delete", "mortal", "-f", "-r")
				c.eventually("nothing runs", func() error {
					if got := c.leaves(); len(got) != 0 {
						return fmt.Errorf("%v", got)
					}
					return nil
				})
				c.kill(syscall.SIGKILL)
				if !died {
					t.Logf("a push has fewer than %d", n)
					return
				}
			}
		})
	}
}

// pushAndKill pushes to a daemon that dies at that moment, and reports whether it died.
func (c *cell) pushAndKill(n int, kind string) bool {
	c.t.Helper()
	armed := filepath.Join(filepath.Dir(c.root), "armed")
	if err := os.RemoveAll(armed); err != nil {
		c.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	c.launchAs(self, fmt.Sprintf("DEW_TEST_DIE=%s %d", kind, n), "DEW_TEST_ARMED="+armed)
	c.awaitSocket()
	if err := os.Mkdir(armed, 0o700); err != nil {
		c.t.Fatal(err)
	}
	return c.killedDuring("push", "mortal", "-f", c.manifest(n))
}

// killedDuring runs a command and reports whether dewd died. Otherwise it stops dewd, because
// the count was not reached. A command that fails while dewd runs is an error.
func (c *cell) killedDuring(args ...string) bool {
	c.t.Helper()
	out, failed := c.outcome(args...)
	if failed == nil {
		c.kill(syscall.SIGKILL)
		return false
	}
	late := time.AfterFunc(patience, func() { _ = c.cmd.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	var ended *exec.ExitError
	if err := c.cmd.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		c.t.Fatalf("dew %s failed although dewd lives: %s\n%v\n%s", strings.Join(args, " "), out, err, c.said)
	}
	c.cmd = nil
	return true
}

// manifest writes an app whose bits depend on n, so that every push stages.
func (c *cell) manifest(n int) string {
	c.t.Helper()
	dir := filepath.Join(filepath.Dir(c.root), "app")
	text := fmt.Sprintf(`applications:
- name: mortal
  buildpacks: [binary_buildpack]
  path: %s
  command: %q
  memory: 128M
  health-check-type: process
  sidecars:
  - {name: config server, process_types: [web], command: %q, memory: 32MB}
`, dir, idle, idle)
	for name, data := range map[string]string{"app/number": strconv.Itoa(n), "manifest.yml": text} {
		path := filepath.Join(filepath.Dir(c.root), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			c.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	return filepath.Join(filepath.Dir(c.root), "manifest.yml")
}
