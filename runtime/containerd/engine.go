package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/netpolicy"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/images"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
	"github.com/dewrun/dew/runtime/containerd/rootfs"
	"github.com/dewrun/dew/runtime/containerd/scratch"
	"github.com/dewrun/dew/runtime/disk"
	"github.com/dewrun/dew/runtime/network"
	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/runtime/signaltrace"
)

// Every call to containerd has a deadline. Creating containerd's task waits for runc,
// which is slow on a busy machine.
const (
	createTimeout  = 2 * time.Minute
	cleanupTimeout = time.Minute
	runtimeName    = "io.containerd.runc.v2"
)

// Config is the configuration of an Engine.
type Config struct {
	Names       names.Names
	Run         string // folder of run-time files
	Address     string // containerd's socket
	Init        string // dew-init on the host
	SFTP        string // dew-sftp on the host (empty: sessions have no SFTP)
	UID, GID    int    // user and group of the apps
	Subnet      netip.Prefix
	Snapshotter string
	Seccomp     ocispec.Arches
	OwnUsers    bool           // new instances and tasks get a user namespace
	PIDs        int64          // limit of processes in one instance
	Cores       cgroup.Cores   // limit of CPU time of one instance
	HostPorts   []uint16       // ports of the bridge's address that instances can reach
	AllowHost   bool           // instances can reach every port of the host
	LinkLocal   []netip.Prefix // the only link-local addresses that instances can reach
	// Policies reads the desired state of network policies and security groups. Nil means
	// that they are not enforced: instances reach each other and the outside.
	Policies func() (netpolicy.State, error)
	Images   func(sha string) (io.ReadCloser, error)
	Called   func(method string, took time.Duration, err error) // called after each call to containerd, can be nil
	Crashed  Crashed                                            // limits for the stored files of crashed instances
	Disks    disk.Config                                        // disk limits of instances; its Logger is that of the engine
	Logs     *logstream.Logs
	Logger   *slog.Logger
}

// Engine runs instances on containerd.
type Engine struct {
	cfg       Config
	log       *slog.Logger
	conn      *connection.Connection
	cg        *cgroup.Hierarchies
	net       *network.Bridge
	fw        *network.Firewall
	guard     networkGuard
	base      ocispec.Base
	images    *images.Store
	mounts    *scratch.Mounts
	crashed   *crashedStore
	disks     layerLimits
	exitTimes *process.ExitTimes // nil if the kernel does not provide them
	signals   *signaltrace.Trace // nil if the kernel does not provide them
	boot      string
	execMain  bool        // only in tests: start main processes as earlier versions did
	named     atomic.Bool // there is a name server at the bridge's address
	trusted   atomic.Pointer[certs.Instances]

	known    knownContainers
	waiting  knownContainers // prepared, and not in known yet
	removals pendingRemovals
}

var (
	_ runtime.Engine     = (*Engine)(nil)
	_ runtime.StopEngine = (*Engine)(nil)
)

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
	conn, err := connection.Open(ctx, connection.Config{Address: cfg.Address, Namespace: cfg.Names.Namespace, Called: cfg.Called, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	n := network.New(filepath.Join(cfg.Run, "netns"), cfg.Names.Bridge, cfg.Subnet)
	e := &Engine{
		cfg: cfg, log: cfg.Logger, conn: conn, cg: cg, net: n,
		fw: &network.Firewall{
			Table: cfg.Names.Table, Bridge: cfg.Names.Bridge, Subnet: n.Subnet, Host: n.Gateway(),
			Ports: cfg.HostPorts, Open: cfg.AllowHost, LinkLocal: cfg.LinkLocal,
		},
		base: ocispec.Base{
			Init: cfg.Init, SFTP: cfg.SFTP, UID: uint32(cfg.UID), GID: uint32(cfg.GID), Files: ocispec.OpenFileLimit(), Seccomp: cfg.Seccomp,
		},
		boot:   strings.TrimSpace(string(boot)),
		mounts: scratch.New(filepath.Join(cfg.Run, "mnt"), cfg.Logger),
	}
	if e.exitTimes, err = process.ListenExitTimes(); err != nil {
		e.log.Warn("the kernel does not report the exit times of processes; dewd uses containerd's times", "err", err)
	}
	if e.signals, err = signaltrace.Open(cfg.Names.Cgroup); err != nil {
		e.log.Info("dewd cannot name the senders of signals", "err", err)
	}
	e.images = images.New(images.Config{
		Client: conn.Client, Snapshotter: cfg.Snapshotter, Mounts: e.mounts, Owner: cfg.owner(), Droplet: cfg.Images, Logger: cfg.Logger,
	})
	e.crashed, err = newCrashedStore(ctx, e, cfg.Crashed)
	cfg.Disks.Logger = cfg.Logger
	limits, derr := disk.Open(cfg.Disks)
	e.disks = layerLimits{limits, e}
	if err := errors.Join(err, derr, n.SetUp(), e.fw.Apply(), e.openGuard(), cg.WeighParent()); err != nil {
		e.exitTimes.Close()
		return nil, errors.Join(err, e.guard.close(), e.signals.Close(), conn.Close())
	}
	return e, nil
}

// Close disconnects from containerd. Instances keep running.
func (e *Engine) Close() error {
	e.crashed.close()
	for _, c := range e.known.all() {
		c.detach()
	}
	e.exitTimes.Close()
	return errors.Join(e.guard.close(), e.signals.Close(), e.conn.Close())
}

// Keep checks regularly, until ctx is done, what other programs can break: the network,
// the firewall, and the capture of every process's output. It also checks the disk limits.
func (e *Engine) Keep(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { e.disks.watch(ctx) })
	wg.Go(func() { e.guard.run(ctx) })
	const every, firewallEvery = 10 * time.Second, 3
	for round := 1; process.Sleep(ctx, every) == nil; round++ {
		e.checkCaptures(ctx)
		e.retryRemovals(ctx)
		e.crashed.trim(ctx)
		if err := errors.Join(restoreNetwork(e), restoreGroups(e)); err != nil {
			e.log.Warn("cannot restore what another program removed", "err", err)
		}
		if round%firewallEvery != 0 {
			continue
		}
		if err := errors.Join(e.fw.Restore(), e.guard.policies.Restore()); err != nil {
			e.log.Warn("cannot restore the firewall rules", "err", err)
		}
	}
}

// instanceDir returns the folder of an instance's run-time files. Like the instance, it
// does not survive a reboot.
func (e *Engine) instanceDir(id runtime.InstanceID) string {
	return filepath.Join(e.cfg.Run, "instances", string(id))
}

// owner returns the user and group of the apps.
func (c Config) owner() rootfs.Owner { return rootfs.Owner{UID: c.UID, GID: c.GID} }

// appLog returns the log of the app.
func (e *Engine) appLog(app string) (*logstream.Log, error) {
	l, err := e.cfg.Logs.App(app)
	if err != nil {
		return nil, fmt.Errorf("cannot open log of app %s: %w", app, err)
	}
	return l, nil
}

// Outage returns why the state of the instances is unknown now. It is nil while
// containerd answers.
func (e *Engine) Outage() error { return e.conn.Outage() }

// Unpack creates the image of an instance if necessary. Otherwise its first start does it.
func (e *Engine) Unpack(ctx context.Context, s runtime.Spec) error {
	_, err := e.images.Parent(ctx, s)
	return err
}

// PruneImages removes the snapshots of trees that no longer exist. A snapshot that an
// instance still uses stays until the instance is gone.
func (e *Engine) PruneImages(ctx context.Context, has func(sha string) bool) error {
	return e.images.PruneImages(ctx, has)
}

// PruneStacks removes the snapshots of stacks that no longer exist. A snapshot that an
// image or an instance still uses stays until that is gone.
func (e *Engine) PruneStacks(ctx context.Context, keep func(id string) bool) error {
	return e.images.PruneStacks(ctx, keep)
}

// Address returns the socket of containerd.
func (e *Engine) Address() string { return e.cfg.Address }
