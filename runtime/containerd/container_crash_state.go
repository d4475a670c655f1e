package containerd

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
)

// CrashState returns the memory and disk of the whole instance, and the ports on which its
// processes listen. Nothing listens after a process has exited.
func (c *container) CrashState(ctx context.Context) runtime.CrashState {
	st := runtime.CrashState{Memory: c.e.cg.MemoryOf(c.spec.Instance, ""), Disk: c.e.disks.facts(ctx, c.spec.Instance)}
	sockets, err := c.e.net.Listening(c.spec.Instance)
	if err != nil {
		c.e.log.Debug("cannot read the listening sockets of an instance", "instance", c.spec.Instance, "err", err)
	}
	if len(sockets) == 0 {
		return st
	}
	for _, p := range c.procs {
		pids, _ := c.e.cg.Procs(c.spec.Instance, p.Exec) // none if the leaf is deleted
		open := process.OpenSockets(pids)
		for _, s := range sockets {
			if open[s.Inode] {
				st.Listening = append(st.Listening, runtime.Listener{Exec: p.Exec, Port: int(s.Address.Port()), Loopback: s.Address.Addr().IsLoopback()})
			}
		}
	}
	return st
}

// tracedSignal returns the signal that ended a process, if the kernel reported who sent
// it. The signals of this daemon are known without the kernel.
func (e *Engine) tracedSignal(pid, number int, from, to time.Time) *runtime.SentSignal {
	s, ok := e.signals.Find(pid, syscall.Signal(number), from, to.Add(clockTolerance))
	if !ok || s.PID == os.Getpid() {
		return nil
	}
	return &runtime.SentSignal{Number: number, Sender: s.Name, SenderPID: s.PID, Self: s.PID == pid}
}

// clockTolerance covers the difference between the clocks of the trace and of the exit.
const clockTolerance = time.Second
