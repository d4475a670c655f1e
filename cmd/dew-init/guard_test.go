package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

const mib = 1 << 20

func TestGuardDecides(t *testing.T) {
	g := &guard{limit: 256 * mib, reserve: 512 * mib}
	for _, tt := range []struct {
		name       string
		paused     bool
		held, free int64
		want       bool
	}{
		{"little", false, mib, 1 << 40, false},
		{"at the limit", false, 256 * mib, 1 << 40, false},
		{"above the limit", false, 256*mib + 1, 1 << 40, true},
		{"much is read, and much is left", true, 17 * mib, 1 << 40, true},
		{"what dewd gives back later", true, mib + mib/2, 1 << 40, false},
		{"more than a share of the free space", false, 151 * mib, 600 * mib, true},
		{"less than a share of the free space", false, 149 * mib, 600 * mib, false},
		{"low disk, more than a share", false, 13 * mib, 400 * mib, true},
		{"low disk, less than a share", false, 12 * mib, 400 * mib, false},
		{"low disk, half the share is read", true, 7 * mib, 400 * mib, true},
		{"low disk, it is read", true, 6 * mib, 400 * mib, false},
		{"full disk, an unfinished line", false, 200 << 10, 0, false},
		{"full disk, an unfinished line is left", true, 100 << 10, 0, false},
		{"full disk, more", false, 300 << 10, 0, true},
		{"the disk was cleared", true, 7 * mib, 1 << 40, false},
	} {
		if got := g.decide(tt.paused, tt.held, tt.free); got != tt.want {
			t.Errorf("%s: paused = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// An instance that prints nothing is checked rarely. One that prints, or one on a disk
// with little space, is checked often enough.
func TestGuardWaits(t *testing.T) {
	var wait time.Duration
	for range 10 {
		wait = nextWait(wait, 256*mib, 1<<40, false, false)
	}
	if wait != longestWait {
		t.Errorf("idle: %s, want %s", wait, longestWait)
	}
	for _, tt := range []struct {
		name          string
		room, free    int64
		grown, paused bool
		want          time.Duration
	}{
		{"printing, far from the limit", 256 * mib, 1 << 40, true, false, 500 * time.Millisecond},
		{"printing, near the limit", 32 * mib, 1 << 40, true, false, 62500 * time.Microsecond},
		{"at the limit", 0, 1 << 40, true, false, shortestWait},
		{"above the limit", -mib, 1 << 40, true, true, shortestWait},
		{"paused", 0, 1 << 40, false, true, pausedWait},
		{"idle on a disk with little space", 256 * mib, 64 * mib, false, false, 125 * time.Millisecond},
		{"idle on a full disk", 256 * mib, 0, false, false, shortestWait},
	} {
		if got := nextWait(longestWait, tt.room, tt.free, tt.grown, tt.paused); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// PID 1 pauses a process whose capture file grows, again at every check. It continues
// the process when the file is read and punched. Other processes keep running.
func TestGuardPausesAndContinues(t *testing.T) {
	capture, freezer := t.TempDir(), t.TempDir()
	execs := []string{"main", "sidecar-0"}
	for _, exec := range execs {
		for _, path := range []string{capture + "/" + exec + ".out", capture + "/" + exec + ".err", freezer + "/" + exec} {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	args := append([]string{"--capture", capture, "--freezer", freezer, "--freeze", "FROZEN", "--thaw", "THAWED", "--limit", strconv.Itoa(4 * mib), "--reserve", "1", "--"}, execs...)
	cmd := startInit(t, "", args...)
	out, err := os.OpenFile(capture+"/main.err", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	state := func(want string) {
		t.Helper()
		testkit.EventuallyTrue(t, "main to be "+want, func() bool {
			b, err := os.ReadFile(freezer + "/main")
			return err == nil && string(b) == want
		})
	}
	if _, err := out.Write(bytes.Repeat([]byte("x"), 5*mib)); err != nil {
		t.Fatal(err)
	}
	state("FROZEN")
	if err := os.WriteFile(freezer+"/main", []byte("other"), 0o600); err != nil { // as a dewd does that is then killed
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "main to be paused again", func() bool {
		b, err := os.ReadFile(freezer + "/main")
		return err == nil && strings.HasPrefix(string(b), "FROZEN")
	})
	const punch = 3 // FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
	if err := syscall.Fallocate(int(out.Fd()), punch, 0, 4*mib); err != nil {
		t.Fatal(err)
	}
	state("THAWED")
	if b, err := os.ReadFile(filepath.Join(freezer, "sidecar-0")); err != nil || len(b) != 0 {
		t.Errorf("the freezer of the sidecar was told %q, %v", b, err)
	}
	if rss := procStatus(t, cmd.Process.Pid, "VmRSS"); rss == "" {
		t.Error("PID 1 is gone")
	}
}

// A process whose files do not exist runs without a guard.
func TestGuardWithoutFiles(t *testing.T) {
	dir := t.TempDir()
	cmd := startInit(t, "", "--capture", dir, "--freezer", dir, "--freeze", "1", "--thaw", "0", "--limit", "1", "--reserve", "1", "--", "main")
	if got := procStatus(t, cmd.Process.Pid, "Name"); got != "dew-init" {
		t.Errorf("PID 1 is %q", got)
	}
}

func TestParseGuard(t *testing.T) {
	whole := []string{"--capture", "c", "--freezer", "f", "--freeze", "1", "--thaw", "0", "--limit", "7", "--reserve", "8", "--", "main", "sidecar-0"}
	g, err := parseGuard(whole)
	if err != nil || g.capture != "c" || g.freezer != "f" || g.freeze != "1" || g.thaw != "0" || g.limit != 7 || g.reserve != 8 || len(g.execs) != 2 {
		t.Errorf("%+v, %v", g, err)
	}
	for _, args := range [][]string{whole[:13], whole[2:], {"--limit"}, {"--limit", "much", "--", "main"}, {"--what", "x"}} {
		if _, err := parseGuard(args); err == nil {
			t.Errorf("%q is no error", args)
		}
	}
}
