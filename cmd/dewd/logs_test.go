//go:build integration

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/testkit"
)

// pushLogs pushes testapp as the app sample, with a sidecar. more has further lines of
// the manifest. It does not check that the app runs.
func (c *cell) pushLogs(command, sidecar string, more ...string) {
	c.t.Helper()
	dir := filepath.Join(filepath.Dir(c.root), "app")
	program, err := os.ReadFile(filepath.Join(programs, "testapp"))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "testapp"), program, 0o755)
	}
	text := fmt.Sprintf("applications:\n- name: sample\n  path: %s\n  command: %q\n  memory: 256M\n  buildpacks: [binary_buildpack]\n  health-check-type: process\n  no-route: true\n"+
		"  sidecars:\n  - {name: config server, process_types: [web], command: %q, memory: 64MB}\n", dir, command, sidecar)
	for _, key := range more {
		text += "  " + key + "\n"
	}
	file := filepath.Join(filepath.Dir(c.root), "manifest.yml")
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := c.dewCommand("push", "-f", file).CombinedOutput()
	if code := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &code) || code.ExitCode() != 4) {
		c.t.Fatalf("dew push: %v\n%s\n%s", err, out, c.said)
	}
}

// appLog returns the folder of the only log.
func (c *cell) appLog() string {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(c.root, "logs", "*", "capture"))
	if err != nil || len(found) != 1 {
		c.t.Fatalf("logs = %v, %v", found, err)
	}
	return filepath.Dir(found[0])
}

// output runs a dew command that must succeed and returns its output.
func (c *cell) output(args ...string) string {
	c.t.Helper()
	var talk bytes.Buffer
	cmd := c.dewCommand(args...)
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("dew %s: %v\n%s%s", strings.Join(args, " "), err, out, &talk)
	}
	return string(out)
}

// logLines returns log lines from JSON.
func (c *cell) logLines(args ...string) []v3.Line {
	c.t.Helper()
	var lines []v3.Line
	for text := range strings.Lines(c.output(append([]string{"logs", "sample", "--recent", "--json"}, args...)...)) {
		var l v3.Line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			c.t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

// The last line of the process that exited first is right before the record that names
// it. This holds for a line without a newline, with invalid UTF-8, and with a child
// that still holds the pipe. The last lines of the other processes are there as well.
func TestOutputBeforeExit(t *testing.T) {
	runParallel(t)
	c := newCell(t, "--immediate-restarts", "1", "--backoff-first", "1h", "--backoff-max", "2h", "--kill-delay", "2s")
	c.start()
	c.pushLogs("exec ./testapp last-words", "trap 'echo sidecar says goodbye; exit 0' TERM; echo sidecar is here; while :; do sleep 0.1; done")
	var lines []v3.Line
	find := func(text string) int {
		return slices.IndexFunc(lines, func(l v3.Line) bool { return strings.Contains(string(l.Text), text) })
	}
	c.eventually("the last line of the sidecar", func() error {
		lines = c.logLines()
		if find("sidecar says goodbye") < 0 {
			return fmt.Errorf("not in %d lines", len(lines))
		}
		return nil
	})
	last, record := find("last words"), find("App instance exited")
	if record != last+1 || !strings.Contains(string(lines[max(record, 0)].Text), "APP/PROC/WEB: Exited with status 3") {
		t.Errorf("the last words are line %d, the record is line %d of %v", last, record, lines)
	}
	for text, source := range map[string]string{
		"first words": "APP/PROC/WEB", "last words": "APP/PROC/WEB", "\xff\x00 binary": "APP/PROC/WEB", "sleeping": "APP/PROC/WEB",
		"sidecar is here": "APP/PROC/WEB/SIDECAR/CONFIG SERVER", "sidecar says goodbye": "APP/PROC/WEB/SIDECAR/CONFIG SERVER",
		"App instance exited": "API",
	} {
		if i := find(text); i < 0 || lines[i].Source != source {
			t.Errorf("%q: line %d of %v, want it from %s", text, i, lines, source)
		}
	}
	if text := c.output("logs", "sample", "--recent"); !strings.Contains(text, "[APP/PROC/WEB/0] OUT last words\n") ||
		!strings.Contains(text, "[APP/PROC/WEB/SIDECAR/CONFIG SERVER/0] OUT sidecar is here\n") {
		t.Errorf("dew logs says\n%s", text)
	}
	if got := c.output("logs", "sample", "--recent", "--raw", "--stream", "err", "--process", "web", "--no-sidecars"); got != "\xff\x00 binary\n" {
		t.Errorf("stderr = %q", got)
	}
	// The record is stored shortly after its line.
	c.eventually("the lines of the crash", func() error {
		out, err := c.outcome("logs", "sample", "--recent", "--crash", "1")
		if err != nil || !strings.Contains(out, "OUT last words\n") {
			return fmt.Errorf("%w: %s", err, out)
		}
		if strings.Contains(out, "[CELL/") || strings.Contains(out, "[API/") || strings.Count(out, "OUT last words\n") != 1 {
			t.Errorf("other lines than those of the crashed instance:\n%s", out)
		}
		return nil
	})
	// The second instance can be very new.
	c.eventually("the lines of web since its last start", func() error {
		got := c.logLines("--since-last-start", "--no-sidecars", "--process", "web")
		if len(got) != 4 || string(got[3].Text) != "last words" {
			return fmt.Errorf("they are %v", got)
		}
		return nil
	})
}

// numbers checks that a stream has every number once and in order.
type numbers struct {
	next map[string]int
	bad  []string
}

func (n *numbers) take(text string) {
	var stream string
	var i int
	if _, err := fmt.Sscanf(text, "%s %d ", &stream, &i); err != nil || stream != "out" && stream != "err" {
		return // a line of dew
	}
	if n.next == nil {
		n.next = map[string]int{}
	}
	if i != n.next[stream] && len(n.bad) < 5 {
		n.bad = append(n.bad, fmt.Sprintf("%s: %d follows %d", stream, i, n.next[stream]-1))
	}
	n.next[stream] = i + 1
}

func (n *numbers) total() int { return n.next["out"] + n.next["err"] }

// reader is a dew logs that follows from the first line.
type reader struct {
	cmd  *exec.Cmd
	out  io.Reader
	talk *bytes.Buffer
	got  atomic.Int64 // lines so far
	numbers
}

func (c *cell) reader() *reader {
	c.t.Helper()
	r := &reader{cmd: c.dewCommand("logs", "sample", "-n", "1000000000", "--raw"), talk: &bytes.Buffer{}}
	r.cmd.Stderr = r.talk
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	r.out = out
	return r
}

// readUntil reads want numbers, with a pause after every few lines, and stops.
func (r *reader) readUntil(want, every int, pause time.Duration) error {
	s := bufio.NewScanner(r.out)
	s.Buffer(make([]byte, 64<<10), 1<<20)
	for lines := 0; r.total() < want && s.Scan(); lines++ {
		r.take(s.Text())
		r.got.Store(int64(r.total()))
		if every > 0 && lines%every == every-1 {
			time.Sleep(pause) // simulates a slow reader
		}
	}
	if r.total() < want {
		return fmt.Errorf("ended after %d of %d: %w\n%s", r.total(), want, errors.Join(s.Err(), r.cmd.Wait()), r.talk)
	}
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait() // it was killed
	return nil
}

// An app prints numbered lines to both streams while dewd is killed five times and
// containerd once. Four readers have different speeds, and one of them stops for a long
// time. Each of them gets every line once and in order, and the log is not damaged.
func TestLogsLoseNothing(t *testing.T) {
	runParallel(t)
	lines, rate := rounds(60_000, 5_000_000), rounds(10_000, 100_000)
	stop := time.Duration(rounds(3, 30)) * time.Second
	c := newCell(t, "--log-retention", "1GiB")
	c.start()
	c.pushLogs(fmt.Sprintf("until [ -e begin ]; do sleep 0.1; done; exec ./testapp count %d %d", lines, rate), idle)
	var group sync.WaitGroup
	readers := []*reader{c.reader(), c.reader(), c.reader(), c.reader()}
	c.dew("ssh", "sample", "-c", "touch begin") // independent of the time of the push
	for i, r := range readers {
		group.Go(func() {
			every, pause := []int{0, 1000, 5000, lines / 2}[i], []time.Duration{0, time.Millisecond, 20 * time.Millisecond, stop}[i]
			if err := r.readUntil(lines, every, pause); err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	lasts := time.Duration(lines) * time.Second / time.Duration(rate)
	for i := range 5 {
		c.eventually("readers have come further", testkit.True(func() bool { return readers[0].got.Load() > int64(lines*(i+1)/8) }))
		if i == 2 {
			killPID(t, c.privatePID())
		}
		c.kill(syscall.SIGKILL)
		time.Sleep(lasts / 40) // the app prints while no dewd runs
		c.start()
	}
	group.Wait()
	for i, r := range readers {
		if r.total() != lines || len(r.bad) > 0 {
			t.Errorf("reader %d has %d of %d lines: %v", i, r.total(), lines, r.bad)
		}
		if got := strings.Count(r.talk.String(), "connected to dewd again"); got < 1 {
			t.Errorf("reader %d was not told that dewd came back:\n%s", i, r.talk)
		}
	}
	c.dew("logs", "sample", "--verify")
	stored := &numbers{}
	for text := range strings.Lines(c.output("logs", "sample", "--recent", "-n", "1000000000", "--raw")) {
		stored.take(text)
	}
	if stored.total() != lines || len(stored.bad) > 0 {
		t.Errorf("stored: %d of %d lines: %v", stored.total(), lines, stored.bad)
	}
	c.checkDamageIsFound()
}

// checkDamageIsFound flips a byte of the log, and then removes a batch.
func (c *cell) checkDamageIsFound() {
	c.t.Helper()
	segments, err := filepath.Glob(filepath.Join(c.appLog(), "*.seg"))
	if err != nil || len(segments) == 0 {
		c.t.Fatal("no segments:", err)
	}
	whole, err := os.ReadFile(segments[0])
	if err != nil {
		c.t.Fatal(err)
	}
	flipped := slices.Clone(whole)
	flipped[len(flipped)/2] ^= 0x10
	for what, data := range map[string][]byte{"a flipped byte": flipped, "a batch that is gone": withoutBatch(whole)} {
		if err := os.WriteFile(segments[0], data, 0o600); err != nil {
			c.t.Fatal(err)
		}
		cmd := c.dewCommand("logs", "sample", "--verify")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "damaged") {
			c.t.Errorf("%s: %v\n%s", what, err, out)
		}
	}
	if err := os.WriteFile(segments[0], whole, 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.dew("logs", "sample", "--verify")
}

// withoutBatch removes the second batch from a segment, so that the rest has valid
// checksums.
func withoutBatch(b []byte) []byte {
	const header, frameHead = 32, 8
	size := func(at int) int { return frameHead + int(binary.LittleEndian.Uint32(b[at:])) }
	first := header + size(header) // after the checkpoint
	second := first + size(first)
	return append(slices.Clone(b[:second]), b[second+size(second):]...)
}

// An app prints more than the retention keeps. The dropped lines in the records and the
// stored lines add up to all printed lines.
func TestRetentionAddsUp(t *testing.T) {
	runParallel(t)
	lines := rounds(100_000, 2_000_000)
	c := newCell(t, "--log-retention", "2MiB")
	c.start()
	c.pushLogs(fmt.Sprintf("exec ./testapp count %d 0", lines), idle)
	c.eventually("all is printed", func() error {
		if out := c.output("logs", "sample", "--recent", "--grep", "end after", "--raw"); !strings.Contains(out, "end after") {
			return errors.New("not yet")
		}
		return nil
	})
	c.eventually("what was dropped last is told", func() error { // it takes up to a second
		all := c.logLines("-n", "1000000000")
		for _, l := range slices.Backward(all) {
			if l.Lost == nil {
				continue
			}
			if want := fmt.Sprintf("the oldest stored line is number %d", all[0].Seq); !strings.Contains(string(l.Text), want) {
				return fmt.Errorf("%s; want %s", l.Text, want)
			}
			return nil
		}
		return errors.New("nothing is told")
	})
	c.dew("logs", "sample", "--verify")
	log := c.appLog()
	c.kill(syscall.SIGKILL)
	c.read(func(b diskState) {
		all := allKept(t, b, log)
		first, last := all[0].Seq, all[len(all)-1].Seq
		var told int64
		gone := int64(first) - 1
		for _, e := range all {
			if e.Lost != nil && e.Lost.Cause == logstream.LostRetention {
				told = e.Lost.Lines
				gone -= told
			}
		}
		// Older records can be dropped as well. The last one must name the oldest
		// stored line.
		if told == 0 || !bytes.Contains(newestRecord(all).Text, fmt.Appendf(nil, "the oldest stored line is number %d", first)) {
			t.Errorf("kept %d to %d, the newest record is %v", first, last, newestRecord(all))
		}
		if gone < 0 || int64(last-first)+1 != int64(len(all)) {
			t.Errorf("kept %d lines from %d to %d, records told of %d too many", len(all), first, last, -gone)
		}
	})
}

func newestRecord(all []logstream.Envelope) logstream.Envelope {
	for _, e := range slices.Backward(all) {
		if e.Lost != nil {
			return e
		}
	}
	return logstream.Envelope{}
}

// allKept returns the lines that the retention kept.
func allKept(t *testing.T, b diskState, log string) []logstream.Envelope {
	t.Helper()
	l, err := b.logs.App(filepath.Base(log))
	if err != nil {
		t.Fatal(err)
	}
	var all []logstream.Envelope
	for c := l.Cursor(1).UpTo(l.LastSeq()); ; {
		es, err := c.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, es...)
	}
}

// Lines over the rate limit of an instance are dropped and counted. Every number is
// either stored or counted.
func TestLogRateLimit(t *testing.T) {
	const lines = 20_000
	c := newCell(t)
	c.start()
	c.pushLogs(fmt.Sprintf("exec ./testapp count %d 10000", lines), idle, "log-rate-limit-per-second: 16K")
	c.eventually("some lines are kept", func() error {
		if n := len(c.logLines("-n", "1000000")); n < 100 {
			return fmt.Errorf("%d lines", n)
		}
		return nil
	})
	c.kill(syscall.SIGKILL) // the adopted instance has the same limit
	c.start()
	kept, dropped := 0, int64(0)
	c.eventually("every line is there or told of", func() error {
		kept, dropped = 0, 0
		for _, l := range c.logLines("-n", "1000000") {
			switch {
			case l.Lost != nil && l.Lost.Cause == logstream.LostRate:
				dropped += l.Lost.Lines
				if !strings.HasPrefix(string(l.Text), "app instance exceeded log rate limit (16384 bytes/sec)") || l.Source != "CELL" {
					t.Fatalf("record = %+v", l)
				}
			case l.Source == "APP/PROC/WEB":
				kept++
			}
		}
		if kept+int(dropped) != lines+1 { // one line marks the end
			return fmt.Errorf("%d kept, %d dropped", kept, dropped)
		}
		return nil
	})
	if kept == 0 || dropped < lines/2 {
		t.Errorf("%d kept, %d dropped", kept, dropped)
	}
	c.dew("logs", "sample", "--verify")
}
