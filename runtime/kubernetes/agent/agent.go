package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/runtime/kubernetes/link"
	"github.com/dewrun/dew/runtime/kubernetes/wrapper"
	"github.com/dewrun/dew/runtime/process"
)

// Config is the configuration of an agent.
type Config struct {
	Instance string
	Token    string // proves to dewd which Pod the agent belongs to
	Server   string // address of dewd
	TLS      *tls.Config
	Execs    []string // the processes, main first
	Run      string   // folder that all containers of the Pod share
	Bin      string   // folder for the programs of dew, which the other containers read; empty: nothing is copied
	Programs []string // the programs. The last one is copied last: the wrappers wait for it
	Logger   *slog.Logger
}

// helloPatience is how long the other side of a connection can take for its first
// message.
const helloPatience = 10 * time.Second

// Agent is the agent of one Pod.
type Agent struct {
	cfg   Config
	log   *slog.Logger
	procs []*proc

	mu      sync.Mutex // guards the fields below, and those of the procs
	changed *sync.Cond
	exits   []link.Exit // in the order in which they are reported
}

// proc is one process of the Pod.
type proc struct {
	exec     string
	index    byte
	client   *link.Client // nil while the wrapper is not connected
	events   *link.Frames // to the wrapper
	seen     bool         // the wrapper was connected
	size     [2]int64     // of its output
	freed    [2]int64     // how much of that dewd has stored
	exited   bool         // its exit is in Agent.exits
	finished *link.Finished
}

// New prepares the shared folder and returns the agent.
func New(cfg Config) (*Agent, error) {
	a := &Agent{cfg: cfg, log: cfg.Logger}
	a.changed = sync.NewCond(&a.mu)
	for i, exec := range cfg.Execs {
		a.procs = append(a.procs, &proc{exec: exec, index: byte(i)})
	}
	for _, p := range a.procs {
		if err := a.load(p); err != nil {
			return nil, err
		}
	}
	return a, a.install()
}

// install copies the programs into the folder that the other containers read.
func (a *Agent) install() error {
	if a.cfg.Bin == "" {
		return nil
	}
	for _, program := range a.cfg.Programs {
		if err := install(program, filepath.Join(a.cfg.Bin, filepath.Base(program))); err != nil {
			return fmt.Errorf("cannot copy %s: %w", program, err)
		}
	}
	return nil
}

func install(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return err
	}
	return os.Rename(to+".new", to) // a wrapper finds either nothing or the whole program
}

// load reads the exit of a process whose wrapper was gone before this agent started.
func (a *Agent) load(p *proc) error {
	b, err := os.ReadFile(wrapper.ExitFile(a.cfg.Run, p.exec))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var r wrapper.Result
	if err := json.Unmarshal(b, &r); err != nil || r.Exit == nil {
		a.log.Warn("cannot read the exit of a process", "exec", p.exec, "err", err)
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report(*r.Exit)
	a.finish(p, r.Finished)
	return nil
}

// Run serves until ctx is done and dewd has all exits and all output.
func (a *Agent) Run(ctx context.Context) error {
	socket := wrapper.Socket(a.cfg.Run)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("cannot listen for the processes: %w", err)
	}
	defer l.Close()
	if err := os.Chmod(socket, 0o666); err != nil { // the wrappers run as another user
		return err
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go a.accept(own, l)
	go a.serve(own)
	<-ctx.Done()
	a.awaitStored()
	return nil
}

// awaitStored waits until every process has exited and dewd has all their output.
func (a *Agent) awaitStored() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		if !slices.ContainsFunc(a.procs, func(p *proc) bool { return p.seen && (p.finished == nil || p.freed != p.size) }) {
			return
		}
		a.changed.Wait()
	}
}

// serve connects to dewd, again and again.
func (a *Agent) serve(ctx context.Context) {
	mux := a.handler()
	for wait := 20 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, time.Second) {
		began := time.Now()
		err := a.connect(ctx, func(conn net.Conn) error {
			return link.Serve(ctx, conn, link.Hello{Instance: a.cfg.Instance, Token: a.cfg.Token}, mux)
		})
		if time.Since(began) > time.Second {
			wait = 20 * time.Millisecond
		}
		a.log.Info("not connected with dewd", "server", a.cfg.Server, "err", err)
		if process.Sleep(ctx, wait) != nil {
			return
		}
	}
}

func (a *Agent) connect(ctx context.Context, use func(net.Conn) error) error {
	bounded, cancel := context.WithTimeout(ctx, helloPatience)
	defer cancel()
	conn, err := (&tls.Dialer{Config: a.cfg.TLS}).DialContext(bounded, "tcp", a.cfg.Server)
	if err != nil {
		return err
	}
	return use(conn)
}

// accept receives the connections of the wrappers.
func (a *Agent) accept(ctx context.Context, l net.Listener) {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				a.log.Error("cannot accept the connection of a process", "err", err)
			}
			return
		}
		go a.welcome(ctx, conn)
	}
}

func (a *Agent) welcome(ctx context.Context, conn net.Conn) {
	c, hello, err := link.NewClient(ctx, conn, helloPatience)
	if err != nil {
		a.log.Warn("cannot read the first message of a process", "err", err)
		return
	}
	i := slices.IndexFunc(a.procs, func(p *proc) bool { return p.exec == hello.Exec })
	if i < 0 {
		a.log.Warn("a process has an unknown name", "exec", hello.Exec)
		_ = c.Close()
		return
	}
	a.follow(ctx, a.procs[i], c, hello.PID)
}

// follow reads the events of a wrapper until its connection is closed.
func (a *Agent) follow(ctx context.Context, p *proc, c *link.Client, pid int) {
	defer func() { _ = c.Close() }() // it can be closed already
	s, err := c.Stream(ctx, link.PathEvents, nil)
	if err != nil {
		a.log.Warn("cannot follow a process", "exec", p.exec, "err", err)
		return
	}
	defer func() { _ = s.Close() }() // it has ended
	a.mu.Lock()
	p.client, p.events, p.seen = c, link.NewFrames(s), true
	a.changed.Broadcast()
	a.mu.Unlock()
	for buf := make([]byte, 4<<10); ; {
		k, b, err := link.ReadFrame(s, buf)
		if err == nil {
			err = a.event(ctx, p, k, b)
		}
		if err != nil {
			break
		}
	}
	a.mu.Lock()
	if p.client == c {
		p.client, p.events = nil, nil
		a.changed.Broadcast()
	}
	a.mu.Unlock()
	a.awaitWrapper(ctx, p, pid)
}

// awaitWrapper waits until a wrapper is connected again, or is dead. A dead one leaves
// its exit in a file, unless it was killed.
func (a *Agent) awaitWrapper(ctx context.Context, p *proc, pid int) {
	for wait := time.Millisecond; process.Alive(pid); wait = min(2*wait, 200*time.Millisecond) {
		a.mu.Lock()
		back := p.client != nil
		a.mu.Unlock()
		if back || process.Sleep(ctx, wait) != nil {
			return
		}
	}
	a.lost(p)
}

// lost completes what is known of a process whose wrapper no longer runs.
func (a *Agent) lost(p *proc) {
	if err := a.load(p); err != nil {
		a.log.Warn("cannot read the exit of a process", "exec", p.exec, "err", err)
	}
	var sizes [2]int64
	for s := range sizes {
		if fi, err := os.Stat(wrapper.OutputFile(a.cfg.Run, p.exec, s)); err == nil {
			sizes[s] = fi.Size()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.finish(p, &link.Finished{Exec: p.exec, Size: sizes})
}

// event handles one frame of a wrapper.
func (a *Agent) event(ctx context.Context, p *proc, k link.Kind, b []byte) error {
	switch k {
	case link.KindExit:
		var x link.Exit
		if err := json.Unmarshal(b, &x); err != nil {
			return err
		}
		go a.exited(ctx, x)
	case link.KindFinished:
		var f link.Finished
		if err := json.Unmarshal(b, &f); err != nil {
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.finish(p, &f)
	case link.KindGrown:
		at, _, err := link.DecodePosition(b)
		if err != nil {
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		p.size[at.Stream] = max(p.size[at.Stream], at.Offset)
		a.changed.Broadcast()
	}
	return nil
}

// finish records the end of the output of a process. The caller holds a.mu.
func (a *Agent) finish(p *proc, f *link.Finished) {
	if f == nil || p.finished != nil {
		return
	}
	p.finished, p.size, p.seen = f, f.Size, true
	a.changed.Broadcast()
}

// exited reports an exit, after those of all processes that exited before it.
func (a *Agent) exited(ctx context.Context, x link.Exit) {
	a.sync(ctx, &x)
}

// syncTimeout is how long a wrapper can take to say whether its process has exited.
const syncTimeout = 5 * time.Second

// sync asks all wrappers whether their process has exited, and reports the exits in the
// order of their times, together with the given one.
func (a *Agent) sync(ctx context.Context, known *link.Exit) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	found := make([]*link.Exit, len(a.procs))
	var work sync.WaitGroup
	for i, p := range a.procs {
		a.mu.Lock()
		c, exited := p.client, p.exited
		a.mu.Unlock()
		if known != nil && known.Exec == p.exec {
			found[i] = known
			continue
		}
		if c == nil || exited {
			continue
		}
		work.Go(func() {
			var answer link.Synced
			if err := c.Call(ctx, link.PathSync, nil, &answer); err != nil {
				a.log.Warn("a process does not say whether it has exited", "exec", p.exec, "err", err)
				return
			}
			found[i] = answer.Exit
		})
	}
	work.Wait()
	found = slices.DeleteFunc(found, func(x *link.Exit) bool { return x == nil })
	slices.SortStableFunc(found, func(a, b *link.Exit) int { return a.At.Compare(b.At) })
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range found {
		a.report(*x)
	}
}

// report adds an exit, once. The caller holds a.mu.
func (a *Agent) report(x link.Exit) {
	for _, p := range a.procs {
		if p.exec == x.Exec && !p.exited {
			p.exited = true
			a.exits = append(a.exits, x)
			a.changed.Broadcast()
		}
	}
}
