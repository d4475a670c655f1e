//go:build integration

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/testkit"
)

// An app that prints as fast as it can is paused soon after dewd was killed. It
// continues when the next dewd has stored its output: the same processes, and every
// line once and in order.
func TestOutputIsBoundedWithoutDewd(t *testing.T) {
	runParallel(t)
	lines, backlog := rounds(500_000, 2_400_000), rounds(3, 16)
	limit := int64(backlog) * 4 << 20
	c := newCell(t, "--log-backlog", fmt.Sprintf("%dM", backlog))
	c.storeApp(fmt.Sprintf("while [ ! -e go ]; do echo waiting; sleep 0.02; done; exec ./testapp count %d 0", lines), idle)
	c.start()
	id, before := only(t, c.settled(1))
	c.kill(syscall.SIGKILL)
	shell, _ := leaderOf(t, before["main"])
	// root of the machine is no user of the container, and cannot create files there.
	touch := exec.Command("nsenter", "-t", fmt.Sprint(shell), "-U", "-m", "-S", "2000", "-G", "2000", "touch", "/home/vcap/app/go")
	if out, err := touch.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.eventually("the app is paused", func() error { return c.paused(id, "main") })
	testkit.Stays(t, "the app is paused", time.Duration(rounds(200, 40_000))*time.Millisecond, func() error { return c.paused(id, "main") })
	held := c.held(id)
	t.Logf("%d MiB unread, the bound is %d MiB", held>>20, limit>>20)
	if whole := int64(lines) * 100; held >= whole || held < limit/2 {
		t.Errorf("%d bytes are unread, want about %d of %d", held, limit, whole)
	}
	c.start()
	c.eventually("the last line is stored", func() error {
		segments, _ := filepath.Glob(filepath.Join(c.root, "logs", guid, "*.seg"))
		for _, f := range segments {
			if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte("end after")) {
				return nil
			}
		}
		return fmt.Errorf("it is in none of %d segments", len(segments))
	})
	_, after := only(t, c.leaves())
	if now, _ := leaderOf(t, after["main"]); now != shell {
		t.Errorf("process %d runs, want %d", now, shell)
	}
	if diff := cmp.Diff(before["sidecar-0"], after["sidecar-0"]); diff != "" {
		t.Errorf("the sidecar changed (-before +after):\n%s", diff)
	}
	c.kill(syscall.SIGKILL)
	c.read(func(b diskState) { checkCounted(t, b, lines) })
}

// A paused app stops as soon as the next dewd must stop it, because it receives
// SIGTERM.
func TestPausedAppStops(t *testing.T) {
	runParallel(t)
	c := newCell(t, "--log-backlog", "1M", "--kill-delay", "1h")
	c.start()
	c.dew("push", "loud", "-f", c.loudManifest())
	c.kill(syscall.SIGKILL)
	id, _ := only(t, c.leaves())
	c.eventually("the app is paused", func() error { return c.paused(id, "main") })
	c.start()
	c.dew("stop", "loud")
	c.eventually("it ended", func() error {
		if got := c.leaves(); len(got) != 0 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	c.dew("logs", "loud", "--verify")
}

// loudManifest writes an app that prints as fast as it can.
func (c *cell) loudManifest() string {
	c.t.Helper()
	dir := filepath.Dir(c.root)
	text := fmt.Sprintf(`applications:
- name: loud
  buildpacks: [binary_buildpack]
  path: %s
  command: exec yes a line of an app that prints as fast as it can
  memory: 64M
  health-check-type: process
`, filepath.Join(dir, "app"))
	err := errors.Join(
		os.Mkdir(filepath.Join(dir, "app"), 0o755),
		os.WriteFile(filepath.Join(dir, "app", "file"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "manifest.yml"), []byte(text), 0o644),
	)
	if err != nil {
		c.t.Fatal(err)
	}
	return filepath.Join(dir, "manifest.yml")
}

// paused returns an error while a leaf is not frozen.
func (c *cell) paused(id, leaf string) error {
	for file, word := range map[string]string{"/sys/fs/cgroup/freezer/%s/%s/%s/freezer.state": "FROZEN", "/sys/fs/cgroup/%s/%s/%s/cgroup.freeze": "1"} {
		if b, err := os.ReadFile(fmt.Sprintf(file, c.names.Cgroup, id, leaf)); err == nil && strings.TrimSpace(string(b)) == word {
			return nil
		}
	}
	return errors.New("it runs")
}

// held returns the disk space of the capture files of an instance.
func (c *cell) held(id string) (n int64) {
	files, _ := filepath.Glob(filepath.Join(c.root, "logs", guid, "capture", id, "*"))
	for _, f := range files {
		var st syscall.Stat_t
		if err := syscall.Stat(f, &st); err == nil {
			n += st.Blocks * 512
		}
	}
	return n
}

// checkCounted checks for every line, and for the line about the pause.
func checkCounted(t *testing.T, b diskState, lines int) {
	t.Helper()
	l, err := b.logs.App(guid)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if report, err := l.Verify(ctx); err != nil {
		t.Errorf("the log is damaged: %v (%+v)", err, report)
	}
	next, told := map[string]int{}, 0
	for cur, seq := l.Cursor(1), uint64(0); seq < l.LastSeq(); {
		es, err := cur.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			seq = e.Seq
			switch text := string(e.Text); {
			case e.Flags&logstream.Gap != 0:
				t.Errorf("gap: %s", text)
			case strings.HasPrefix(text, "APP/PROC/WEB/0 was paused while dewd was not running"):
				told++
			case e.Source.Type == "APP/PROC/WEB" && text != "waiting" && !strings.HasPrefix(text, "end after"):
				stream, rest, _ := strings.Cut(text, " ")
				if number, _, _ := strings.Cut(rest, " "); number != strconv.Itoa(next[stream]) {
					t.Fatalf("%q follows line %d of its stream", text, next[stream]-1)
				}
				next[stream]++
			}
		}
	}
	want := map[string]int{"out": lines / 5 * 4, "err": lines / 5}
	if diff := cmp.Diff(want, next); diff != "" || told != 1 {
		t.Errorf("lines (-want +got):\n%sthe pause is told %d times, want once", diff, told)
	}
	if got := recordLines(t, b); len(got) != 0 {
		t.Errorf("records = %v, want none", got)
	}
}
