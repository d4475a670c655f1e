package supervisor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dewrun/dew/runtime"
)

// notRunning is the ErrNoInstance of an index at which no instance runs now.
type notRunning int

func (n notRunning) Error() string {
	return fmt.Sprintf("instance %d is not running. It may be restarting: try again in a moment", int(n))
}

func (notRunning) Is(target error) bool { return target == runtime.ErrNoInstance }

// sample is a Consumption and when it was read.
type sample struct {
	at      time.Time
	cpu     time.Duration
	printed int64
}

// since turns two readings into a rate. The first reading counts from the start
// of the instance.
func (s sample) since(before sample) (cpu float64, printed int64) {
	d := s.at.Sub(before.at)
	if d <= 0 || s.cpu < before.cpu || s.printed < before.printed {
		return 0, 0
	}
	return float64(s.cpu-before.cpu) / float64(d), int64(float64(s.printed-before.printed) / d.Seconds())
}

// Dial connects from inside the network namespace of a running instance.
func (s *Supervisor) Dial(ctx context.Context, id runtime.InstanceID, network, address string) (net.Conn, error) {
	for _, sl := range s.all() {
		if c := sl.currentContainer(); c != nil && c.Spec().Instance == id {
			return c.Dial(ctx, network, address)
		}
	}
	return nil, fmt.Errorf("instance %s: %w", id, runtime.ErrNoInstance)
}

// Signal sends sig to every process of the named sidecar, or of main where the
// name is empty, of the instance with that index.
func (s *Supervisor) Signal(ctx context.Context, process string, index int, sidecar string, sig syscall.Signal) error {
	c, err := s.containerAt(process, index)
	if err != nil {
		return err
	}
	exec, err := execOf(c.Spec(), sidecar)
	if err != nil {
		return err
	}
	return c.Signal(ctx, sig, exec)
}

// Exec opens a session beside a process of a running instance.
func (s *Supervisor) Exec(ctx context.Context, t runtime.ExecTarget, spec runtime.ExecSpec) (runtime.Session, error) {
	container, err := s.containerAt(t.Process, t.Index)
	if err != nil {
		return nil, err
	}
	exec, err := execOf(container.Spec(), t.Sidecar)
	if err != nil {
		return nil, err
	}
	return container.Exec(ctx, exec, spec)
}

// execOf is the exec of a sidecar, or of main where the name is empty.
func execOf(s runtime.Spec, sidecar string) (string, error) {
	var names []string
	for _, p := range s.Processes {
		if p.Name == sidecar {
			return p.Exec, nil
		}
		if p.Name != "" {
			names = append(names, "'"+p.Name+"'")
		}
	}
	return "", fmt.Errorf("sidecar '%s': %w (there are %s)", sidecar, runtime.ErrNoInstance, strings.Join(append(names, "main"), ", "))
}

// RestartInstance replaces one instance by a new one of the desired state. Requests
// that are under way at it may end first; no new one comes to it.
func (s *Supervisor) RestartInstance(process string, index int) error {
	for _, sl := range s.at(process, index) {
		sl.RestartGently()
		return nil
	}
	return notRunning(index)
}

// Shutdown ends all instances, as a stop does, and all tasks, and starts no more. The
// desired state stays: the next daemon runs it again.
func (s *Supervisor) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.shuttingDown = true
	s.mu.Unlock()
	for _, sl := range s.all() {
		sl.Stop()
	}
	s.tasks.end()
	left := func() int { return len(s.all()) + s.tasks.left() }
	for n := left(); n > 0; n = left() {
		if !wait(ctx, shutdownLook) {
			return fmt.Errorf("cannot end all instances, %d are left: %w", n, context.Cause(ctx))
		}
	}
	return nil
}

// shutdownLook is how often Shutdown looks whether all is down.
const shutdownLook = 10 * time.Millisecond

// Usage tells what the instance with that index takes. It returns false where
// nothing runs, or nothing could be read.
func (s *Supervisor) Usage(ctx context.Context, process string, index int) (runtime.Usage, bool) {
	for _, sl := range s.at(process, index) {
		return sl.usage(ctx)
	}
	return runtime.Usage{}, false
}

// at are the slots of a process with that index, the one that somebody means first:
// what was replaced is there until it has ended.
func (s *Supervisor) at(process string, index int) []*Slot {
	all := slices.DeleteFunc(s.of(process), func(sl *Slot) bool { return sl.id.Index != index })
	slices.SortStableFunc(all, func(a, b *Slot) int { return cmp.Compare(leaving(a), leaving(b)) })
	return all
}

// leaving is 1 for a slot that was told to stop.
func leaving(sl *Slot) int {
	if sl.stopping() {
		return 1
	}
	return 0
}

func (s *Supervisor) containerAt(process string, index int) (runtime.Container, error) {
	for _, sl := range s.at(process, index) {
		if c := sl.currentContainer(); c != nil {
			return c, nil
		}
	}
	return nil, notRunning(index)
}

// all are the slots as they are now.
func (s *Supervisor) all() []*Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Slot, 0, len(s.slots))
	for _, sl := range s.slots {
		out = append(out, sl)
	}
	return out
}

// setContainer makes a container, or none, what others reach in this slot.
func (s *Slot) setContainer(c runtime.Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.container, s.lastUsage = c, sample{}
	if c != nil {
		s.lastUsage.at = c.Spec().StartedAt
	}
}

// currentContainer is the container that others reach in this slot; nil where there is none.
func (s *Slot) currentContainer() runtime.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.container
}

func (s *Slot) usage(ctx context.Context) (runtime.Usage, bool) {
	c := s.currentContainer()
	if c == nil {
		return runtime.Usage{}, false
	}
	used, err := c.Consumption(ctx)
	if err != nil {
		s.log.Debug("cannot read what an instance takes", "instance", c.Spec().Instance, "err", err)
		return runtime.Usage{}, false
	}
	now := sample{at: time.Now(), cpu: used.CPU, printed: used.Printed}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.container != c {
		return runtime.Usage{}, false
	}
	u := runtime.Usage{Entitled: used.Entitled, Memory: used.Memory, Disk: used.Disk, Parts: used.Parts}
	u.CPU, u.LogRate = now.since(s.lastUsage)
	// Readers close together would see noise: the older reading stays their base.
	if now.at.Sub(s.lastUsage.at) > time.Second || s.lastUsage.cpu == 0 {
		s.lastUsage = now
	}
	return u, true
}
