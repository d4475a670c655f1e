package signaltrace

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The sender of a signal is found, even after the trace was opened again.
func TestFind(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("tracing needs root")
	}
	name := "dew-test-" + strings.ReplaceAll(t.TempDir(), "/", "-")
	trace, err := Open(name)
	if err != nil {
		t.Skipf("this machine cannot trace signals: %v", err)
	}
	from := time.Now()
	victim := exec.Command("sleep", "1000")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	// The shell prints its process id and sends the signal itself.
	out, err := exec.Command("sh", "-c", `echo $$; kill -TERM "$0"`, strconv.Itoa(victim.Process.Pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	to := time.Now()
	trace.mount.Close() // as if dewd was killed
	if trace, err = Open(name); err != nil {
		t.Fatal(err)
	}
	sender, ok := trace.Find(victim.Process.Pid, syscall.SIGTERM, from, to)
	if !ok || strconv.Itoa(sender.PID) != strings.TrimSpace(string(out)) {
		t.Errorf("sender = %+v, %v; want process %s", sender, ok, out)
	}
	for name, other := range map[string]struct {
		sig      syscall.Signal
		from, to time.Time
	}{
		"other signal": {syscall.SIGKILL, from, to},
		"earlier":      {syscall.SIGTERM, from.Add(-time.Hour), from.Add(-time.Minute)},
		"later":        {syscall.SIGTERM, to.Add(time.Minute), to.Add(time.Hour)},
	} {
		if s, ok := trace.Find(victim.Process.Pid, other.sig, other.from, other.to); ok {
			t.Errorf("%s: found %+v", name, s)
		}
	}
	dir := trace.dir
	if err := trace.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the ring buffer exists after Close")
	}
}

// A nil Trace is a machine that cannot trace signals.
func TestNil(t *testing.T) {
	var trace *Trace
	if _, ok := trace.Find(1, syscall.SIGKILL, time.Time{}, time.Now()); ok {
		t.Error("a sender was found without a trace")
	}
	if err := trace.Close(); err != nil {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	for line, want := range map[string]event{
		"            bash-1234    (   1230) [001] d..1.  123.500000: signal_generate: sig=9 errno=0 code=0 comm=sleep pid=1235 grp=1 res=0": {Sender{1230, "bash"}, 1235, 9, 123500 * time.Millisecond},
		"           <...>-77      (-------) [000] d..1.    1.000001: signal_generate: sig=15 errno=0 code=0 comm=a b pid=1 grp=1 res=0\n":   {Sender{77, ""}, 1, 15, 1000001 * time.Microsecond},
		" kworker/0:1-ev-9       [000] d..1.    2.000000: signal_generate: sig=1 errno=0 code=0 comm=x pid=9 pid=10 grp=1 res=0":            {Sender{9, "kworker/0:1-ev"}, 10, 1, 2 * time.Second},
		" a [b-5       [000] d..1.    2.000000: signal_generate: sig=1 errno=0 code=0 comm=x pid=10 grp=1 res=0":                            {Sender{5, "a [b"}, 10, 1, 2 * time.Second},
	} {
		if got, ok := parse(line); !ok || got != want {
			t.Errorf("parse(%q) = %+v, %v; want %+v", line, got, ok, want)
		}
	}
	for _, line := range []string{
		"", "# tracer: nop", "# x-1 [000] 1.0: signal_generate: sig=9 errno=0 code=0 comm=x pid=1 grp=1 res=0",
		"bash-1 [000] d..1. 1.0: signal_generate: sig=9 errno=0 code=0 comm=x pid=1 grp=1 res=1", // it was ignored
		"bash-1 [000] d..1. 1.0: signal_deliver: sig=9 errno=0 code=0 sa_handler=0 sa_flags=0",
		"bash [000] d..1. 1.0: signal_generate: sig=9 errno=0 code=0 comm=x pid=1 grp=1 res=0",
		"bash-1 [000] d..1. soon: signal_generate: sig=9 errno=0 code=0 comm=x pid=1 grp=1 res=0",
		"bash-1 [000] d..1. 1.0: signal_generate: sig=x pid=1 grp=1 res=0",
		"bash-1 [000] d..1. 1.0: signal_generate: sig=9 res=0",
		": signal_generate: res=0",
	} {
		if e, ok := parse(line); ok {
			t.Errorf("parse(%q) = %+v, want none", line, e)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("bash-1234 [001] d..1. 123.500000: signal_generate: sig=9 errno=0 code=0 comm=sleep pid=1235 grp=1 res=0")
	f.Add(": signal_generate: res=0")
	f.Fuzz(func(t *testing.T, line string) {
		e, ok := parse(line)
		if !ok && e != (event{}) {
			t.Errorf("parse(%q) = %+v without a result", line, e)
		}
	})
}
