package kubernetes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// Config is the configuration of an Engine.
type Config struct {
	Client    kubernetes.Interface
	Namespace string
	Name      string // of this daemon. It labels its Pods, so that daemons do not touch each other's
	Dir       string // folder for keys and for the settings of running instances
	Listener  net.Listener
	Address   string // address of the listener for the agents in the Pods
	Image     string // image with dew-pod, dew-init and dew-sftp
	// StackImage returns the image of a stack. The error is a *runtime.StartError if the
	// stack cannot be used in a cluster.
	StackImage  func(stack.Stack) (string, error)
	PullSecret  string // name of the Secret for the registry; empty: none
	UID         int64  // user of the apps. The agent has the next one
	Backlog     int64  // bytes of output that a Pod keeps for each stream while dewd does not read
	CPU         int64  // limit of each instance in thousandths of a core; 0: none
	Droplet     func(sha string) (io.ReadCloser, error)
	Crashed     Crashed
	Logs        *logstream.Logs
	Logger      *slog.Logger
	StartLimit  time.Duration // how long a Pod can take to start
	GracePeriod time.Duration // between SIGTERM and SIGKILL when someone else deletes a Pod
}

// Engine runs instances as Pods of one namespace.
type Engine struct {
	cfg     Config
	log     *slog.Logger
	keys    keys
	ctx     context.Context // done when the engine is closed
	cancel  context.CancelFunc
	work    sync.WaitGroup
	crashed *crashedStore
	states  *states

	mu      sync.Mutex // guards the fields below
	known   map[runtime.InstanceID]*container
	waiting map[runtime.InstanceID]agentLink // agents of Pods that are not known yet
	outage  error
}

var (
	_ runtime.Engine      = (*Engine)(nil)
	_ runtime.CrashKeeper = (*Engine)(nil)
)

// New returns an engine. It creates the keys of the agents if they do not exist.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	e := &Engine{cfg: cfg, log: cfg.Logger, known: map[runtime.InstanceID]*container{}, waiting: map[runtime.InstanceID]agentLink{}}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, dir := range []string{cfg.Dir, e.settingsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot create the folder of the engine: %w", err)
		}
	}
	var err error
	if e.keys, err = openKeys(cfg.Dir); err != nil {
		return nil, err
	}
	if err := e.putSecret(ctx); err != nil {
		return nil, err
	}
	if e.crashed, err = newCrashedStore(e, cfg.Crashed); err != nil {
		return nil, err
	}
	e.states = newStates(e)
	version, err := e.list(ctx)
	if err != nil {
		return nil, err
	}
	l := tls.NewListener(cfg.Listener, e.keys.server())
	e.work.Go(func() { e.acceptAgents(l) })
	e.work.Go(func() { e.watchPods(version) })
	e.work.Go(e.states.run)
	return e, nil
}

// Close stops all watching and reading. The instances keep running.
func (e *Engine) Close() error {
	e.cancel()
	err := e.cfg.Listener.Close()
	for _, c := range e.all() {
		c.detach()
	}
	e.mu.Lock()
	for _, l := range e.waiting {
		_ = l.client.Close()
	}
	e.mu.Unlock()
	e.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

// Outage returns why the state of the Pods is unknown at the moment.
func (e *Engine) Outage() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.outage
}

func (e *Engine) setOutage(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if (err == nil) != (e.outage == nil) {
		if err != nil {
			e.log.Warn("the Kubernetes API does not answer; running apps are not affected", "err", err)
		} else {
			e.log.Info("the Kubernetes API answers again")
		}
	}
	e.outage = err
}

func (e *Engine) all() []*container {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.known))
}

func (e *Engine) find(id runtime.InstanceID) *container {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known[id]
}

// add makes a container known, and gives it its agent if that was faster.
func (e *Engine) add(c *container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := c.spec.Instance
	e.known[id] = c
	if l, ok := e.waiting[id]; ok {
		delete(e.waiting, id)
		c.setLink(l)
	}
}

func (e *Engine) forget(c *container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known[c.spec.Instance] == c {
		delete(e.known, c.spec.Instance)
	}
}

func (e *Engine) settingsDir() string { return filepath.Join(e.cfg.Dir, "instances") }

// unavailable marks the errors of calls to the API that say nothing about an instance.
func unavailable(err error) error { return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err) }
