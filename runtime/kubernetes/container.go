package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/capture"
	"github.com/dewrun/dew/runtime/kubernetes/link"
)

const (
	// callTimeout is the time limit for one call to Kubernetes or to an agent.
	callTimeout = 30 * time.Second
	// finishTimeout is the time limit for reading the last lines of a process.
	finishTimeout = 30 * time.Second
	// linkPatience is how long a call waits for an agent that is not connected. It
	// covers a restart of the agent.
	linkPatience = 20 * time.Second
)

// container is the Pod of one instance, task, build or Server.
type container struct {
	e      *Engine
	spec   runtime.Spec
	appLog *logstream.Log
	limit  *logstream.Limit
	procs  []*proc

	ctx    context.Context // done when the daemon releases the instance
	cancel context.CancelFunc
	work   sync.WaitGroup

	exits    chan runtime.Exit
	removing chan struct{} // closed when someone else deletes the Pod
	stopping atomic.Bool
	crashed  atomic.Pointer[time.Time] // time of the crash, if its files must be stored

	mu         sync.Mutex // guards the fields below
	changed    chan struct{}
	link       *link.Client // nil while the agent is not connected
	frames     *link.Frames // to the agent, nil while dewd is not attached
	pod        *corev1.Pod  // the last state that Kubernetes reported; nil before the first
	gone       string       // why the Pod no longer exists
	leaving    bool         // someone else is deleting the Pod
	explaining bool         // explainStop runs or has run
	left       int          // processes whose exit is not reported
	syncs      map[uint64]chan struct{}
	lastSync   uint64
	sessions   map[*session]bool
	released   bool // the daemon has released the instance
}

// proc is one process of a Pod.
type proc struct {
	runtime.ProcessSpec
	capture.Output
	c      *container
	index  byte
	files  [2]captureFile
	reaped chan struct{} // closed when the process has left nothing behind

	// Guarded by container.mu:
	exited   bool          // its exit is reported
	stopped  *runtime.Exit // its exit, if Kubernetes told the container to stop
	paused   bool          // no more of its output is wanted
	finished *link.Finished
	ended    bool // its output is being read to its end
	usage    *link.Usage
	measured time.Time
}

var (
	_ runtime.Container         = (*container)(nil)
	_ runtime.KeepableContainer = (*container)(nil)
	_ runtime.LeavingContainer  = (*container)(nil)
)

func (e *Engine) newContainer(ctx context.Context, s runtime.Spec) (*container, error) {
	l, err := e.cfg.Logs.App(s.App)
	if err != nil {
		return nil, err
	}
	c := &container{
		e: e, spec: s, appLog: l, exits: make(chan runtime.Exit, len(s.Processes)+1), changed: make(chan struct{}), removing: make(chan struct{}),
		left: len(s.Processes), syncs: map[uint64]chan struct{}{}, sessions: map[*session]bool{},
	}
	if s.LogRate != nil {
		c.limit = logstream.NewLimit(*s.LogRate)
	}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for i, p := range s.Processes {
		c.procs = append(c.procs, newProc(c, i, p))
	}
	return c, nil
}

func newProc(c *container, i int, s runtime.ProcessSpec) *proc {
	p := &proc{ProcessSpec: s, c: c, index: byte(i), reaped: make(chan struct{})}
	p.Log = c.appLog
	p.Frozen = func() bool { return false }
	p.Capture = logstream.Capture{
		Source: logstream.Source{Type: s.Source, Index: c.spec.Slot.Index, InstanceID: string(c.spec.Instance)},
		Exec:   s.Exec, Limit: c.limit, Freeze: p.pause,
	}
	return p
}

// spawn runs f in the background, unless the daemon has released the instance. The
// caller holds c.mu.
func (c *container) spawn(f func()) {
	if !c.released {
		c.work.Go(f)
	}
}

// broadcast wakes everything that waits for a change. The caller holds c.mu.
func (c *container) broadcast() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits until ready returns true. It is called with c.mu held.
func (c *container) await(ctx context.Context, ready func() bool) error {
	c.mu.Lock()
	for !ready() {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return errors.New("the engine was closed")
		}
		c.mu.Lock()
	}
	c.mu.Unlock()
	return nil
}

// setLink replaces the connection with the agent.
func (c *container) setLink(l agentLink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil {
		_ = c.link.Close()
	}
	if c.ctx.Err() != nil {
		_ = l.client.Close()
		return
	}
	c.link = l.client
	c.broadcast()
}

// agent returns the connection with the agent, and waits for it if necessary.
func (c *container) agent(ctx context.Context) (*link.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, linkPatience)
	defer cancel()
	var l *link.Client
	var gone string
	err := c.await(ctx, func() bool { l, gone = c.link, c.gone; return l != nil || gone != "" })
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the Pod %s is not connected", runtime.ErrUnavailable, podName(c.spec.Instance))
	case gone != "":
		return nil, fmt.Errorf("%w: %s", runtime.ErrNoInstance, gone)
	}
	return l, nil
}

// Spec returns the spec that the instance was started from.
func (c *container) Spec() runtime.Spec { return c.spec }

// Exits reports the exit of every process.
func (c *container) Exits() <-chan runtime.Exit { return c.exits }

// Leaving is closed when someone else deletes the Pod.
func (c *container) Leaving() <-chan struct{} { return c.removing }

// Settle returns once Exits holds the exit of every process that has exited.
func (c *container) Settle(ctx context.Context) error {
	if _, err := c.agent(ctx); err != nil {
		if errors.Is(err, runtime.ErrNoInstance) {
			return nil
		}
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answered := make(chan struct{})
	var frames *link.Frames
	err := c.await(ctx, func() bool { frames = c.frames; return frames != nil || c.gone != "" })
	if err != nil || frames == nil {
		return errors.Join(err, nil)
	}
	c.mu.Lock()
	c.lastSync++
	n := c.lastSync
	c.syncs[n] = answered
	c.mu.Unlock()
	if err := frames.Write(link.KindSync, link.Number(n)); err != nil {
		return unavailable(err)
	}
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return unavailable(context.Cause(ctx))
	case <-c.ctx.Done():
		return errors.New("the engine was closed")
	}
}

// Reap returns the last lines of an exited process.
func (c *container) Reap(ctx context.Context, exec string) ([]logstream.Envelope, error) {
	i := slices.IndexFunc(c.procs, func(p *proc) bool { return p.Exec == exec })
	if i < 0 {
		return nil, nil
	}
	p := c.procs[i]
	select {
	case <-p.reaped:
		return p.TakeLast(), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot read the last lines of %s: %w", exec, context.Cause(ctx))
	case <-c.ctx.Done():
	}
	select {
	case <-p.reaped: // before the daemon released the instance
		return p.TakeLast(), nil
	default:
		return nil, fmt.Errorf("cannot read the last lines of %s: the engine was closed", exec)
	}
}

// Signal sends sig to every process of the named execs.
func (c *container) Signal(ctx context.Context, sig syscall.Signal, execs ...string) error {
	c.mu.Lock()
	var running []string
	for _, p := range c.procs {
		if slices.Contains(execs, p.Exec) && !p.exited {
			running = append(running, p.Exec)
		}
	}
	c.mu.Unlock()
	if len(running) == 0 {
		return nil
	}
	agent, err := c.agent(ctx)
	if err != nil {
		if errors.Is(err, runtime.ErrNoInstance) {
			return nil
		}
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := agent.Call(ctx, link.PathSignal, link.Signal{Number: int(sig), Execs: running}, nil); err != nil {
		return callError("cannot send a signal", err)
	}
	return nil
}

// callError separates errors of a process from those of the connection.
func callError(what string, err error) error {
	if e := (*link.Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %w", what, runtime.ErrUnavailable, err)
}

// Dial connects from inside the Pod's network namespace. The virtual address of the
// instance stands for the Pod's own.
func (c *container) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == c.spec.Address.Addr().String() {
		c.mu.Lock()
		ip := ""
		if c.pod != nil {
			ip = c.pod.Status.PodIP
		}
		c.mu.Unlock()
		if ip != "" {
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(ip, port))
		}
		address = net.JoinHostPort("localhost", port)
	}
	agent, err := c.agent(ctx)
	if err != nil {
		return nil, err
	}
	q := url.Values{"network": {network}, "address": {address}}
	s, err := agent.Stream(ctx, link.PathDial+"?"+q.Encode(), nil)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return s.Conn()
}

// Consumption returns the resources that the instance has used so far.
func (c *container) Consumption(ctx context.Context, disk bool) (runtime.Consumption, error) {
	path := link.PathUsage + "?"
	if disk {
		path += "disk"
	}
	us, err := c.measure(ctx, path)
	if err != nil {
		return runtime.Consumption{}, err
	}
	var out runtime.Consumption
	for i, u := range us {
		p := c.procs[i]
		out.CPU += u.CPU
		out.Memory += u.Memory
		out.Printed += p.Printed()
		if i == 0 {
			out.Disk = u.Disk
		}
		out.Parts = append(out.Parts, runtime.PartUsage{
			Sidecar: p.Name, Limit: p.Memory, Memory: u.Memory, Cache: u.Cache, Peak: u.Peak, CPU: u.CPU, Periods: u.Periods,
			Throttled: u.Throttled, Waited: u.Waited, PIDs: u.PIDs, Anon: u.Anon, File: u.File, Kernel: u.Kernel,
		})
	}
	return out, nil
}

// measure reads the usage of every process.
func (c *container) measure(ctx context.Context, path string) ([]link.Usage, error) {
	agent, err := c.agent(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var us []link.Usage
	if err := agent.Call(ctx, path, nil, &us); err != nil {
		return nil, callError("cannot measure the instance", err)
	}
	if len(us) != len(c.procs) {
		return nil, errors.New("cannot measure the instance: the agent answered for other processes")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range c.procs {
		p.usage, p.measured = &us[i], time.Now()
	}
	return us, nil
}

// CrashState returns the memory of the whole instance, and the ports on which its
// processes listen.
func (c *container) CrashState(ctx context.Context) runtime.CrashState {
	us, err := c.measure(ctx, link.PathUsage+"?ports&disk")
	if err != nil {
		c.e.log.Debug("cannot read the state of a crashed instance", "instance", c.spec.Instance, "err", err)
		return runtime.CrashState{}
	}
	st := runtime.CrashState{Memory: runtime.Memory{Limit: c.spec.Memory}, Disk: runtime.Disk{Limit: c.spec.Disk, Used: us[0].Disk}}
	for i, u := range us {
		st.Memory.Peak += u.Peak
		for _, port := range u.Ports {
			st.Listening = append(st.Listening, runtime.Listener{Exec: c.procs[i].Exec, Port: port.Port, Loopback: port.Loopback})
		}
	}
	return st
}

// Paused reports whether one of the processes is paused until its output is stored.
func (c *container) Paused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.procs, func(p *proc) bool { return p.paused && !p.exited })
}

// KeepFiles makes Delete store the files.
func (c *container) KeepFiles(crashed time.Time) { c.crashed.Store(&crashed) }

// Delete stops the processes that still run and removes the Pod.
func (c *container) Delete(ctx context.Context) error {
	c.stopping.Store(true)
	if c.ctx.Err() != nil { // deleted before, or the daemon has released it
		return c.e.deletePod(ctx, c.spec.Instance, ptr.To(int64(0)))
	}
	err := c.quit(ctx)
	if err != nil && !errors.Is(err, runtime.ErrNoInstance) {
		if !errors.Is(err, runtime.ErrUnavailable) {
			return err
		}
		// The agent does not answer: Kubernetes must stop the processes.
		if err := c.e.deletePod(ctx, c.spec.Instance, nil); err != nil {
			return err
		}
		if err := c.await(ctx, func() bool { return c.gone != "" }); err != nil {
			return unavailable(err)
		}
	}
	for _, p := range c.procs {
		if c.spec.StartedAt.IsZero() { // it was not started, so its output has no end
			continue
		}
		last, err := c.Reap(ctx, p.Exec)
		if err != nil {
			return err
		}
		if err := c.appLog.Append(last...); err != nil {
			return fmt.Errorf("cannot store the last log lines: %w", err)
		}
	}
	c.e.crashed.keepFiles(ctx, c)
	if err := c.e.deletePod(ctx, c.spec.Instance, ptr.To(int64(0))); err != nil {
		return err
	}
	c.detach()
	if err := c.drain(ctx); err != nil {
		return fmt.Errorf("cannot store the rest of the output: %w", err)
	}
	c.e.forget(c)
	return c.e.removeFiles(c.spec.Instance, c.spec.App)
}

// quit kills all processes. The wrappers stay, because the files of the app are read
// through them.
func (c *container) quit(ctx context.Context) error {
	var execs []string
	for _, p := range c.procs {
		execs = append(execs, p.Exec)
	}
	return c.Signal(ctx, syscall.SIGKILL, execs...)
}

// deletePod deletes a Pod. It is not an error if there is none.
func (e *Engine) deletePod(ctx context.Context, id runtime.InstanceID, grace *int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := e.cfg.Client.CoreV1().Pods(e.cfg.Namespace).Delete(ctx, podName(id), metav1.DeleteOptions{GracePeriodSeconds: grace})
	if err != nil && !apierrors.IsNotFound(err) {
		return unavailable(fmt.Errorf("cannot delete Pod %s: %w", podName(id), err))
	}
	return nil
}

// detach stops all watching and reading, and does nothing else.
func (c *container) detach() {
	c.mu.Lock()
	sessions := slices.Collect(maps.Keys(c.sessions))
	c.mu.Unlock()
	why := "dewd is stopping"
	if c.stopping.Load() {
		why = "its instance has ended"
	}
	for _, s := range sessions {
		s.abandon(why)
	}
	c.cancel()
	c.mu.Lock()
	c.released = true
	if c.link != nil {
		_ = c.link.Close()
	}
	c.mu.Unlock()
	c.work.Wait()
	for _, p := range c.procs {
		p.Close()
		p.closeFiles()
	}
}
