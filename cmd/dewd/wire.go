package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/api"
	"github.com/dewrun/dew/api/access"
	apidaemon "github.com/dewrun/dew/api/daemon"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/drain"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/route"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd"
	"github.com/dewrun/dew/runtime/network"
	"github.com/dewrun/dew/runtime/supervisor"
	"github.com/dewrun/dew/services/builtin"
	"github.com/dewrun/dew/services/marketplace"
	"github.com/dewrun/dew/sshd"
	"github.com/dewrun/dew/store"
)

// storeFormat is the number of the store's format that this dewd writes.
const storeFormat = 1

// maxPIDs is how many processes and threads one instance may have.
const maxPIDs = 1024

// teardownLimit is far more than it takes: what hangs shall be told.
const teardownLimit = 2 * time.Minute

// daemon is everything that runs, bottom up.
type daemon struct {
	cfg       config
	log       *slog.Logger
	holder    *holder
	cell      string
	init      string // dew-init as instances bind it
	sftp      string // dew-sftp likewise; empty: there is none
	db        *store.DB
	registry  *registry.Registry
	events    *registry.Events
	jobs      *registry.Jobs
	shelf     *droplet.Droplets
	stacks    *stack.Stacks
	packages  *droplet.Packages
	catalog   *droplet.Catalog
	builds    *droplet.Builds
	logs      *logstream.Logs
	subnet    netip.Prefix
	private   *containerd.Daemon // nil where the machine's own containerd serves
	engine    *containerd.Engine
	sup       *supervisor.Supervisor
	router    *route.Router
	auth      *auth.Server
	roles     *auth.Roles
	notify    *notifier
	databases *builtin.Broker
	services  *marketplace.Marketplace
	drains    *drain.Drains
	refused   func() ([]v3.RefusedURL, error) // readRefused, once
	api       *api.Server
	metrics   *apidaemon.Metrics
	listen    []net.Listener // of the API
	front     []net.Listener // of app routes
	gate      []net.Listener // of the ssh door; none: there is no such door
	secure    []net.Listener // of app routes over TLS; none: there is no such door
	inside    inside         // the doors for instances
	ssh       *sshd.Server
	leave     context.CancelFunc
	endApps   atomic.Bool   // somebody asked to end the apps when dewd leaves
	sweep     chan struct{} // holds one: logs may belong to nobody
	stale     chan struct{} // holds one: containerd may keep images that are gone
	ready     chan struct{} // closed when what an earlier dewd left is taken over
	aside     *setAside

	closers []func() error // in the order of opening
}

// open opens what the daemon stands on, from the ground up. When a step fails
// the ones before it are undone.
func open(ctx context.Context, cfg config, log *slog.Logger) (_ *daemon, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("cannot run: not root (sudo dewd, or the unit dew.service)")
	}
	d := &daemon{cfg: cfg, log: log, aside: newSetAside(cfg.Root, log), metrics: apidaemon.NewMetrics(), ready: make(chan struct{}), sweep: make(chan struct{}, 1), stale: make(chan struct{}, 1)}
	d.refused = sync.OnceValues(d.readRefused)
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	for _, step := range []func(context.Context) error{
		d.openRoot, d.openListeners, d.openCell, d.openStore, d.openLogs, d.openDroplets, d.openContainerd, d.openEngine, d.openSupervisor, d.openServices, d.openInside,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *daemon) openRoot(ctx context.Context) (err error) {
	if d.holder, err = hold(ctx, d.cfg.Root, d.cfg.Run, d.log); err != nil {
		return err
	}
	d.closers = append(d.closers, d.holder.release)
	return nil
}

// openCell names the cell and places the programs that its instances run.
func (d *daemon) openCell(context.Context) (err error) {
	if d.cell, err = d.holder.cellID(); err != nil {
		return err
	}
	return d.placePrograms()
}

// openListeners takes the ports, before anything is made for which they would be
// missing. A teardown serves nobody and has no addresses.
func (d *daemon) openListeners(context.Context) (err error) {
	if d.cfg.Listen == "" {
		return nil
	}
	if d.listen, err = listenTCP(d.cfg.Listen, "listen"); err != nil {
		return err
	}
	if d.front, err = listenTCP(d.cfg.Router, "router"); err != nil {
		return err
	}
	if err := d.openGate(); err != nil {
		return err
	}
	if d.cfg.RouterTLS != "" {
		if d.secure, err = listenTCP(d.cfg.RouterTLS, "router-tls"); err != nil {
			return err
		}
	}
	if d.cfg.PublicURL == "" {
		d.cfg.PublicURL = "http://" + d.listen[0].Addr().String()
	}
	return nil
}

func (d *daemon) openStore(context.Context) (err error) {
	if d.db, err = store.Open(filepath.Join(d.cfg.Root, "dew.db"), store.Options{Format: storeFormat, Committed: d.committed}); err != nil {
		return err
	}
	d.closers = append(d.closers, d.db.Close)
	d.registry, d.events, d.jobs = registry.New(d.db), registry.NewEvents(d.db), registry.NewJobs(d.db, d.log)
	if _, err := d.registry.EnsureDefaults(d.cfg.Domain); err != nil {
		return err
	}
	if err := d.registry.EnsureRouterGroup(d.cfg.TCPPorts); err != nil {
		return err
	}
	if d.shelf, err = droplet.NewDroplets(d.db, filepath.Join(d.cfg.Root, "droplets")); err != nil {
		return err
	}
	d.aside.add("droplets", d.shelf.Sweep)
	return nil
}

// keptSubnet is the wished network, else the one of the last time, else a free
// one. It is kept: instances that are adopted have addresses in it.
func (d *daemon) keptSubnet(ctx context.Context) (netip.Prefix, error) {
	settings, p := store.In[netip.Prefix](d.db, "settings"), d.cfg.Subnet
	if !p.IsValid() {
		kept, err := settings.Get("subnet")
		if err == nil {
			return kept, nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return p, err
		}
		if p, err = network.TakeSubnet(ctx, containerd.NamesFor(d.cfg.Root).Bridge); err != nil {
			return p, err
		}
	}
	return p, settings.Put("subnet", p)
}

func (d *daemon) openLogs(context.Context) (err error) {
	d.logs, err = logstream.Open(filepath.Join(d.cfg.Root, "logs"), logstream.Options{
		Reserve: int64(d.cfg.LogReserve), Backlog: int64(d.cfg.LogBacklog), Retention: int64(d.cfg.LogRetention),
		Age: d.cfg.LogAge, Logger: d.log,
	})
	if err != nil {
		return err
	}
	d.closers = append(d.closers, d.logs.Close)
	d.aside.add("logs", d.logs.ClearRemoved)
	if kept := size(d.logs.Retention()); kept < d.cfg.LogRetention {
		d.log.Warn("--log-retention is more than a quarter of the file system: each app keeps less log than asked for",
			"asked", d.cfg.LogRetention.String(), "kept", kept.String(), "root", d.cfg.Root)
	}
	return nil
}

func (d *daemon) committed(took time.Duration) {
	d.metrics.StoreCommit(took)
	if d.cfg.committed != nil {
		d.cfg.committed()
	}
}

func (d *daemon) called(method string, took time.Duration, err error) {
	d.metrics.ContainerdCall(method, took, err)
	if d.cfg.called != nil {
		d.cfg.called()
	}
}

func (d *daemon) openDroplets(context.Context) (err error) {
	d.packages, err = droplet.NewPackages(d.db, droplet.PackageOptions{Dir: filepath.Join(d.cfg.Root, "packages"), Logger: d.log})
	if err != nil {
		return err
	}
	d.aside.add("packages", d.packages.Sweep)
	return d.openBuilds()
}

// sayStaging writes a line of a build into the app's log.
func (d *daemon) sayStaging(guid, line string) {
	e := logstream.Envelope{Source: logstream.Source{Type: "STG"}, Stream: logstream.Out, Text: []byte(line)}
	if err := (book{d.logs}).Append(guid, e); err != nil {
		d.log.Error("cannot write a line of staging", "app", guid, "err", err)
	}
}

// maxStagingErrors is how many lines of a build are searched for the cause of its failure.
const maxStagingErrors = 200

// stagingErrors are the newest lines that a build has printed to stderr. It fails with
// or without them, only less clearly.
func (d *daemon) stagingErrors(guid string, since time.Time) []string {
	l, err := d.logs.App(guid)
	if err != nil {
		return nil
	}
	f := logstream.Filter{Source: runtime.SourceStaging, Stream: logstream.Err, NoGaps: true, Since: since}
	es, err := l.NewestOf(context.Background(), maxStagingErrors, f)
	if err != nil {
		d.log.Warn("cannot read the lines of a build", "app", guid, "err", err)
	}
	var lines []string
	for i := range es {
		lines = append(lines, string(es[i].Text))
	}
	return lines
}

// dropletsInUse are those that instances and tasks are started from; nil while nobody can tell.
func (d *daemon) dropletsInUse(tx *store.Tx) map[string]bool {
	used, err := d.registry.With(tx).DropletsInUse()
	if err != nil {
		d.log.Error("cannot read which droplets are in use", "err", err)
		return nil
	}
	return used
}

// openContainerd finds the machine's containerd, or takes a private one. A root
// that once had a private one keeps it: its instances are there.
func (d *daemon) openContainerd(ctx context.Context) error {
	own := filepath.Join(d.cfg.Root, "containerd")
	if _, err := os.Stat(own); errors.Is(err, os.ErrNotExist) {
		served, err := containerd.SocketAnswers(ctx, d.cfg.Containerd)
		if err != nil {
			return fmt.Errorf("cannot reach containerd: %w (start it, remove the stale socket, or give another --containerd)", err)
		}
		if served {
			return nil
		}
		if d.cfg.Containerd != defaultConfig().Containerd {
			return fmt.Errorf("cannot find containerd: there is no socket %s (start it, or leave --containerd out: then a private one is started)", d.cfg.Containerd)
		}
	}
	var err error
	d.private, err = containerd.StartDaemon(ctx, containerd.DaemonConfig{
		Binary: d.cfg.ContainerdBinary, Root: own, Run: filepath.Join(d.cfg.Run, "containerd"), Logger: d.log,
	})
	return err
}

func (d *daemon) openEngine(ctx context.Context) (err error) {
	address := d.cfg.Containerd
	if d.private != nil {
		address = d.private.Address()
	}
	if d.subnet, err = d.keptSubnet(ctx); err != nil {
		return err
	}
	cfg := containerd.Config{
		Names: containerd.NamesFor(d.cfg.Root), Run: d.cfg.Run, Address: address, Init: d.init, SFTP: d.sftp,
		UID: d.cfg.AppUID, GID: d.cfg.AppUID, Subnet: d.subnet, Snapshotter: d.cfg.Snapshotter,
		Seccomp: containerd.Arches(d.cfg.SeccompArches), PIDs: maxPIDs,
		Called: d.called, HostPorts: []uint16{portOf(d.listen), portOf(d.front)}, AllowHost: d.cfg.AllowHost, LinkLocal: d.cfg.Outbound.LinkLocal,
		Images: d.shelf.OpenImage, Crashed: d.cfg.crashed(), Logs: d.logs, Logger: d.log,
	}
	if d.engine, err = containerd.New(ctx, cfg); err != nil && d.private != nil {
		// Nobody watches the private containerd yet.
		revived, rerr := d.private.Revive(ctx)
		if rerr == nil && revived {
			d.engine, rerr = containerd.New(ctx, cfg)
			err = nil
		}
		err = errors.Join(err, rerr)
	}
	if err != nil {
		return err
	}
	d.closers = append(d.closers, d.engine.Close)
	d.aside.add("instances", d.engine.Left)
	return nil
}

func (d *daemon) openSupervisor(context.Context) (err error) {
	d.sup, err = supervisor.New(supervisor.Config{
		Engine: d.engine, Registry: d.registry, Droplets: d.shelf, Stacks: d.stacks.Get, Logs: book{d.logs}, DB: d.db,
		Cell: d.cell, Subnet: d.subnet, PublicURL: d.cfg.PublicURL, Policy: d.cfg.Policy, Logger: d.log, Bindings: d.liveBindings(), Events: d.events,
		Ready:    func() { close(d.ready) },
		OnChange: func(st runtime.Status) { d.router.Changed(st) },
		Busy:     func(id runtime.InstanceID) bool { return d.router.Busy(id) },
		Gone: func(string) {
			d.logsDue()
			d.pruneDue()
		},
	})
	if err != nil {
		return err
	}
	d.aside.add("instances", d.sup.Unadopted)
	d.registry.Listen(d.sup.Sync)
	roots, err := moreRoots(d.cfg.Marketplace.DrainCA)
	if err != nil {
		return err
	}
	d.registry.ListenTasks(d.sup.SyncTask)
	d.router, err = route.New(route.Config{
		Registry: d.registry, Instances: d.sup.Instances, Dial: d.sup.Dial, Forget: d.registry.ForgetFormer,
		Sticky: d.cfg.stickyCookies(), Log: book{d.logs}.Append, Logger: d.log, Services: d.routeServices, Roots: roots, Egress: d.egress(),
	})
	return err
}

// openAuth makes keys and the first administrator at the first start.
func (d *daemon) openAuth() (err error) {
	d.roles = auth.NewRoles(d.db)
	d.auth, err = auth.Open(auth.Config{
		DB: d.db, Keys: filepath.Join(d.cfg.Root, "keys"), AdminPassword: filepath.Join(d.cfg.Root, "admin-password"),
		Domain: d.cfg.Domain, PublicURL: d.cfg.PublicURL, Logger: d.log, Record: d.recordAccount,
	})
	return err
}

// recordAccount keeps who changed which account.
func (d *daemon) recordAccount(kind string, who auth.Principal, target, name string) {
	err := d.events.Record(app.Event{
		Type: kind, Actor: access.Actor(who),
		Target: app.Target{GUID: target, Type: "account", Name: name},
	})
	if err != nil {
		d.log.Error("cannot record a change of accounts", "kind", kind, "account", name, "err", err)
	}
}

// openAPI puts the API behind the doors.
func (d *daemon) openAPI(ctx context.Context) (err error) {
	if err := d.openAuth(); err != nil {
		return err
	}
	if err := d.openSSH(); err != nil {
		return err
	}
	d.notify, err = openNotify(notifyParts{
		DB: d.db, Auth: d.auth, Roles: d.roles, Registry: d.registry, Exits: d.sup.Exits(), PublicURL: d.cfg.PublicURL, Domain: d.cfg.Domain,
		Space: d.packages.Space, Logger: d.log,
	}, d.cfg.Mailing)
	if err != nil {
		return err
	}
	d.api, err = api.New(api.Config{
		DB: d.db, Registry: d.registry, Events: d.events, Jobs: d.jobs, Packages: d.packages, Builds: d.builds, Shelf: d.shelf, Catalog: d.catalog,
		Processes: d.sup, Exits: d.sup.Exits(), Logs: d.logs, Services: d.services, Snapshots: snapshots{d.databases}, Bindings: d.liveBindings(), Auth: d.auth, Roles: d.roles, SSH: d.sshDoor(), PortTrouble: d.router.PortError, Crashed: d.sup.AllCrashed, PublicURL: d.cfg.PublicURL,
		Names: []string{apiName, d.engine.Gateway().String()}, Version: version, Logger: d.log,
		Notify: d.notify.handler(), Mails: d.notify.mails(), CrashMails: d.notify.crashes,
		UploadDir: filepath.Join(d.cfg.Root, "packages"), Metrics: d.metrics, Stats: d.sup.Stats, RefusedURLs: d.refusedURLs,
		Shutdown: func(apps bool) { go d.shutdown(ctx, apps) },
		About: v3.Status{
			Version: version, PID: os.Getpid(), Cell: d.cell, StartedAt: time.Now(), Root: d.cfg.Root, Run: d.cfg.Run,
			API: d.cfg.PublicURL, Router: "http://" + d.front[0].Addr().String(), Domain: d.cfg.Domain, Containerd: d.engine.Address(),
			LogRetention: d.logs.Retention(), LogRetentionAsked: int64(d.cfg.LogRetention),
		},
		SetAside: d.aside.List,
	})
	return err
}

// shutdown is what somebody asked for over the socket.
func (d *daemon) shutdown(ctx context.Context, apps bool) {
	if apps {
		d.endApps.Store(true)
		bounded, cancel := context.WithTimeout(ctx, teardownLimit)
		defer cancel()
		if err := d.sup.Shutdown(bounded); err != nil {
			d.log.Error("cannot end all apps in an orderly way", "err", err)
		}
	}
	d.leave()
}

// book gives the supervisor the log of an app by its guid.
type book struct{ logs *logstream.Logs }

func (b book) Append(guid string, es ...logstream.Envelope) error {
	l, err := b.logs.App(guid)
	if err != nil {
		return err
	}
	return l.Append(es...)
}

func (b book) Contains(ctx context.Context, guid string, f logstream.Filter) (bool, error) {
	l, err := b.logs.App(guid)
	if err != nil {
		return false, err
	}
	return l.Contains(ctx, f)
}

func (b book) Last(guid string) (uint64, error) {
	l, err := b.logs.App(guid)
	if err != nil {
		return 0, err
	}
	return l.LastSeq(), nil
}

// close lets go in the opposite order. Apps stay.
func (d *daemon) close() error {
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		errs = append(errs, d.closers[i]())
	}
	d.closers = nil
	return errors.Join(errs...)
}
