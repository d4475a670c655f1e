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
	"github.com/dewrun/dew/runtime/cgroup"
	"github.com/dewrun/dew/runtime/network"
	"github.com/dewrun/dew/runtime/process"
)

// Every call to containerd has a deadline. Creating containerd's task waits for runc,
// which is slow on a busy machine.
const (
	callTimeout    = 30 * time.Second
	createTimeout  = 2 * time.Minute
	cleanupTimeout = time.Minute
	unpackTimeout  = 15 * time.Minute
	runtimeName    = "io.containerd.runc.v2"
)

// Config is the configuration of an Engine.
type Config struct {
	Names       Names
	Run         string // folder of run-time files
	Address     string // containerd's socket
	Init        string // dew-init on the host
	SFTP        string // dew-sftp on the host (empty: sessions have no SFTP)
	UID, GID    int    // user and group of the apps
	Subnet      netip.Prefix
	Snapshotter string
	Seccomp     Arches
	PIDs        int64          // limit of processes in one instance
	HostPorts   []uint16       // ports of the bridge's address that instances can reach
	AllowHost   bool           // instances can reach every port of the host
	LinkLocal   []netip.Prefix // the only link-local addresses that instances can reach
	Images      func(sha string) (io.ReadCloser, error)
	Called      func(method string, took time.Duration, err error) // called after each call to containerd, can be nil
	Crashed     Crashed                                            // limits for the stored files of crashed instances
	Logs        *logstream.Logs
	Logger      *slog.Logger
}

// Engine runs instances on containerd.
type Engine struct {
	cfg        Config
	log        *slog.Logger
	client     *client.Client
	tasks      tasks.TasksClient
	cg         *cgroup.Hierarchies
	net        *network.Bridge
	fw         *network.Firewall
	base       baseSpec
	images     *images
	crashed    *crashedStore
	exitTimes  *process.ExitTimes // nil if the kernel does not provide them
	boot       string
	named      atomic.Bool // there is a name server at the bridge's address
	silent     atomic.Bool // containerd does not answer
	asking     sync.WaitGroup
	stopAsking context.CancelFunc

	mu           sync.Mutex // guards the fields below
	known        map[runtime.InstanceID]*container
	notRemoved   map[runtime.InstanceID]unremoved // not completely removed yet
	stuck        []string                         // mount points of a killed daemon that could not be removed
	removedVeths map[string]time.Time             // links that the kernel should remove soon
}

var _ runtime.Engine = (*Engine)(nil)

// errSilent is the reason why the state of an instance is unknown.
var errSilent = errors.New("containerd does not answer")

// New connects to containerd and prepares the bridge, the firewall and the cgroups.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	cg, err := cgroup.Find("/proc/self/mountinfo", cfg.Names.Cgroup)
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
	n := network.New(filepath.Join(cfg.Run, "netns"), cfg.Names.Bridge, cfg.Subnet)
	e := &Engine{
		cfg: cfg, log: cfg.Logger, client: cl, tasks: cl.TaskService(), cg: cg, net: n,
		fw: &network.Firewall{
			Table: cfg.Names.Table, Bridge: cfg.Names.Bridge, Subnet: n.Subnet, Host: n.Gateway(),
			Ports: cfg.HostPorts, Open: cfg.AllowHost, LinkLocal: cfg.LinkLocal,
		},
		base: baseSpec{
			init: cfg.Init, sftp: cfg.SFTP, uid: uint32(cfg.UID), gid: uint32(cfg.GID), files: openFiles(), seccomp: cfg.Seccomp,
		},
		boot:         strings.TrimSpace(string(boot)),
		known:        map[runtime.InstanceID]*container{},
		notRemoved:   map[runtime.InstanceID]unremoved{},
		removedVeths: map[string]time.Time{},
	}
	if e.exitTimes, err = process.ListenExitTimes(); err != nil {
		e.log.Warn("the kernel does not tell when processes end, containerd's times are used", "err", err)
	}
	e.images = &images{e: e, making: make(chan struct{}, 1)}
	e.crashed, err = newCrashedStore(ctx, e, cfg.Crashed)
	if err := errors.Join(err, n.SetUp(), e.fw.Apply()); err != nil {
		e.exitTimes.Close()
		return nil, errors.Join(err, cl.Close())
	}
	answers, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.stopAsking = cancel
	e.asking.Go(func() { e.watchAnswers(answers) })
	return e, nil
}

// connect opens a client that reconnects quickly after a restart of containerd.
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

// timed reports the duration of every call. It leaves out calls that wait for the exit
// of a process, and calls that only check whether containerd answers.
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

// Close disconnects from containerd. Instances keep running.
func (e *Engine) Close() error {
	e.crashed.close()
	e.mu.Lock()
	for _, c := range e.known {
		c.detach()
	}
	e.mu.Unlock()
	e.exitTimes.Close()
	e.stopAsking()
	e.asking.Wait()
	return e.client.Close()
}

// Keep checks regularly, until ctx is done, what other programs can break: the
// firewall, and the capture of every process's output.
func (e *Engine) Keep(ctx context.Context) {
	const every, firewallEvery = 10 * time.Second, 3
	for round := 1; pause(ctx, every) == nil; round++ {
		e.checkCaptures(ctx)
		e.retryRemovals(ctx)
		e.crashed.trim(ctx)
		if round%firewallEvery != 0 {
			continue
		}
		if err := e.fw.Restore(); err != nil {
			e.log.Warn("cannot keep firewall", "err", err)
		}
	}
}

// remember stores a container until it is deleted, so that checks find it.
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

// forget removes a container from the engine's memory, and returns it.
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

// instanceDir returns the folder of an instance's run-time files. Like the instance, it
// does not survive a reboot.
func (e *Engine) instanceDir(id runtime.InstanceID) string {
	return filepath.Join(e.cfg.Run, "instances", string(id))
}

// appLog returns the log of the app.
func (e *Engine) appLog(app string) (*logstream.Log, error) {
	l, err := e.cfg.Logs.App(app)
	if err != nil {
		return nil, fmt.Errorf("cannot open log of app %s: %w", app, err)
	}
	return l, nil
}

// native converts an error of containerd to its native type. Some calls return
// converted errors, and a second conversion would lose the type.
func native(err error) error {
	if _, ok := status.FromError(err); ok {
		return errgrpc.ToNative(err)
	}
	return err
}

// unavailable reports whether an error is about the connection to containerd, not about
// the request. Such an error is never an exit.
func unavailable(err error) bool {
	err = native(err)
	return errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err) || errdefs.IsCanceled(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		strings.Contains(err.Error(), "ttrpc: closed") // the shim's connection: containerd does not give it a type
}

func notFound(err error) bool { return errdefs.IsNotFound(native(err)) }

// Address returns the socket of containerd.
func (e *Engine) Address() string { return e.cfg.Address }

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
