package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Pauses before a component that exited starts again, as systemd has them.
const (
	firstRestart = 100 * time.Millisecond
	lastRestart  = 5 * time.Second
	stopTimeout  = 5 * time.Second
)

// machine is process 1 of a PID namespace: it starts components, starts them again when
// they exit, and removes zombies.
type machine struct {
	name string
	logs string

	mu         sync.Mutex // guards the fields below and the states of components
	components []*component
	processes  map[int]*process
}

// component is a program that runs as long as its machine, unless a test stops it.
type component struct {
	name    string
	args    []string
	attr    *syscall.SysProcAttr // for its namespaces, or nil
	inputs  []*os.File           // open files from number 3 on
	started func(pid int) error  // called after each start, or nil

	wanted  bool
	paused  bool
	starts  int
	backoff time.Duration
	process *process // nil if it does not run
}

// process is one run of a program.
type process struct {
	pid    int
	exited chan struct{}
	status syscall.WaitStatus // set before exited is closed
}

func newMachine(name, logs string) *machine {
	m := &machine{name: name, logs: filepath.Join(logs, name), processes: map[int]*process{}}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			m.reap()
		}
	}()
	return m
}

// reap collects the exit statuses of all children that have exited, orphans included.
func (m *machine) reap() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if p := m.processes[pid]; p != nil {
			p.status = status
			delete(m.processes, pid)
			close(p.exited)
		}
	}
}

// spawn starts a program. The caller holds the lock, so that reap cannot see the process
// before it is in the table.
func (m *machine) spawn(args []string, attr *os.ProcAttr) (*process, error) {
	path, err := lookPath(args[0])
	if err != nil {
		return nil, err
	}
	started, err := os.StartProcess(path, args, attr)
	if err != nil {
		return nil, err
	}
	p := &process{pid: started.Pid, exited: make(chan struct{})}
	m.processes[p.pid] = p
	return p, started.Release()
}

// run runs a program to its end and returns its exit code.
func (m *machine) run(args []string, attr *os.ProcAttr) (int, error) {
	m.mu.Lock()
	p, err := m.spawn(args, attr)
	m.mu.Unlock()
	if err != nil {
		return 0, err
	}
	<-p.exited
	if p.status.Signaled() {
		return 128 + int(p.status.Signal()), nil
	}
	return p.status.ExitStatus(), nil
}

// output runs a program to its end. If it fails, the error has what it printed.
func (m *machine) output(stdin *os.File, args ...string) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	var text bytes.Buffer
	copied := make(chan struct{})
	go func() {
		_, _ = io.Copy(&text, read)
		close(copied)
	}()
	code, err := m.run(args, &os.ProcAttr{Files: []*os.File{stdin, write, write}, Env: os.Environ()})
	write.Close()
	<-copied
	if err == nil && code != 0 {
		err = fmt.Errorf("%s: exit code %d: %s", args[0], code, bytes.TrimSpace(text.Bytes()))
	}
	return err
}

// add registers a component and starts it.
func (m *machine) add(c *component) error {
	m.mu.Lock()
	m.components = append(m.components, c)
	m.mu.Unlock()
	return m.start(c)
}

// start starts a component that does not run.
func (m *machine) start(c *component) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.process != nil {
		return nil
	}
	c.wanted, c.backoff = true, firstRestart
	return m.launch(c)
}

// launch starts the process of a component. The caller holds the lock.
func (m *machine) launch(c *component) error {
	if err := os.MkdirAll(m.logs, 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(m.logs, c.name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	attr := &syscall.SysProcAttr{}
	if c.attr != nil {
		*attr = *c.attr
	}
	attr.Setsid = true // Ctrl-C in the terminal is for COMMAND only
	files := append([]*os.File{nil, log, log}, c.inputs...)
	p, err := m.spawn(c.args, &os.ProcAttr{Files: files, Env: os.Environ(), Sys: attr})
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", c.name, err)
	}
	c.process, c.paused = p, false
	c.starts++
	go m.watch(c, p, time.Now())
	if c.started != nil {
		return c.started(p.pid)
	}
	return nil
}

// watch waits for the end of a component's process, and starts it again if it must run.
func (m *machine) watch(c *component, p *process, since time.Time) {
	<-p.exited
	m.mu.Lock()
	c.process = nil
	if time.Since(since) > 2*lastRestart {
		c.backoff = firstRestart
	}
	pause := c.backoff
	c.backoff = min(2*c.backoff, lastRestart)
	m.mu.Unlock()
	<-time.After(pause)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !c.wanted || c.process != nil {
		return
	}
	if err := m.launch(c); err != nil {
		fmt.Fprintf(os.Stderr, "cluster: %s: %v\n", m.name, err)
	}
}

// find returns a component, or an error that lists all.
func (m *machine) find(name string) (*component, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, c := range m.components {
		if c.name == name {
			return c, nil
		}
		names = append(names, c.name)
	}
	return nil, fmt.Errorf("%s has no component %q: it has %q", m.name, name, names)
}

// signal sends a signal to a component and returns its process.
func (m *machine) signal(c *component, sig syscall.Signal) (*process, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.process == nil {
		return nil, fmt.Errorf("%s of %s does not run", c.name, m.name)
	}
	if err := syscall.Kill(c.process.pid, sig); err != nil {
		return nil, fmt.Errorf("cannot send a signal to %s: %w", c.name, err)
	}
	switch sig {
	case syscall.SIGSTOP:
		c.paused = true
	case syscall.SIGCONT:
		c.paused = false
	}
	return c.process, nil
}

// kill kills a component and returns when the process has exited. It starts again.
func (m *machine) kill(c *component) error {
	p, err := m.signal(c, syscall.SIGKILL)
	if err != nil {
		return err
	}
	<-p.exited
	return nil
}

// stop terminates a component and returns when it has exited. It stays stopped.
func (m *machine) stop(c *component, sig syscall.Signal) error {
	m.mu.Lock()
	c.wanted = false
	running := c.process != nil
	m.mu.Unlock()
	if !running {
		return nil
	}
	p, err := m.signal(c, sig)
	if err != nil {
		return err
	}
	_, _ = m.signal(c, syscall.SIGCONT) // it could have exited already
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		_, _ = m.signal(c, syscall.SIGKILL)
		<-p.exited
	}
	return nil
}

// lookPath finds a program. os/exec is not used in process 1: it would wait for its
// children itself.
func lookPath(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("the program %s is not installed: run make setup-k8stest", name)
}
