package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/runtime"
)

const (
	// reportLimit is how long a process that the kernel shows as dead may stay
	// unreported while containerd answers. A shim that is busy starting something is
	// late by up to 65 ms, and much more on a busy machine.
	reportLimit = 10 * time.Second
	// reportLook is how often a wait for a report looks at the processes again.
	reportLook = 10 * time.Millisecond
	// answerTimeout is how long containerd may take for a call that costs it nothing.
	answerTimeout = 3 * time.Second
	// answerInterval is how often dewd asks whether containerd answers.
	answerInterval = time.Second
)

// Settle returns once Exits holds the end of every process that the kernel shows
// as dead. Without it a failed health check could be blamed on a process whose
// peer ended first: containerd can report an end long after it happened.
func (c *container) Settle(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := c.e.get(call, c.id, ""); err != nil && unavailable(err) {
		return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	ctx, cancel = context.WithTimeout(ctx, reportLimit)
	defer cancel()
	for c.unreported(nil) {
		if pause(ctx, reportLook) != nil {
			c.e.log.Warn("containerd does not report the end of a process", "instance", c.spec.Instance)
			break
		}
	}
	return nil
}

// unreported tells whether a process has ended whose report is neither in batch
// nor handed on.
func (c *container) unreported(batch []runtime.Exit) bool {
	in := func(exec string) bool {
		return slices.ContainsFunc(batch, func(x runtime.Exit) bool { return x.Exec == exec })
	}
	for _, p := range c.procs {
		if !p.reported.Load() && !in(p.Exec) && ended(p.pid, p.born) {
			return true
		}
	}
	return !c.deleting.Load() && !c.initSettled.Load() && !in(runtime.InitExec) && ended(c.initPID, c.initBorn)
}

// stat is a line of /proc/<pid>/stat.
type stat struct {
	state   byte
	parent  int
	exiting bool   // the kernel has begun to take it down
	threads int    // of the whole process
	born    uint64 // ticks since the boot
}

// The fields of /proc/<pid>/stat, counted from the state.
const (
	statParent  = 1
	statFlags   = 6
	statThreads = 17
	statBorn    = 19

	flagExiting = 0x4 // PF_EXITING
)

// readStat reads the stat file of a process or of a thread.
func readStat(dir string) (stat, bool) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return stat{}, false
	}
	return parseStat(string(b))
}

func parseStat(line string) (stat, bool) {
	// The name before may hold spaces and brackets of its own.
	f := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(f) <= statBorn {
		return stat{}, false
	}
	var errs [4]error
	var s stat
	var flags uint64
	s.state = f[0][0]
	s.parent, errs[0] = strconv.Atoi(f[statParent])
	flags, errs[1] = strconv.ParseUint(f[statFlags], 10, 64)
	s.threads, errs[2] = strconv.Atoi(f[statThreads])
	s.born, errs[3] = strconv.ParseUint(f[statBorn], 10, 64)
	s.exiting = flags&flagExiting != 0
	for _, err := range errs {
		if err != nil {
			return stat{}, false
		}
	}
	return s, true
}

func procDir(pid int) string { return filepath.Join("/proc", strconv.Itoa(pid)) }

// bornAt tells one process from a later one with the same number. It is 0 for a
// process that is gone.
func bornAt(pid int) uint64 {
	s, _ := readStat(procDir(pid))
	return s.born
}

// alive tells whether a process has not ended.
func alive(pid int) bool { return pid != 0 && !ended(pid, bornAt(pid)) }

// ended tells whether the process with that number and time of birth has ended,
// or the kernel is taking it down. The second matters: its sockets are closed
// before it counts as dead, and PID 1 of a container dies only after everything
// it takes along. Signal 0 would not do: a zombie answers it.
func ended(pid int, born uint64) bool {
	if pid == 0 {
		return false
	}
	s, ok := readStat(procDir(pid))
	switch {
	case !ok || born == 0 || s.born != born:
		return true
	case s.state != 'Z' && s.state != 'X' && !s.exiting:
		return false
	case s.threads <= 1:
		return true
	}
	return threadsEnded(pid)
}

// threadsEnded tells whether every thread of a process is on its way out. The
// first one can end alone and leave the rest running.
func threadsEnded(pid int) bool {
	dirs, err := filepath.Glob(filepath.Join(procDir(pid), "task", "*"))
	if err != nil {
		return false // the pattern is ours: it never fails
	}
	for _, dir := range dirs {
		if s, ok := readStat(dir); ok && !s.exiting && s.state != 'Z' && s.state != 'X' {
			return false
		}
	}
	return true
}

// Outage says why nothing is known about the instances now; nil while containerd
// answers.
func (e *Engine) Outage() error {
	if e.silent.Load() {
		return errSilent
	}
	return nil
}

// watchAnswers asks containerd again and again whether it is there, until ctx ends.
func (e *Engine) watchAnswers(ctx context.Context) {
	for pause(ctx, answerInterval) == nil {
		call, cancel := context.WithTimeout(ctx, answerTimeout)
		_, err := e.client.Version(call)
		cancel()
		if ctx.Err() != nil {
			return
		}
		switch was := e.silent.Swap(err != nil); {
		case err != nil && !was:
			e.log.Warn("containerd does not answer: instances are left as they are until it does", "address", e.cfg.Address, "err", err)
		case err == nil && was:
			e.log.Info("containerd answers again", "address", e.cfg.Address)
		}
	}
}
