package containerd

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
)

// drain copies the rest of the capture files of a dead instance into the log.
func (c *container) drain(ctx context.Context) error {
	defer c.detach()
	for _, p := range c.procs {
		// A daemon can be killed after it created the first of two files.
		if _, _, err := c.applog.CreateCapture(string(c.spec.Instance), p.Exec); err != nil {
			return err
		}
		if err := c.follow(p, late); err != nil {
			return err
		}
		for _, tail := range []*logstream.Tail{p.out, p.err} {
			last, err := tail.Finish(ctx)
			if err != nil {
				return err
			}
			if err := c.applog.Append(last...); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkCaptures checks that the output of every running process is still captured.
func (e *Engine) checkCaptures(ctx context.Context) {
	for _, c := range e.known.all() {
		c.checkCapture(ctx)
	}
}

// captureGrace is the time between two checks of the files of a process.
const captureGrace = 150 * time.Millisecond

// checkCapture stops every process whose output the shim no longer copies. On a full
// disk the shim stops copying permanently. The process would block in its next write
// forever, even after space is available again.
func (c *container) checkCapture(ctx context.Context) {
	for _, p := range c.procs {
		if p.ended.Load() || p.pid == 0 || p.captureFailed.Load() || !captureBroken(p) {
			continue
		}
		// Check twice: a process that exits closes its files one after the other.
		if process.Sleep(ctx, captureGrace) != nil || p.ended.Load() || !process.Alive(p.pid) || !captureBroken(p) {
			continue
		}
		p.captureFailed.Store(true)
		src := logstream.Source{Type: p.Source, Index: c.spec.Slot.Index, InstanceID: string(c.spec.Instance)}
		if err := c.applog.Gap(src, string(runtime.CauseCaptureFailed), 0); err != nil {
			c.e.log.Error("cannot note lost output", "instance", c.spec.Instance, "exec", p.Exec, "err", err)
		}
		if err := c.e.cg.Kill(ctx, c.spec.Instance, p.Exec); err != nil {
			c.e.log.Error("cannot end a process without output", "instance", c.spec.Instance, "exec", p.Exec, "err", err)
		}
	}
}

// captureBroken reports whether a process still prints into a pipe that its shim holds,
// while the shim no longer holds a file for it. A process can have closed, redirected
// or merged its streams: then the shim has correctly closed a file. Therefore pipes and
// files are counted, not paired.
func captureBroken(p *proc) bool {
	s, ok := process.ReadStat(process.Dir(p.pid))
	if !ok {
		return false
	}
	held := process.OpenFiles(s.Parent)
	if len(held) == 0 {
		return false
	}
	files := 0
	for _, path := range []string{p.outPath, p.errPath} {
		if id, err := process.FileID(path); err == nil && held[id] {
			files++
		}
	}
	pipes := map[string]bool{}
	for _, fd := range []string{"1", "2"} {
		id, err := process.FileID(filepath.Join("/proc", strconv.Itoa(p.pid), "fd", fd))
		if err == nil && strings.HasPrefix(id, "pipe ") && held[id] {
			pipes[id] = true
		}
	}
	return len(pipes) > files
}
