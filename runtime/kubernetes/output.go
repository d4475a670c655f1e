package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/kubernetes/link"
	"github.com/dewrun/dew/runtime/process"
)

// captureFile is a capture file in the volume of dewd. Only the goroutine that is
// attached to the agent uses it.
type captureFile struct {
	f    *os.File
	size int64
}

// openFiles opens the capture files. Their sizes say how much of the output is here.
func (p *proc) openFiles() error {
	for i, path := range []string{p.OutPath, p.ErrPath} {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("cannot open a capture file: %w", err)
		}
		fi, err := f.Stat()
		if err != nil {
			return errors.Join(err, f.Close())
		}
		p.files[i] = captureFile{f, fi.Size()}
	}
	return nil
}

func (p *proc) closeFiles() {
	for _, f := range p.files {
		if f.f != nil {
			_ = f.f.Close() // nothing is buffered
		}
	}
}

// pause makes the agent stop or continue to send the output of a process. The wrapper
// stops reading when too much is waiting, and then the kernel pauses the process.
func (p *proc) pause(paused bool) error {
	c := p.c
	c.mu.Lock()
	p.paused = paused
	frames := c.frames
	c.mu.Unlock()
	p.sendPause(frames, paused)
	return nil
}

func (p *proc) sendPause(frames *link.Frames, paused bool) {
	if frames == nil {
		return // sent at the next attach
	}
	at := link.Position{Process: p.index}
	if paused {
		at.Offset = 1
	}
	_ = frames.Write(link.KindPause, at.Encode()) // sent again at the next attach
}

// run keeps dewd attached to the agent until the daemon releases the instance.
func (c *container) run() {
	for c.ctx.Err() == nil {
		var l *link.Client
		if c.await(c.ctx, func() bool { l = c.link; return l != nil }) != nil {
			return
		}
		err := c.attach(l)
		c.mu.Lock()
		c.frames = nil
		if c.link == l {
			c.link = nil
		}
		c.broadcast()
		c.mu.Unlock()
		_ = l.Close()
		if c.ctx.Err() == nil && !c.stopping.Load() {
			c.e.log.Debug("the connection with a Pod has ended", "instance", c.spec.Instance, "err", err)
		}
	}
}

// attach follows the exits and the output of the Pod until the connection ends.
func (c *container) attach(l *link.Client) error {
	var from link.Attach
	for _, p := range c.procs {
		from.Offsets = append(from.Offsets, [2]int64{p.files[0].size, p.files[1].size})
	}
	first, err := link.Frame(link.KindSpec, from)
	if err != nil {
		return err
	}
	s, err := l.Stream(c.ctx, link.PathAttach, first)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // it has ended
	stop := context.AfterFunc(c.ctx, func() { _ = s.Close() })
	defer stop()
	frames := link.NewFrames(s)
	c.mu.Lock()
	c.frames = frames
	for _, p := range c.procs {
		if p.paused {
			defer p.sendPause(frames, true)
		}
	}
	c.broadcast()
	c.mu.Unlock()
	for buf := make([]byte, 1<<10); ; {
		k, b, err := link.ReadFrame(s, buf)
		if err == nil {
			err = c.frame(frames, k, b)
		}
		if err != nil {
			return err
		}
	}
}

// frame handles one frame of the agent.
func (c *container) frame(frames *link.Frames, k link.Kind, b []byte) error {
	switch k {
	case link.KindExit:
		var x link.Exit
		if err := json.Unmarshal(b, &x); err != nil {
			return err
		}
		c.exited(x)
	case link.KindFinished:
		var f link.Finished
		if err := json.Unmarshal(b, &f); err != nil {
			return err
		}
		c.finished(f)
	case link.KindOutput:
		return c.output(frames, b)
	case link.KindSynced:
		n, err := link.DecodeNumber(b)
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if answered := c.syncs[n]; answered != nil {
			delete(c.syncs, n)
			close(answered)
		}
	}
	return nil
}

// output appends output to its capture file, and tells the agent that it is stored.
func (c *container) output(frames *link.Frames, b []byte) error {
	at, data, err := link.DecodePosition(b)
	if err != nil || int(at.Process) >= len(c.procs) {
		return errors.Join(errors.New("the agent sent output of an unknown process"), err)
	}
	p := c.procs[at.Process]
	f := &p.files[at.Stream]
	if at.Offset != f.size {
		return fmt.Errorf("the agent sent output from byte %d on, but %d bytes are stored", at.Offset, f.size)
	}
	for len(data) > 0 {
		n, err := f.f.WriteAt(data, f.size)
		f.size += int64(n)
		data = data[n:]
		if err != nil && process.Sleep(c.ctx, time.Second) != nil { // the disk is full
			return err
		}
	}
	at.Offset = f.size
	if err := frames.Write(link.KindFreed, at.Encode()); err != nil {
		return err
	}
	c.complete(p)
	return nil
}

// finished records how much a process has printed in all.
func (c *container) finished(f link.Finished) {
	for _, p := range c.procs {
		if p.Exec == f.Exec {
			c.mu.Lock()
			p.finished = &f
			c.mu.Unlock()
			c.complete(p)
		}
	}
}

// complete reads the last lines of a process once all its output is here.
func (c *container) complete(p *proc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := p.finished
	if f == nil || p.ended || p.files[0].size < f.Size[0] || p.files[1].size < f.Size[1] {
		return
	}
	p.ended = true
	c.spawn(func() { c.finish(p) })
}

func (c *container) finish(p *proc) {
	defer close(p.reaped)
	ctx, cancel := context.WithTimeout(c.ctx, finishTimeout)
	defer cancel()
	if err := p.Finish(ctx); err != nil && c.ctx.Err() == nil {
		c.e.log.Error("cannot read all output of a process", "instance", c.spec.Instance, "exec", p.Exec, "err", err)
	}
}

// exited reports the exit of a process that its wrapper saw. If Kubernetes told the
// container to stop, the reason for that is the cause, which can become known later.
func (c *container) exited(x link.Exit) {
	for _, p := range c.procs {
		switch {
		case p.Exec != x.Exec:
		case x.Terminated && !c.stopping.Load():
			d := p.describe(x)
			c.mu.Lock()
			if p.stopped = &d; !c.explaining {
				c.explaining = true
				c.spawn(removed{c}.explainStop)
			}
			c.broadcast()
			c.mu.Unlock()
		default:
			c.report(p, p.describe(x))
		}
	}
}

// describe returns the exit of a process.
func (p *proc) describe(x link.Exit) runtime.Exit {
	c, u := p.c, x.Usage
	out := runtime.Exit{
		Exec: p.Exec, Name: p.Name, Source: p.Source, Code: x.Code, At: x.At, Cause: runtime.CauseExited, OOM: u.OOMKills > 0,
		Memory: runtime.Memory{Limit: p.Memory, Peak: u.Peak},
		Usage:  &runtime.ExitUsage{CPU: u.CPU, Throttled: u.Waited, OOMKills: u.OOMKills},
	}
	if out.OOM {
		out.Cause = runtime.CauseOutOfMemory
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := p.usage; m != nil {
		out.Usage.MeasuredAt, out.Usage.Anon, out.Usage.File, out.Usage.Kernel = p.measured, m.Anon, m.File, m.Kernel
		out.Usage.PIDs, out.Usage.Files = m.PIDs, m.Files
	}
	return out
}

// report sends an exit, once.
func (c *container) report(p *proc, x runtime.Exit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.exited {
		return
	}
	p.exited = true
	c.exits <- x
	if c.left--; c.left == 0 {
		close(c.exits)
	}
	c.broadcast()
}

// drain copies output into the log that was not stored when a process exited, because
// the log could not be written.
func (c *container) drain(ctx context.Context) error {
	if c.appLog.Unread(string(c.spec.Instance)) == 0 {
		return nil
	}
	for _, p := range c.procs {
		err := p.Drain(ctx)
		p.Output.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
