package containerd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// drain brings what is left in the capture files of a dead instance into the log.
func (t *task) drain(ctx context.Context) error {
	defer t.letGo()
	for _, p := range t.procs {
		out := t.applog.CapturePath(string(t.spec.Instance), p.Exec, logstream.Out)
		if _, err := os.Stat(out); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := t.follow(p, late); err != nil {
			return err
		}
		for _, tail := range []*logstream.Tail{p.out, p.err} {
			last, err := tail.Finish(ctx)
			if err != nil {
				return err
			}
			if err := t.applog.Append(last...); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkCaptures looks whether the output of every living process still has a way.
func (e *Engine) checkCaptures(ctx context.Context) {
	for _, t := range e.living() {
		t.checkCapture(ctx)
	}
}

// checkCapture ends every process whose output the shim has stopped to copy. On
// a full disk its copy ends for good, and the process would block in its next
// write for ever, also when there is space again.
func (t *task) checkCapture(ctx context.Context) {
	for _, p := range t.procs {
		if p.ended.Load() || p.pid == 0 || p.captureFailed.Load() || !captureBroken(p) {
			continue
		}
		// Asked twice: a process that ends closes its files one after the other.
		if pause(ctx, reportGrace) != nil || p.ended.Load() || !alive(p.pid) || !captureBroken(p) {
			continue
		}
		p.captureFailed.Store(true)
		src := logstream.Source{Type: p.Source, Index: t.spec.Slot.Index, InstanceID: string(t.spec.Instance)}
		if err := t.applog.Gap(src, string(runtime.CauseCaptureFailed), 0); err != nil {
			t.e.log.Error("cannot note lost output", "instance", t.spec.Instance, "exec", p.Exec, "err", err)
		}
		if err := t.e.cg.kill(ctx, t.spec.Instance, p.Exec); err != nil {
			t.e.log.Error("cannot end a process without output", "instance", t.spec.Instance, "exec", p.Exec, "err", err)
		}
	}
}

// captureBroken says that a process still prints into a pipe which its shim
// holds, while the shim no longer holds the file behind it. A process that closed
// its output itself, or sent it elsewhere, is none of that.
func captureBroken(p *proc) bool {
	_, shim, ok := procStat(p.pid)
	if !ok {
		return false
	}
	held := openFilesOf(shim)
	if len(held) == 0 {
		return false
	}
	for fd, path := range map[int]string{1: p.outPath, 2: p.errPath} {
		pipe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.pid), "fd", strconv.Itoa(fd)))
		if err == nil && held[pipe] && !held[path] {
			return true
		}
	}
	return false
}

// openFilesOf lists what a process has open, as the kernel names it.
func openFilesOf(pid int) map[string]bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	held := make(map[string]bool, len(entries))
	for _, e := range entries {
		if name, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			held[name] = true
		}
	}
	return held
}
