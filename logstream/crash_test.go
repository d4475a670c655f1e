package logstream

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/logstream/disk"
	"github.com/dewrun/dew/testkit"
)

// crashes is small in a normal run. Set the flag higher for a long run.
var crashes = flag.Int("crashes", 5, "how often the following process is killed")

const crashDir = "LOGSTREAM_CRASH_DIR"

// TestMain turns the test binary into the process that TestKilled kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		fmt.Fprintln(os.Stderr, followUntilKilled(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// followUntilKilled follows, syncs and punches as fast as it can.
func followUntilKilled(dir string) error {
	ls, err := open(dir, Options{SegmentBytes: 256 << 10}, quickDisk())
	if err != nil {
		return err
	}
	l, err := ls.App("app-1")
	if err != nil {
		return err
	}
	if _, err := l.Tail(Capture{Source: web("i-1"), Exec: "main", Stream: Out, Late: true}); err != nil {
		return err
	}
	fmt.Println("following")
	for range time.Tick(200 * time.Microsecond) {
		ls.syncAndPunch(disk.Block)
	}
	return nil
}

// A following process is killed repeatedly at random moments while another process
// prints. At the end every line is in the log exactly once, in order.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newApp(t, newLogs(t, dir, Options{}))
	f := capture(t, l, Out)
	if err := l.logs.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	printed := make(chan int)
	go func() { printed <- printLines(ctx, t, f) }()
	for range *crashes {
		killSoon(t, dir)
	}
	stop()
	want := <-printed

	l = newApp(t, newLogs(t, dir, Options{}))
	last, err := follow(t, l, Capture{Late: true}).Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append(last...); err != nil {
		t.Fatal(err)
	}
	if l.LastSeq() != uint64(want) {
		t.Errorf("%d lines in the log, %d were printed", l.LastSeq(), want)
	}
	for i, e := range take(t, l.Cursor(0), want) {
		if number, _, _ := strings.Cut(string(e.Text), " "); number != strconv.Itoa(i) {
			t.Fatalf("line %d is %.40q (%d to %d)", i, e.Text, e.From, e.To)
		}
	}
	r := verify(t, l)
	t.Logf("%d lines in %d frames of %d segments", r.Lines, r.Frames, r.Segments)
}

// printLines prints numbered lines in bursts that can stop in the middle of a line.
func printLines(ctx context.Context, t *testing.T, f *os.File) int {
	rng := rand.New(rand.NewPCG(1, 2))
	n := 0
	var rest []byte
	for ctx.Err() == nil {
		for len(rest) < 32<<10 {
			rest = fmt.Appendf(rest, "%d %s\n", n, strings.Repeat("x", rng.IntN(200)))
			n++
		}
		burst := 1 + rng.IntN(len(rest))
		if _, err := f.Write(rest[:burst]); err != nil {
			t.Error(err)
		}
		rest = rest[burst:]
		testkit.RandomPause(time.Millisecond)
	}
	if _, err := f.Write(rest); err != nil {
		t.Error(err)
	}
	return n
}

// killSoon starts a follower, waits until it follows, and kills it at a random
// moment.
func killSoon(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if ready := bufio.NewScanner(out).Scan(); !ready {
		t.Error("the follower did not start")
	}
	testkit.RandomPause(30 * time.Millisecond)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the follower ended by itself: %v", err)
	}
}
