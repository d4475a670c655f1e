package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/process"
)

// initProcess is PID 1 of a container.
type initProcess struct {
	pid      int
	born     uint64
	shim     runfile.Process // its parent, which copies the output of all processes
	stopping atomic.Bool     // the daemon is stopping it
	settled  atomic.Bool     // its exit is sent, or will never be
}

// started stores the process that the shim has started.
func (p *initProcess) started(pid int) {
	p.pid, p.born = pid, process.BornAt(pid)
	if s, ok := process.ReadStat(process.Dir(pid)); ok { // it runs
		p.shim = runfile.Process{PID: s.Parent, Born: process.BornAt(s.Parent)}
	}
}

func (p *initProcess) process() runfile.Process { return runfile.Process{PID: p.pid, Born: p.born} }

// exited reports whether PID 1 was started and runs no longer.
func (p *initProcess) exited() bool { return p.pid != 0 && !process.Alive(p.pid) }

// exitCollector receives the reports of the exits in one container, and sends them in
// the order of the exits.
type exitCollector struct {
	procs   []*proc
	init    *initProcess
	outage  func() error // why containerd cannot report now
	reports chan runtime.Exit
	sent    chan runtime.Exit
	first   atomic.Pointer[runtime.Exit] // the first exit that was sent
}

func newExitCollector(procs []*proc, init *initProcess, outage func() error) *exitCollector {
	return &exitCollector{
		procs: procs, init: init, outage: outage,
		reports: make(chan runtime.Exit, len(procs)+1), sent: make(chan runtime.Exit, len(procs)+1),
	}
}

const (
	// reportLimit is how long the report of an exited process can be missing while
	// containerd answers. A shim that is busy with a start is up to 65 ms late, and
	// much more on a busy machine.
	reportLimit = 10 * time.Second
	// reportLook is how often a wait for a report checks the processes again.
	reportLook = 10 * time.Millisecond
)

// collect sorts reports by the time of the exits and sends them.
func (x *exitCollector) collect(ctx context.Context) {
	for left := len(x.procs); left > 0; {
		batch, ok := x.gather(ctx)
		if !ok {
			return
		}
		for _, exit := range batch {
			x.first.CompareAndSwap(nil, &exit)
			x.sent <- exit
			if exit.Exec == runtime.InitExec {
				x.init.settled.Store(true)
				continue
			}
			left--
			x.markReported(exit.Exec)
		}
	}
	close(x.sent)
}

// markReported records that the exit of a process is sent.
func (x *exitCollector) markReported(exec string) {
	for _, p := range x.procs {
		if p.Exec == exec {
			p.reported.Store(true)
		}
	}
}

// gather receives one report, and those of all processes that have exited by then. A
// report can be late, and the first process to exit must be named.
func (x *exitCollector) gather(ctx context.Context) ([]runtime.Exit, bool) {
	var batch []runtime.Exit
	select {
	case exit := <-x.reports:
		batch = append(batch, exit)
	case <-ctx.Done():
		return nil, false
	}
	limit, look := time.NewTimer(reportLimit), time.NewTicker(reportLook)
	defer limit.Stop()
	defer look.Stop()
	for over := false; !over && x.unreported(batch); {
		select {
		case exit := <-x.reports:
			batch = append(batch, exit)
		case <-look.C:
		case <-limit.C:
			over = x.outage() == nil // a containerd that does not answer cannot report
			limit.Reset(reportLimit)
		case <-ctx.Done():
			return nil, false
		}
	}
	return sortExits(batch), true
}

// sortExits sorts exits by time. The exit of PID 1 is the cause of all others, even if
// the times contradict that. It counts as no later than the first of them.
func sortExits(batch []runtime.Exit) []runtime.Exit {
	slices.SortStableFunc(batch, func(a, b runtime.Exit) int { return a.At.Compare(b.At) })
	i := slices.IndexFunc(batch, func(x runtime.Exit) bool { return x.Exec == runtime.InitExec })
	if i > 0 {
		init := batch[i]
		init.At = batch[0].At
		batch = slices.Insert(slices.Delete(batch, i, i+1), 0, init)
	}
	return batch
}

// unreported reports whether a process has exited whose report is neither in batch nor
// sent.
func (x *exitCollector) unreported(batch []runtime.Exit) bool {
	in := func(exec string) bool {
		return slices.ContainsFunc(batch, func(e runtime.Exit) bool { return e.Exec == exec })
	}
	for _, p := range x.procs {
		if !p.reported.Load() && !in(p.Exec) && process.Ended(p.pid, p.born) {
			return true
		}
	}
	return !x.init.stopping.Load() && !x.init.settled.Load() && !in(runtime.InitExec) && process.Ended(x.init.pid, x.init.born)
}

// reason names the process whose exit ended the instance.
func (x *exitCollector) reason() string {
	if e := x.first.Load(); e != nil {
		return fmt.Sprintf(" (%s: Exited with status %d)", e.Source, e.Code)
	}
	return ""
}

// errBadExit reports that the file of a stored exit is incomplete.
var errBadExit = errors.New("the stored exit cannot be decoded")

func (p *proc) exitFile() string { return filepath.Join(p.dir, p.Exec+".exit") }

// saveExit stores the exit of a process until the instance is deleted.
func (p *proc) saveExit(x runtime.Exit) error {
	b, err := json.Marshal(x)
	if err != nil {
		return fmt.Errorf("cannot encode exit: %w", err)
	}
	return runfile.Write(p.exitFile(), string(b), 0o600)
}

// loadExit returns the exit of a process that this or an earlier daemon stored.
func (p *proc) loadExit() (*runtime.Exit, error) {
	b, err := os.ReadFile(p.exitFile())
	if err != nil {
		return nil, err
	}
	x := &runtime.Exit{}
	if err := json.Unmarshal(b, x); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadExit, err)
	}
	return x, nil
}

func (p *proc) captureFailedFile() string { return filepath.Join(p.dir, p.Exec+".capture-failed") }

// saveCaptureFailed stores that dewd kills a process because its output is not captured.
// Without it, a daemon that starts after the kill would only see the signal.
func (p *proc) saveCaptureFailed() error { return runfile.Write(p.captureFailedFile(), "", 0o600) }

// loadCaptureFailed reads what an earlier daemon stored with saveCaptureFailed.
func (p *proc) loadCaptureFailed() error {
	_, err := os.Stat(p.captureFailedFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read whether the output of %s is captured: %w", p.Exec, err)
	}
	p.captureFailed.Store(true)
	return nil
}
