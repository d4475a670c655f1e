package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/dialer"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// Every call to containerd has a deadline. Creating containerd's task waits for runc, which
// on a busy machine takes its time.
const (
	callTimeout    = 30 * time.Second
	createTimeout  = 2 * time.Minute
	cleanupTimeout = time.Minute
	unpackTimeout  = 15 * time.Minute
	runtimeName    = "io.containerd.runc.v2"
)

// Config is what an Engine needs to know.
type Config struct {
	Names       Names
	Run         string // folder of run-time files
	Address     string // containerd's socket
	Init        string // dew-init on the host
	SFTP        string // dew-sftp on the host; empty: sessions have no SFTP
	UID, GID    int    // of the apps
	Subnet      netip.Prefix
	Snapshotter string
	Seccomp     Arches
	PIDs        int64          // limit of processes in one instance
	HostPorts   []uint16       // that instances may reach on the bridge's address
	AllowHost   bool           // instances may reach every port of the host
	LinkLocal   []netip.Prefix // that instances may reach; no other link-local address
	Images      func(sha string) (io.ReadCloser, error)
	Called      func(method string, took time.Duration, err error) // after each call of containerd; may be nil
	Crashed     Crashed                                            // what is kept of crashed instances
	Logs        *logstream.Logs
	Logger      *slog.Logger
}

// Engine runs instances on containerd.
type Engine struct {
	cfg        Config
	log        *slog.Logger
	client     *client.Client
	tasks      tasks.TasksClient
	cg         *cgroups
	net        *network
	fw         *firewall
	base       baseSpec
	images     *images
	crashed    *crashedStore
	exitTimes  *exitTimes // nil where the kernel does not tell
	boot       string
	named      atomic.Bool // there is a name server at the bridge's address
	silent     atomic.Bool // containerd does not answer
	asking     sync.WaitGroup
	stopAsking context.CancelFunc

	mu           sync.Mutex // guards the fields below
	known        map[runtime.InstanceID]*container
	notRemoved   map[runtime.InstanceID]unremoved // not wholly removed yet
	stuck        []string                         // mount points of a killed daemon that could not be removed
	removedVeths map[string]time.Time             // links that should be gone soon
}

var _ runtime.Engine = (*Engine)(nil)

// errSilent says why nothing is known about an instance.
var errSilent = errors.New("containerd does not answer")

// New connects to containerd and prepares bridge, firewall and cgroups.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	cg, err := findCgroups("/proc/self/mountinfo", cfg.Names.Cgroup)
	if err != nil {
		return nil, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("cannot read boot id: %w", err)
	}
	cl, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	n := newNetwork(filepath.Join(cfg.Run, "netns"), cfg.Names.Bridge, cfg.Subnet)
	e := &Engine{
		cfg: cfg, log: cfg.Logger, client: cl, tasks: cl.TaskService(), cg: cg, net: n,
		fw: &firewall{
			table: cfg.Names.Table, bridge: cfg.Names.Bridge, subnet: n.subnet, host: n.gateway(),
			ports: cfg.HostPorts, open: cfg.AllowHost, linkLocal: cfg.LinkLocal,
		},
		base: baseSpec{
			init: cfg.Init, sftp: cfg.SFTP, uid: uint32(cfg.UID), gid: uint32(cfg.GID), files: openFiles(), seccomp: cfg.Seccomp,
		},
		boot:         strings.TrimSpace(string(boot)),
		known:        map[runtime.InstanceID]*container{},
		notRemoved:   map[runtime.InstanceID]unremoved{},
		removedVeths: map[string]time.Time{},
	}
	if e.exitTimes, err = listenExitTimes(); err != nil {
		e.log.Warn("the kernel does not tell when processes end, containerd's times are used", "err", err)
	}
	e.images = &images{e: e, making: make(chan struct{}, 1)}
	e.crashed, err = newCrashedStore(ctx, e, cfg.Crashed)
	if err := errors.Join(err, n.setUp(), e.fw.apply()); err != nil {
		e.exitTimes.close()
		return nil, errors.Join(err, cl.Close())
	}
	answers, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.stopAsking = cancel
	e.asking.Go(func() { e.watchAnswers(answers) })
	return e, nil
}

// connect opens a client that comes back quickly when containerd does.
func connect(ctx context.Context, cfg Config) (*client.Client, error) {
	address := cfg.Address
	again := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}
	cl, err := client.New(address, client.WithDefaultNamespace(cfg.Names.Namespace), client.WithDialOpts([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: time.Second}),
		grpc.WithContextDialer(dialer.ContextDialer),
		grpc.WithChainUnaryInterceptor(timed(cfg.Called)),
	}))
	if err != nil {
		return nil, fmt.Errorf("cannot connect to containerd at %s: %w", address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := cl.Version(ctx); err != nil {
		cl.Close()
		return nil, fmt.Errorf("containerd at %s does not answer: %w (is it running, and is this its socket?)", address, err)
	}
	return cl, nil
}

// timed tells how long every call took, except for those that wait for the end of a
// process, which take as long as it lives, and those that only ask for a sign of life.
func timed(called func(method string, took time.Duration, err error)) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := time.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		if name := path.Base(method); called != nil && name != "Wait" && name != "Version" {
			called(name, time.Since(began), err)
		}
		return err
	}
}

// Close lets go of containerd. Instances stay.
func (e *Engine) Close() error {
	e.crashed.close()
	e.mu.Lock()
	for _, c := range e.known {
		c.detach()
	}
	e.mu.Unlock()
	e.exitTimes.close()
	e.stopAsking()
	e.asking.Wait()
	return e.client.Close()
}

// Keep checks from time to time what other programs may undo or break, until ctx
// ends: the firewall, and the way of every process's output.
func (e *Engine) Keep(ctx context.Context) {
	const every, firewallEvery = 10 * time.Second, 3
	for round := 1; pause(ctx, every) == nil; round++ {
		e.checkCaptures(ctx)
		e.retryRemovals(ctx)
		e.crashed.trim(ctx)
		if round%firewallEvery != 0 {
			continue
		}
		if err := e.fw.keep(); err != nil {
			e.log.Warn("cannot keep firewall", "err", err)
		}
	}
}

// remember keeps a container until it is deleted, so that checks find it.
func (e *Engine) remember(c *container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known[c.spec.Instance] = c
}

func (e *Engine) knows(id runtime.InstanceID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known[id] != nil
}

// forget lets go of what was remembered, and returns it.
func (e *Engine) forget(id runtime.InstanceID) *container {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.known[id]
	delete(e.known, id)
	return c
}

func (e *Engine) living() []*container {
	e.mu.Lock()
	defer e.mu.Unlock()
	cs := make([]*container, 0, len(e.known))
	for _, c := range e.known {
		cs = append(cs, c)
	}
	return cs
}

// instanceDir holds an instance's run-time files. It is gone after a reboot, as
// the instance is.
func (e *Engine) instanceDir(id runtime.InstanceID) string {
	return filepath.Join(e.cfg.Run, "instances", string(id))
}

// appLog is the log that an instance's lines go to.
func (e *Engine) appLog(app string) (*logstream.Log, error) {
	l, err := e.cfg.Logs.App(app)
	if err != nil {
		return nil, fmt.Errorf("cannot open log of app %s: %w", app, err)
	}
	return l, nil
}

// native gives an error of containerd its type. Some calls have done it already,
// and doing it again would lose it.
func native(err error) error {
	if _, ok := status.FromError(err); ok {
		return errgrpc.ToNative(err)
	}
	return err
}

// unavailable says that an error is about the way to containerd, not about what
// was asked of it. Such an error is never an exit.
func unavailable(err error) bool {
	err = native(err)
	return errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err) || errdefs.IsCanceled(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		strings.Contains(err.Error(), "ttrpc: closed") // the shim's connection: containerd gives it no type
}

func notFound(err error) bool { return errdefs.IsNotFound(native(err)) }

// Address is the socket of the containerd that it uses.
func (e *Engine) Address() string { return e.cfg.Address }
