//go:build integration

package containerd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/policy"
	"github.com/dewrun/dew/testkit"
	"github.com/dewrun/dew/verdict"
)

// verdictCase is an instance that crashes for one cause.
type verdictCase struct {
	name     string
	command  string
	disk     int // MB; 0: the default
	sidecars []app.Sidecar
	check    app.HealthCheck
	act      func(w *world, p app.Process, st runtime.Status) // makes the running instance crash
	class    verdict.Class
	sentence string // PID stands for a process id
}

func checkPort(timeout time.Duration) app.HealthCheck {
	return app.HealthCheck{Type: app.CheckPort, Timeout: timeout, Interval: time.Second, InvocationTimeout: testkit.Patience}
}

// verdictCases has a case for every class, except those with a test of their own: they
// need a full disk, or a machine without memory.
func verdictCases(traced bool) []verdictCase {
	const unknown = "web ended with status 137: killed by SIGKILL from an unknown sender, or exited with 137 itself"
	itself, outside := "web was killed: it sent SIGKILL to itself", "web was killed: sh (process PID) sent it SIGKILL"
	if !traced {
		itself, outside = unknown, unknown
	}
	return []verdictCase{
		{name: "error", command: "echo loading; echo config.yml is missing >&2; exit 3", class: verdict.Exited, sentence: "web failed with status 3: config.yml is missing"},
		{name: "output", command: "echo out of paper; exit 3", class: verdict.Exited, sentence: "web failed with status 3; its last line: out of paper"},
		{name: "zero", command: "true", class: verdict.Exited, sentence: "web finished with exit status 0, but it must run until dew stops it"},
		{name: "fault", command: "kill -SEGV $$", class: verdict.Signaled, sentence: "web crashed with SIGSEGV: it accessed memory that it does not have"},
		{name: "itself", command: "kill -KILL $$", class: verdict.Killed, sentence: itself},
		{name: "status137", command: "exit 137", class: verdict.Killed, sentence: unknown},
		{name: "outside", command: "exec sleep 1000", act: killFromOutside, class: verdict.Killed, sentence: outside},
		{name: "user", command: "exec sleep 1000", act: killByUser, class: verdict.KilledByUser, sentence: "web was killed: admin sent it SIGKILL with dew"},
		{
			name: "leaf", command: "exec sleep 1000", sidecars: []app.Sidecar{sidecar("greedy", "exec ./testapp alloc 100", 32)},
			class: verdict.MemoryProcess, sentence: "sidecar greedy ran out of memory: it reached its limit of 32M",
		},
		{
			name: "child", command: "exec sleep 1000", sidecars: []app.Sidecar{sidecar("greedy", "exec ./testapp child-alloc 100", 32)},
			class: verdict.MemoryProcess, sentence: "sidecar greedy ran out of memory: it reached its limit of 32M",
		},
		{
			name: "whole", command: "exec sleep 1000", sidecars: []app.Sidecar{sidecar("greedy", "exec ./testapp alloc 300", 0)},
			class: verdict.MemoryInstance, sentence: "the instance ran out of memory: its processes together reached the limit of 128M",
		},
		{name: "missing", command: "no-such-command --serve", class: verdict.StartFailed, sentence: "web could not start: command no-such-command was not found"},
		{name: "port", command: "exec ./testapp serve 0.0.0.0:3000", check: checkPort(5 * time.Second), class: verdict.StartTimeout, sentence: "the app listens on port 3000, but it must listen on $PORT (8080)"},
		{
			name: "idle", command: "exec ./testapp sleep", check: checkPort(3 * time.Second),
			sidecars: []app.Sidecar{sidecar("other", "exec ./testapp serve 0.0.0.0:3001", 32)},
			class:    verdict.StartTimeout, sentence: "web did not open port 8080 within 3s",
		},
		{
			name: "silent", command: "exec ./testapp serve 0.0.0.0:8080", act: suspend, class: verdict.Unhealthy,
			check:    app.HealthCheck{Type: app.CheckHTTP, Endpoint: "/", Interval: time.Second, InvocationTimeout: 2 * time.Second},
			sentence: "the health check of web failed: GET / got no answer in time",
		},
		{
			name: "disk", disk: 16, class: verdict.DiskFull,
			command:  "mkdir -p tmp/cache; head -c 15M /dev/zero >tmp/cache/big; head -c 9M /dev/zero >log; exit 4",
			sentence: "web failed with status 4 after the instance had used 16M of its 16M disk limit; the largest directory is /home/vcap/app/tmp/cache (15M)",
		},
		{name: "init", command: "exec sleep 1000", act: killInit, class: verdict.ContainerLost, sentence: "the container of the instance ended, and its exit status is not known"},
	}
}

func killByUser(w *world, p app.Process, _ runtime.Status) {
	if err := w.sup.Signal(w.t.Context(), p.GUID, 0, "", runtime.SentSignal{Number: int(syscall.SIGKILL), User: "admin"}); err != nil {
		w.t.Fatal(err)
	}
}

// killFromOutside kills the process from a shell of the machine, which is not the
// daemon.
func killFromOutside(w *world, _ app.Process, st runtime.Status) {
	pid := strconv.Itoa(w.mainPID(st.Instance, runtime.MainExec))
	if out, err := exec.Command("sh", "-c", "kill -KILL "+pid).CombinedOutput(); err != nil {
		w.t.Fatalf("kill: %v\n%s", err, out)
	}
}

// suspend stops the process, so that it answers no health check.
func suspend(w *world, _ app.Process, st runtime.Status) {
	if err := syscall.Kill(w.mainPID(st.Instance, runtime.MainExec), syscall.SIGSTOP); err != nil {
		w.t.Fatal(err)
	}
}

func killInit(w *world, _ app.Process, st runtime.Status) { kill(w.t, w.initPIDOf(st.Instance)) }

// Every class of causes is recognised from the facts of a real instance, and the log has
// exactly one exit record and one explanation. The long version repeats that on a busy
// machine.
func TestVerdicts(t *testing.T) {
	rounds := verdictRounds(t)
	w := newWorld(t)
	w.policy = policy.Policy{KillDelay: time.Second}
	w.boot()
	cases := verdictCases(w.engine.signals != nil)
	for round := range rounds {
		ps := make([]app.Process, len(cases))
		for i, c := range cases {
			ps[i] = w.put(testApp{name: fmt.Sprintf("v%d-%d", round, i), memory: 128, disk: c.disk, command: c.command, check: c.check, sidecars: c.sidecars})
		}
		for i, c := range cases {
			t.Run(fmt.Sprintf("%s/%d", c.name, round), func(t *testing.T) { w.wantVerdict(t, ps[i], c) })
		}
	}
}

// verdictRounds is how often each case runs. The long version also keeps the machine
// busy.
func verdictRounds(t *testing.T) int {
	if os.Getenv("DEW_PROOF") == "" {
		return 1
	}
	keepBusy(t, 2*goruntime.NumCPU())
	return 20
}

// If the disk of the captured output is full, dew stops the process and the record says
// so. It notices that in a regular check, and after a failed health check: a process that
// cannot print does not answer.
func TestOutputFailed(t *testing.T) {
	rounds := verdictRounds(t)
	w := newWorld(t)
	w.boot()
	c := verdictCase{
		command: `trap 'while :; do echo a line of output; done' USR1; echo ready; while :; do sleep 0.1; done`,
		class:   verdict.OutputFailed, sentence: "dewd could not store the output of web any more, and stopped the instance so that no line is lost",
	}
	notice := []func(){
		func() { w.engine.checkCaptures(t.Context()) },
		func() {
			for _, c := range w.engine.known.all() {
				if err := c.Settle(t.Context()); err != nil {
					t.Error(err)
				}
			}
		},
	}
	for round := range rounds * len(notice) {
		var captures string
		p := w.put(testApp{name: fmt.Sprintf("output%d", round), memory: 64, command: c.command, spoil: func() {
			captures = smallDisk(t, filepath.Join(w.logDir, guidOf(fmt.Sprintf("output%d", round)), "capture"))
		}})
		w.running(p)
		w.line(p.App, "PROC/WEB", "ready")
		filler := fillUp(t, captures, 0)
		if err := w.sup.Signal(t.Context(), p.GUID, 0, "", runtime.SentSignal{Number: int(syscall.SIGUSR1), User: "admin"}); err != nil {
			t.Fatal(err)
		}
		w.eventually("the loss of the output is noticed", func() error {
			notice[round%len(notice)]()
			rs, err := w.sup.Exits().Process(p.GUID)
			if err == nil && len(rs) == 0 {
				err = errors.New("no exit record")
			}
			return err
		})
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		w.wantVerdict(t, p, c)
	}
}

// smallDisk mounts a small file system on a folder, which it creates.
func smallDisk(t *testing.T, dir string) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o700), syscall.Mount("dew-test", dir, "tmpfs", 0, "size=1m")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A process that the kernel kills because the whole machine has no memory left is not
// blamed for its own limit. Only a machine that nothing else uses can run this test.
func TestMachineOutOfMemory(t *testing.T) {
	if os.Getenv("DEW_VMTEST_GUEST") == "" {
		t.Skip("it uses all memory of the machine: DEW_VMTEST_RUN=TestMachineOutOfMemory make vmtest")
	}
	var m unix.Sysinfo_t
	if err := unix.Sysinfo(&m); err != nil {
		t.Fatal(err)
	}
	// Without this, the kernel first drops the pages of running programs again and again,
	// for many minutes.
	for file, value := range map[string]string{"enabled": "y", "min_ttl_ms": "1000"} {
		if err := os.WriteFile(filepath.Join("/sys/kernel/mm/lru_gen", file), []byte(value), 0o644); err != nil {
			t.Logf("the kernel cannot protect running programs: %v", err)
		}
	}
	all := int(m.Totalram * uint64(m.Unit) >> 20)
	w := newWorld(t)
	w.policy = policy.Policy{KillDelay: time.Second}
	w.boot()
	c := verdictCase{command: fmt.Sprintf("exec ./testapp alloc %d", all), class: verdict.MemoryHost, sentence: "this machine ran out of memory, and the kernel killed web"}
	p := w.put(testApp{name: "machine", memory: 2 * all, command: c.command, sidecars: []app.Sidecar{sidecar("s", "exec sleep 1000", 32)}})
	// The kernel of a guest without hardware support needs several minutes until it kills.
	for round := 0; round < 5; round++ {
		if testkit.Until(func() error { return w.hasRecord(p) }) == nil {
			break
		}
	}
	w.wantVerdict(t, p, c)
}

func (w *world) hasRecord(p app.Process) error {
	rs, err := runtime.NewExitLog(w.db, 0).Process(p.GUID)
	if err == nil && len(rs) == 0 {
		err = errors.New("no exit record yet")
	}
	return err
}

var processID = regexp.MustCompile(`process \d+`)

func (w *world) wantVerdict(t *testing.T, p app.Process, c verdictCase) {
	if c.act != nil {
		c.act(w, p, w.running(p))
	}
	r := w.record(p, 1)
	v := r.Verdict(c.name)
	sentence := processID.ReplaceAllString(v.Sentence, "process PID")
	if v.Class != c.class || sentence != c.sentence {
		t.Errorf("got  %s: %s\nwant %s: %s\nrecord %+v", v.Class, v.Sentence, c.class, c.sentence, r)
	}
	w.stop(p)
	records, explanations := 0, 0
	for _, l := range w.lines(p.App) {
		if strings.Contains(string(l.Text), string(r.Instance)) && strings.HasPrefix(string(l.Text), "App instance exited") {
			records++
		}
		if l.Source.Type == "CELL" && l.Source.InstanceID == string(r.Instance) && string(l.Text) == r.LogSentence() {
			explanations++
		}
	}
	if records != 1 || explanations != 1 {
		t.Errorf("%d exit records and %d explanations in the log, want one of each", records, explanations)
	}
}

// keepBusy starts programs that use the CPU until the test ends.
func keepBusy(t *testing.T, programs int) {
	t.Helper()
	for range programs {
		c := exec.Command("sh", "-c", "while :; do :; done")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	}
}

// A process that does not exit after SIGTERM is killed, and the record of the crash and
// the log say so.
func TestStubbornFollower(t *testing.T) {
	w := newWorld(t)
	w.policy = policy.Policy{KillDelay: time.Second}
	w.boot()
	p := w.put(testApp{name: "stubborn", memory: 128, command: `trap "" TERM; echo ready; while :; do sleep 0.1; done`, sidecars: []app.Sidecar{sidecar("s", "exec sleep 1000", 32)}})
	st := w.running(p)
	w.line(p.App, "PROC/WEB", "ready")
	kill(t, w.mainPID(st.Instance, "sidecar-0"))
	r := w.recordOf(p, st.Instance)
	if len(r.Followers) != 1 || r.Followers[0].Cause != runtime.CauseStopTimeout || r.Followers[0].Code != 137 {
		t.Errorf("followers = %+v, want web with the cause stop_timeout and status 137", r.Followers)
	}
	w.line(p.App, "CELL", "APP/PROC/WEB did not exit within 1s after SIGTERM, so dew sends SIGKILL")
	w.stop(p)
}
