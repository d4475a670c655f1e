package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// drain brings what is left in the capture files of a dead instance into the log.
func (c *container) drain(ctx context.Context) error {
	defer c.detach()
	for _, p := range c.procs {
		// A daemon can be killed between the making of two files.
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

// checkCaptures looks whether the output of every living process still has a way.
func (e *Engine) checkCaptures(ctx context.Context) {
	for _, c := range e.living() {
		c.checkCapture(ctx)
	}
}

// captureGrace is the time between two looks at the files of a process.
const captureGrace = 150 * time.Millisecond

// checkCapture ends every process whose output the shim has stopped to copy. On
// a full disk its copy ends for good, and the process would block in its next
// write for ever, also when there is space again.
func (c *container) checkCapture(ctx context.Context) {
	for _, p := range c.procs {
		if p.ended.Load() || p.pid == 0 || p.captureFailed.Load() || !captureBroken(p) {
			continue
		}
		// Asked twice: a process that ends closes its files one after the other.
		if pause(ctx, captureGrace) != nil || p.ended.Load() || !alive(p.pid) || !captureBroken(p) {
			continue
		}
		p.captureFailed.Store(true)
		src := logstream.Source{Type: p.Source, Index: c.spec.Slot.Index, InstanceID: string(c.spec.Instance)}
		if err := c.applog.Gap(src, string(runtime.CauseCaptureFailed), 0); err != nil {
			c.e.log.Error("cannot note lost output", "instance", c.spec.Instance, "exec", p.Exec, "err", err)
		}
		if err := c.e.cg.kill(ctx, c.spec.Instance, p.Exec); err != nil {
			c.e.log.Error("cannot end a process without output", "instance", c.spec.Instance, "exec", p.Exec, "err", err)
		}
	}
}

// captureBroken says that a process still prints into a pipe which its shim
// holds, while the shim no longer holds a file for it. A process may well have
// closed one of its streams, sent it elsewhere, or merged the two: then the shim
// has closed a file with good reason. So pipes and files are counted, not paired.
func captureBroken(p *proc) bool {
	s, ok := readStat(procDir(p.pid))
	if !ok {
		return false
	}
	held := openFilesOf(s.parent)
	if len(held) == 0 {
		return false
	}
	files := 0
	for _, path := range []string{p.outPath, p.errPath} {
		if id, err := fileID(path); err == nil && held[id] {
			files++
		}
	}
	pipes := map[string]bool{}
	for _, fd := range []string{"1", "2"} {
		id, err := fileID(filepath.Join("/proc", strconv.Itoa(p.pid), "fd", fd))
		if err == nil && strings.HasPrefix(id, "pipe ") && held[id] {
			pipes[id] = true
		}
	}
	return len(pipes) > files
}

// openFilesOf lists what a process has open.
func openFilesOf(pid int) map[string]bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	held := make(map[string]bool, len(entries))
	for _, e := range entries {
		if id, err := fileID(filepath.Join(dir, e.Name())); err == nil {
			held[id] = true
		}
	}
	return held
}

// fileID tells open files apart by what they are, not by a path: the same file
// has several below a linked folder.
func fileID(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", err
	}
	kind := "file"
	if st.Mode&unix.S_IFMT == unix.S_IFIFO {
		kind = "pipe"
	}
	return fmt.Sprintf("%s %d:%d", kind, st.Dev, st.Ino), nil
}
