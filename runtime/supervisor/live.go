package supervisor

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/dewrun/dew/runtime"
)

// Dial connects from inside the network namespace of a running instance.
func (s *Supervisor) Dial(ctx context.Context, id runtime.InstanceID, network, address string) (net.Conn, error) {
	for _, sl := range s.all() {
		if c := sl.currentContainer(); c != nil && c.Spec().Instance == id {
			return c.Dial(ctx, network, address)
		}
	}
	return nil, fmt.Errorf("instance %s: %w", id, runtime.ErrNoInstance)
}

// Signal sends a signal of a user to every process of the named sidecar, or of main if
// the name is empty, in the instance with that index.
func (s *Supervisor) Signal(ctx context.Context, process string, index int, sidecar string, sent runtime.SentSignal) error {
	c, err := s.containerAt(process, index)
	if err != nil {
		return err
	}
	exec, err := c.Spec().ExecOf(sidecar)
	if err != nil {
		return err
	}
	s.signals.Add(c.Spec().Instance, exec, sent)
	return c.Signal(ctx, syscall.Signal(sent.Number), exec)
}

// Exec opens a session next to a process of a running instance.
func (s *Supervisor) Exec(ctx context.Context, t runtime.ExecTarget, spec runtime.ExecSpec) (runtime.Session, error) {
	container, err := s.containerAt(t.Process, t.Index)
	if err != nil {
		return nil, err
	}
	exec, err := container.Spec().ExecOf(t.Sidecar)
	if err != nil {
		return nil, err
	}
	return container.Exec(ctx, exec, spec)
}

// RestartInstance replaces one instance by a new one in the desired state. Active
// requests can finish first, and the instance receives no new ones.
func (s *Supervisor) RestartInstance(process string, index int) error {
	for _, sl := range s.at(process, index) {
		sl.RestartGently()
		return nil
	}
	return runtime.NotRunning(index)
}

// Shutdown stops all instances and tasks, as a stop does, and starts no more. It does
// not change the desired state: the next daemon runs it again.
func (s *Supervisor) Shutdown(ctx context.Context) error {
	s.close()
	for _, sl := range s.all() {
		sl.Stop()
	}
	s.tasks.end()
	left := func() int { return len(s.all()) + s.tasks.left() }
	for n := left(); n > 0; n = left() {
		if !wait(ctx, pollInterval) {
			return fmt.Errorf("cannot stop all instances and tasks, %d are left: %w", n, context.Cause(ctx))
		}
	}
	return nil
}

// pollInterval is how often Shutdown and serveAgain check the slots.
const pollInterval = 10 * time.Millisecond

// Usage returns the resource usage of the instance with that index. It returns false if
// no instance runs, or if the usage cannot be read.
func (s *Supervisor) Usage(ctx context.Context, process string, index int) (runtime.Usage, bool) {
	for _, sl := range s.at(process, index) {
		return sl.usage(ctx, sl.log)
	}
	return runtime.Usage{}, false
}
