//go:build integration

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

// rounds is the number of repetitions of a random test, which is larger in the long
// version.
func rounds(short, proof int) int {
	if os.Getenv("DEW_PROOF") != "" {
		return proof
	}
	return short
}

const idle = "while :; do sleep 1000; done"

// Killing dewd stops no instance: the next dewd adopts the same processes.
func TestKilledDaemonIsReplaced(t *testing.T) {
	runParallel(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			c := newCell(t)
			c.storeApp(idle, idle)
			c.start()
			before := c.settled(1)
			c.kill(sig)
			if diff := cmp.Diff(before, c.leaves()); diff != "" {
				t.Errorf("processes changed while no dewd was there (-before +now):\n%s", diff)
			}
			c.start()
			c.eventually("dewd adopts the instance", testkit.True(func() bool { return strings.Contains(c.said.String(), "instance adopted") }))
			c.checkUnchanged("the processes under the next dewd", before)
			c.kill(syscall.SIGKILL)
			c.read(func(b diskState) {
				if got := recordLines(t, b); len(got) != 0 {
					t.Errorf("records = %v, want none: nothing crashed", got)
				}
			})
		})
	}
}

// checkUnchanged fails if other processes run than before. It watches long enough to
// see a wrong restart or a false crash.
func (c *cell) checkUnchanged(what string, before map[string]map[string][]int) {
	c.t.Helper()
	testkit.Stays(c.t, what, 300*time.Millisecond, func() error {
		if diff := cmp.Diff(before, c.leaves()); diff != "" {
			return fmt.Errorf("they changed (-before +now):\n%s", diff)
		}
		return nil
	})
}

// The next dewd records a sidecar's exit that happened while no dewd was running.
func TestExitMissedByTheDaemonIsARecord(t *testing.T) {
	c := newCell(t)
	c.storeApp(idle, idle)
	c.start()
	id, leaves := only(t, c.settled(1))
	c.kill(syscall.SIGKILL)
	leader, _ := leaderOf(t, leaves["sidecar-0"])
	for _, pid := range leaves["sidecar-0"] {
		killPID(t, pid)
	}
	c.eventually("somebody takes its status", func() error {
		if _, err := os.Stat("/proc/" + strconv.Itoa(leader)); err == nil {
			return fmt.Errorf("%d is still there", leader)
		}
		return nil
	})
	found := time.Now()
	c.start()
	c.settled(1, id)
	c.kill(syscall.SIGKILL)
	c.read(func(b diskState) {
		rs, err := b.exits.Process(guid)
		if err != nil || len(rs) != 1 {
			t.Fatalf("records = %+v, %v, want one", rs, err)
		}
		if want := "APP/PROC/WEB/SIDECAR/CONFIG SERVER: Exited with status 137"; rs[0].Description != want {
			t.Errorf("description = %q, want %q", rs[0].Description, want)
		}
		if d := rs[0].CrashedAt.Sub(found); d >= 0 {
			t.Errorf("crash time is %v after the next dewd began: want the time of the death, not of its discovery", d)
		}
		if got := len(recordLines(t, b)); got != 1 {
			t.Errorf("record lines = %d, want 1", got)
		}
	})
}

// dewd is killed repeatedly at random moments of starts, crashes and deletions. In the
// end exactly the desired instance runs, every crash is recorded once, and no partial
// files are left.
func TestKilledAtAnyMoment(t *testing.T) {
	runParallel(t)
	c := newCell(t, "--immediate-restarts", "1000", "--kill-delay", "100ms")
	// The sidecar exits repeatedly, so that kills happen in every phase.
	c.storeApp(idle, "sleep 0.$((RANDOM % 6)); exit 7")
	firstExitTime := c.firstExitTime()
	for i := range rounds(8, 300) {
		c.launch()
		testkit.RandomPause(firstExitTime)
		c.kill(syscall.SIGKILL)
		if n := len(c.leaves()); n > 2 {
			t.Fatalf("round %d: %d instances, want at most the one that ends and the next", i, n)
		}
	}
	// Now the sidecar stays, so that the instances can be counted.
	c.read(func(b diskState) {
		_, err := b.reg.UpdateSidecar("s", func(s *app.Sidecar) error { s.Command = idle; return nil })
		if err != nil {
			t.Fatal(err)
		}
	})
	c.start()
	c.settled(1)
	c.eventually("the things of one instance", c.checkOneInstance)
	c.kill(syscall.SIGKILL)
	c.read(func(b diskState) { checkRecords(t, b) })
}

// checkOneInstance counts the files and devices of instances in the run folder, the
// logs and the network.
func (c *cell) checkOneInstance() error {
	for what, pattern := range map[string]string{
		"folders": filepath.Join(c.run, "instances", "*"), "namespaces": filepath.Join(c.run, "netns", "*"),
		"captures": filepath.Join(c.root, "logs", "*", "capture", "*"), "tasks": filepath.Join(c.run, "containerd", "state", "io.containerd.runtime.v2.task", "*", "*"),
		"links": filepath.Join("/sys/class/net", c.names.Bridge, "brif", "*"),
	} {
		if found, err := filepath.Glob(pattern); err != nil || len(found) != 1 {
			return fmt.Errorf("%s = %v, %w, want 1", what, found, err)
		}
	}
	if found := c.shims(); len(found) != 1 {
		return fmt.Errorf("shims = %v, want 1", found)
	}
	return nil
}

// shims returns the command lines of the cell's running shims.
func (c *cell) shims() []string {
	var found []string
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		b, _ := os.ReadFile(file) // it has exited
		if line := strings.ReplaceAll(string(b), "\x00", " "); strings.Contains(line, "containerd-shim-runc-v2 -namespace "+c.names.Namespace+" ") {
			found = append(found, line)
		}
	}
	return found
}

// firstExitTime returns the time of this machine from the start of dewd to the exit
// of a first instance. Kills within it happen in every phase of both.
func (c *cell) firstExitTime() time.Duration {
	c.t.Helper()
	begun := time.Now()
	c.launch()
	first := ""
	c.eventually("an instance after the first", func() error {
		for id := range c.leaves() {
			if first == "" {
				first = id
			}
			if id != first {
				return nil
			}
		}
		return fmt.Errorf("first instance is %q", first)
	})
	c.kill(syscall.SIGKILL)
	return time.Since(begun)
}

// checkRecords compares the stored records with their lines: the same exits, each once.
func checkRecords(t *testing.T, b diskState) {
	t.Helper()
	rs, err := b.exits.Process(guid)
	if err != nil {
		t.Fatal(err)
	}
	told := recordLines(t, b)
	if n := len(rs) + 1; len(rs) >= 100 && len(told) > n {
		told = told[len(told)-n:] // older records were dropped
	}
	lines := map[string]int{}
	for _, l := range told {
		_, rest, _ := strings.Cut(l, `"instance":"`)
		lines[rest[:28]]++
	}
	t.Logf("%d crashes told", len(rs))
	if len(rs) == 0 {
		t.Error("no crash happened: the kills came too early")
	}
	for i, r := range rs {
		if r.First.Cause != runtime.CauseExited || r.First.Code != 7 {
			t.Errorf("record of %s = %s (%s %s), want the sidecar's exit 7", r.Instance, r.Description, r.First.Cause, r.First.Detail)
		}
		if n := lines[string(r.Instance)]; n != 1 && i < len(rs)-1 {
			t.Errorf("record lines of %s = %d, want 1", r.Instance, n)
		}
		delete(lines, string(r.Instance))
	}
	if len(lines) > 1 { // one can be killed between its line and its stored record
		t.Errorf("lines without a record: %v", lines)
	}
}

// killOnWord kills dewd when it prints a word.
type killOnWord struct {
	c    *cell
	word string
}

func (k killOnWord) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(k.word)) {
		_ = k.c.cmd.Process.Signal(syscall.SIGKILL) // it can be dead already
	}
	return len(b), nil
}

// dewd is killed between the exit line of a crash and its stored record, while the
// other process prints very many lines. The next dewd stores the record and does not
// write the line again.
func TestExitLineIsWrittenOnce(t *testing.T) {
	runParallel(t)
	c := newCell(t, "--immediate-restarts", "1000", "--kill-delay", "1s")
	c.storeApp("trap '' TERM; while :; do seq 1000000 1005000; sleep 0.02; done", "sleep 0.2; exit 7")
	for range rounds(2, 25) {
		c.extraOutput = killOnWord{c, "instance crashed"}
		c.launch()
		_ = c.cmd.Wait() // it was killed on purpose
		c.extraOutput = nil
		crashed := c.leaves()
		before := c.captured()
		c.eventually("many lines are printed", func() error {
			if n := c.captured() - before; n < 20_000*8 {
				return fmt.Errorf("%d bytes", n)
			}
			return nil
		})
		c.start()
		c.eventually("the crashed instance is gone", func() error {
			for id := range c.leaves() {
				if crashed[id] != nil {
					return fmt.Errorf("%s is there", id)
				}
			}
			return nil
		})
		c.kill(syscall.SIGKILL)
	}
	c.read(func(b diskState) { checkRecords(t, b) })
}

// captured returns the number of bytes that the main processes of all instances have
// printed.
func (c *cell) captured() (n int64) {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.root, "logs", "*", "capture", "*", "main.out"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			n += st.Size()
		}
	}
	return n
}

// Killing containerd causes no crash, and dewd can control the instances again.
func TestKilledContainerdIsNoCrash(t *testing.T) {
	runParallel(t)
	c := newCell(t)
	c.storeApp(idle, idle)
	c.start()
	before := c.settled(1)
	id, leaves := only(t, before)
	old := c.privatePID()
	killPID(t, old)
	c.eventually("a new containerd", func() error {
		if c.privatePID() == old {
			return fmt.Errorf("still the old one")
		}
		return nil
	})
	c.checkUnchanged("the processes under the next containerd", before)
	leader, _ := leaderOf(t, leaves["sidecar-0"])
	killPID(t, leader)
	c.settled(1, id) // a real crash is still detected, and followed by a start
	c.kill(syscall.SIGKILL)
	c.read(func(b diskState) {
		if got := recordLines(t, b); len(got) != 1 || !strings.Contains(got[0], "SIDECAR/CONFIG SERVER: Exited with status 137") {
			t.Errorf("records = %v, want the one kill", got)
		}
	})
}

// containerd is killed at random moments of starts. The instance runs in the end,
// without a false crash and without remains of the failed attempts.
func TestContainerdKilledDuringStart(t *testing.T) {
	runParallel(t)
	for range rounds(3, 40) {
		t.Run("round", killedDuringStart) // each with its own cell, which is removed before the next one
	}
}

func killedDuringStart(t *testing.T) {
	c := newCell(t)
	c.storeApp(idle, idle)
	c.launch()
	c.eventually("containerd runs", func() error {
		_, err := os.Stat(c.run + "/containerd/containerd.sock")
		_, noted := os.Stat(c.run + "/containerd/containerd.pid")
		return errors.Join(err, noted)
	})
	testkit.RandomPause(150 * time.Millisecond)
	killPID(t, c.privatePID())
	c.settled(1)
	c.eventually("the things of one instance", c.checkOneInstance)
	c.kill(syscall.SIGKILL)
	c.read(func(b diskState) {
		if got := recordLines(t, b); len(got) != 0 {
			t.Errorf("records = %v, want none", got)
		}
	})
}

// The exit statuses are lost if a shim is killed. A record says so.
func TestKilledShimIsRuntimeLost(t *testing.T) {
	runParallel(t)
	c := newCell(t)
	c.storeApp(idle, idle)
	c.start()
	id, leaves := only(t, c.settled(1))
	_, shim := leaderOf(t, leaves["sidecar-0"])
	killPID(t, shim)
	c.settled(1, id)
	c.kill(syscall.SIGKILL)
	c.read(func(b diskState) {
		rs, err := b.exits.Process(guid)
		if err != nil || len(rs) != 1 {
			t.Fatalf("records = %+v, %v, want one", rs, err)
		}
		if rs[0].First.Cause != runtime.CauseRuntimeLost {
			t.Errorf("cause = %s, want %s", rs[0].First.Cause, runtime.CauseRuntimeLost)
		}
	})
}

// leaderOf returns the process of a leaf whose parent is not in the leaf, and that
// parent: the shim, or PID 1 for the main process. The order of PIDs says nothing, because
// the kernel reuses them.
func leaderOf(t testing.TB, pids []int) (leader, parent int) {
	t.Helper()
	for _, pid := range pids {
		if parent := parentOf(t, pid); !slices.Contains(pids, parent) {
			return pid, parent
		}
	}
	t.Fatalf("no leader among %v", pids)
	return 0, 0
}

func parentOf(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "PPid:"); ok {
			ppid, err := strconv.Atoi(strings.TrimSpace(v))
			if err != nil {
				t.Fatal(err)
			}
			return ppid
		}
	}
	t.Fatalf("no parent of %d", pid)
	return 0
}
