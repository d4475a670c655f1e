package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/api"
	apidaemon "github.com/dewrun/dew/api/daemon"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/auth/sso"
	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/cmd/dewd/cluster"
	"github.com/dewrun/dew/cmd/dewd/folders"
	"github.com/dewrun/dew/console"
	"github.com/dewrun/dew/drain"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/netpolicy"
	"github.com/dewrun/dew/netpolicy/desired"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/route"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
	"github.com/dewrun/dew/runtime/containerd/private"
	"github.com/dewrun/dew/runtime/disk"
	"github.com/dewrun/dew/runtime/network"
	"github.com/dewrun/dew/runtime/supervisor"
	"github.com/dewrun/dew/runtime/usage"
	"github.com/dewrun/dew/services/builtin"
	"github.com/dewrun/dew/services/marketplace"
	"github.com/dewrun/dew/sshd"
	"github.com/dewrun/dew/store"
)

// storeFormat is the version of the store's format that this dewd writes.
const storeFormat = 1

// maxPIDs is the maximum number of processes and threads of one instance.
const maxPIDs = 1024

// teardownLimit is far more than a teardown needs, so that a hang is reported.
const teardownLimit = 2 * time.Minute

// daemon holds all parts of the daemon, bottom up.
type daemon struct {
	cfg        config
	log        *slog.Logger
	holder     *folders.Holder
	cell       string
	init       string // path of dew-init that instances bind
	sftp       string // path of dew-sftp; empty: not installed
	db         *store.DB
	registry   *registry.Registry
	policies   *netpolicy.Store
	policyMode string // on or off
	apps       appQueries
	events     *registry.Events
	jobs       *registry.Jobs
	droplets   *droplet.Droplets
	stacks     *stack.Stacks
	packages   *droplet.Packages
	catalog    *droplet.Catalog
	builds     *droplet.Builds
	logs       *logstream.Logs
	appLogs    appLogs
	subnet     netip.Prefix
	private    *private.Daemon // nil if the machine's own containerd is used
	engine     engine
	fence      func(context.Context) error // fails if another dewd has the namespace; nil: there is none
	sup        *supervisor.Supervisor
	router     *route.Router
	usage      *usage.Sampler
	auth       *auth.Server
	logins     *sso.Server
	roles      *auth.Roles
	notify     *notifier
	databases  *builtin.Broker
	services   *marketplace.Marketplace
	drains     *drain.Drains
	urls       *storedURLs
	api        *api.Server
	metrics    *apidaemon.Metrics
	ports      listeners
	inside     bridgeListeners
	authority  *certs.Authority // nil: --router-cert is set, or TLS is off
	tls        *tls.Config      // of the TLS listeners; nil: TLS is off
	fixedURL   bool             // --public-url is set
	serving    context.Context  // done when the daemon no longer serves clients
	ssh        *sshd.Server
	stop       context.CancelFunc
	endApps    atomic.Bool     // a client asked to stop the apps when dewd exits
	sweep      trigger         // there can be logs of deleted apps
	stale      trigger         // containerd can have data of deleted images
	built      chan builtImage // to unpack
	ready      chan struct{}   // closed when the instances of an earlier dewd are adopted
	aside      *setAside

	closers []func() error // in the order of opening
}

// engine is an engine with what dewd needs besides the supervisor.
type engine interface {
	runtime.Engine
	Gateway() netip.Addr // address of this machine for instances; not valid: none
	Address() string     // of containerd, or of the API server
	Keep(ctx context.Context)
	Unpack(ctx context.Context, s runtime.Spec) error
	PruneImages(ctx context.Context, has func(sha string) bool) error
	PruneStacks(ctx context.Context, keep func(id string) bool) error
	TearDown(ctx context.Context) error
	Left() error
	PoliciesChanged()
	UseCertificates(c *certs.Instances)
	UseNames()
	Close() error
}

// open opens the parts of the daemon, bottom up. A step that fails undoes the others.
func open(ctx context.Context, cfg config, log *slog.Logger) (_ *daemon, err error) {
	if os.Geteuid() != 0 && !cfg.Cluster.Used() {
		return nil, errors.New("cannot run without root permissions (use sudo dewd, or systemctl start dew)")
	}
	d := &daemon{cfg: cfg, log: log, aside: newSetAside(cfg.Root, log), metrics: apidaemon.NewMetrics(), ready: make(chan struct{}), sweep: make(trigger, 1), stale: make(trigger, 1), built: make(chan builtImage, maxBuilt)}
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
	if d.holder, err = folders.Hold(ctx, d.cfg.Root, d.cfg.Run, d.log); err != nil {
		return err
	}
	d.closers = append(d.closers, d.holder.Release)
	return nil
}

// openCell reads the ID of the cell and copies the programs of its instances.
func (d *daemon) openCell(context.Context) (err error) {
	if d.cell, err = d.holder.CellID(); err != nil {
		return err
	}
	return d.placePrograms()
}

func (d *daemon) openStore(context.Context) (err error) {
	if d.db, err = store.Open(filepath.Join(d.cfg.Root, "dew.db"), store.Options{Format: storeFormat, Committed: d.committed}); err != nil {
		return err
	}
	d.closers = append(d.closers, d.db.Close)
	d.registry, d.events, d.jobs = registry.New(d.db), registry.NewEvents(d.db), registry.NewJobs(d.db, d.log)
	d.apps, d.policies = appQueries{d.registry, d.log}, netpolicy.NewStore(d.db)
	if _, err := d.registry.EnsureDefaults(d.cfg.Domain); err != nil {
		return err
	}
	if err := d.registry.EnsureRouterGroup(d.cfg.TCPPorts); err != nil {
		return err
	}
	if d.droplets, err = droplet.NewDroplets(d.db, filepath.Join(d.cfg.Root, "droplets")); err != nil {
		return err
	}
	d.aside.add("droplets", d.droplets.Sweep)
	return nil
}

// chooseSubnet returns the network of --subnet, otherwise the last one, otherwise a free
// one. It stores the network, because adopted instances have addresses in it.
func (d *daemon) chooseSubnet(ctx context.Context) (netip.Prefix, error) {
	settings, p := store.In[netip.Prefix](d.db, "settings"), d.cfg.Subnet
	if !p.IsValid() {
		kept, err := settings.Get("subnet")
		if err == nil {
			return kept, nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return p, err
		}
		if p = clusterSubnet; d.cfg.Cluster.Used() {
			return p, settings.Put("subnet", p)
		}
		if p, err = network.TakeSubnet(ctx, names.For(d.cfg.Root).Bridge); err != nil {
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
	d.appLogs = appLogs{runtime.AppLogs{Logs: d.logs}, d.log}
	d.closers = append(d.closers, d.logs.Close)
	d.aside.add("logs", d.logs.ClearRemoved)
	if kept := size(d.logs.Retention()); kept < d.cfg.LogRetention {
		d.log.Warn("--log-retention is more than a quarter of the file system: dewd keeps fewer log lines per app",
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

// openContainerd finds the machine's containerd, or uses a private one. A root that
// once had a private one keeps it, because its instances are there.
func (d *daemon) openContainerd(ctx context.Context) error {
	if d.cfg.Cluster.Used() {
		return nil
	}
	own := filepath.Join(d.cfg.Root, "containerd")
	if _, err := os.Stat(own); errors.Is(err, os.ErrNotExist) {
		served, err := private.SocketAnswers(ctx, d.cfg.Containerd)
		if err != nil {
			return fmt.Errorf("cannot connect to containerd: %w (start containerd, remove the socket if no containerd uses it, or set another socket with --containerd)", err)
		}
		if served {
			return nil
		}
		if d.cfg.Containerd != defaultConfig().Containerd {
			return fmt.Errorf("cannot connect to containerd: the socket %s does not exist (start containerd, or omit --containerd: then dewd starts a private containerd)", d.cfg.Containerd)
		}
	}
	var err error
	d.private, err = private.Start(ctx, private.Config{
		Binary: d.cfg.ContainerdBinary, Root: own, Run: filepath.Join(d.cfg.Run, "containerd"), Logger: d.log,
	})
	return err
}

func (d *daemon) openEngine(ctx context.Context) (err error) {
	if d.cfg.Cluster.Used() {
		return d.openCluster(ctx)
	}
	address := d.cfg.Containerd
	if d.private != nil {
		address = d.private.Address()
	}
	users, err := ownUsers(d) // before the subnet is stored
	if err != nil {
		return err
	}
	enforced, err := enforcePolicies(d)
	if err != nil {
		return err
	}
	if d.subnet, err = d.chooseSubnet(ctx); err != nil {
		return err
	}
	cfg := containerd.Config{
		Names: names.For(d.cfg.Root), Run: d.cfg.Run, Address: address, Init: d.init, SFTP: d.sftp,
		UID: d.cfg.AppUID, GID: d.cfg.AppUID, Subnet: d.subnet, Snapshotter: d.cfg.Snapshotter,
		Seccomp: ocispec.Arches(d.cfg.SeccompArches), OwnUsers: users, PIDs: maxPIDs, Cores: d.cfg.CPULimit,
		Called: d.called, HostPorts: d.ports.openPorts(), Policies: enforced, AllowHost: d.cfg.AllowHost, LinkLocal: d.cfg.Outbound.LinkLocal,
		Images: d.droplets.OpenImage, Crashed: d.cfg.crashed(), Disks: disk.Config{Dir: filepath.Join(d.cfg.Root, "disks"), Off: d.cfg.DiskLimits == "off"}, Logs: d.logs, Logger: d.log,
	}
	e, err := containerd.New(ctx, cfg)
	if err != nil && d.private != nil {
		// The private containerd is not watched yet.
		revived, rerr := d.private.Revive(ctx)
		if rerr == nil && revived {
			e, rerr = containerd.New(ctx, cfg)
			err = nil
		}
		err = errors.Join(err, rerr)
	}
	if err != nil {
		return err
	}
	d.engine = e
	d.closers = append(d.closers, d.engine.Close)
	d.policies.Listen(func(string) { d.engine.PoliciesChanged() })
	d.registry.ListenSecurityGroups(func(string) { d.engine.PoliciesChanged() })
	d.aside.add("instances", d.engine.Left)
	return nil
}

// clusterSubnet has the virtual addresses of instances in a cluster.
var clusterSubnet = netip.MustParsePrefix("10.201.0.0/16")

// openCluster opens the engine that runs instances as Pods.
func (d *daemon) openCluster(ctx context.Context) (err error) {
	d.policyMode = desired.Off
	if d.subnet, err = d.chooseSubnet(ctx); err != nil {
		return err
	}
	e, err := cluster.Open(ctx, cluster.Options{
		Flags: d.cfg.Cluster, Name: "dew", Root: d.cfg.Root, Programs: filepath.Dir(d.cfg.Init), UID: d.cfg.AppUID,
		Backlog: int64(d.cfg.LogBacklog), CrashFiles: int64(d.cfg.CrashFiles), Insecure: d.cfg.Staging.insecure(), KillDelay: d.cfg.Policy.KillDelay, CPU: int64(d.cfg.CPULimit),
		Droplet: d.droplets.OpenImage, Logs: d.logs, Logger: d.log,
	})
	if err != nil {
		return err
	}
	d.engine, d.fence = e, e.Fence
	d.closers = append(d.closers, e.Close)
	return nil
}

// instanceChanged returns the function that receives every change of an instance.
func instanceChanged(d *daemon) func(runtime.Status) {
	if watcher, ok := d.engine.(interface{ Changed(runtime.Status) }); ok {
		return func(st runtime.Status) {
			d.router.Changed(st)
			watcher.Changed(st)
		}
	}
	return func(st runtime.Status) { d.router.Changed(st) }
}

func (d *daemon) openSupervisor(context.Context) (err error) {
	d.sup, err = supervisor.New(supervisor.Config{
		Engine: d.engine, Registry: d.registry, Droplets: d.droplets, Stacks: d.stacks.Get, Logs: d.appLogs, DB: d.db,
		Cell: d.cell, Subnet: d.subnet, PublicURL: d.cfg.PublicURL, Memory: d.cfg.placementMemory(), Policy: d.cfg.Policy, Spares: d.cfg.spares(), Logger: d.log, Bindings: d.liveBindings(), Events: d.events,
		Ready:    func() { close(d.ready) },
		OnChange: instanceChanged(d),
		Busy:     func(id runtime.InstanceID) bool { return d.router.Busy(id) },
		Gone: func(string) {
			d.sweep.fire()
			d.stale.fire()
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
	apiHosts, _ := d.cfg.apiHosts()
	d.router, err = route.New(route.Config{
		API: http.HandlerFunc(addresses{d}.serveRouted), APIHosts: apiHosts,
		Registry: d.registry, Instances: d.sup.Instances, Dial: d.sup.Dial, DeleteReplaced: d.registry.ForgetFormer,
		Sticky: d.cfg.stickyCookies(), EmptyIsUnknown: d.cfg.EmptyRouteStatus == "404", Log: d.appLogs.Append, Logger: d.log, Services: d.routeServices, Roots: roots, Egress: d.egress(),
	})
	if err != nil {
		return err
	}
	d.usage, err = usage.New(usage.Config{Running: d.sup.Running, Traffic: d.router.Traffic, Exits: d.sup.Exits(), Logger: d.log})
	return err
}

// openAuth creates the keys and the first administrator at the first start.
func (d *daemon) openAuth() (err error) {
	d.roles = auth.NewRoles(d.db)
	codes := sso.NewCodes()
	d.auth, err = auth.Open(auth.Config{
		DB: d.db, Codes: codes, Keys: filepath.Join(d.cfg.Root, "keys"), AdminPassword: filepath.Join(d.cfg.Root, "admin-password"),
		Domain: d.cfg.Domain, PublicURL: d.cfg.PublicURL, Logger: d.log, Record: accountEvents{d.events, d.log}.record,
	})
	d.logins = sso.New(d.auth, codes, d.log)
	return err
}

// openAPI creates the API with the parts that only it needs.
func (d *daemon) openAPI(ctx context.Context) (err error) {
	if err := errors.Join(d.openAuth(), addresses{d}.openCertificates()); err != nil {
		return err
	}
	if err := d.openSSH(); err != nil {
		return err
	}
	mails := delivery.NewMetrics()
	d.metrics.Add(mails)
	d.notify, err = openNotify(notifyParts{
		DB: d.db, Auth: d.auth, Roles: d.roles, Registry: d.registry, Exits: d.sup.Exits(), PublicURL: d.cfg.PublicURL, Domain: d.cfg.Domain,
		Journal: filepath.Join(d.cfg.Root, handoverFile), Metrics: mails,
		Space: d.packages.Space, Logger: d.log,
	}, d.cfg.Mailing)
	if err != nil {
		return err
	}
	web, err := openConsole(d)
	if err != nil {
		return err
	}
	apiHosts, logins := d.cfg.apiHosts()
	d.api, err = api.New(api.Config{
		DB: d.db, Registry: d.registry, Events: d.events, Jobs: d.jobs, Packages: d.packages, Builds: d.builds, Shelf: d.droplets, Catalog: d.catalog,
		Processes: d.sup, Usage: d.usage, Exits: d.sup.Exits(), Logs: d.logs, Services: d.services, Snapshots: snapshots{d.databases}, Bindings: d.liveBindings(), BrokerWait: time.Second, Auth: d.auth, Logins: d.logins, Roles: d.roles, SSH: sshEndpoint(d.ssh, d.ports.ssh), Terminals: d.ssh, PortTrouble: d.router.PortError, Crashed: d.sup.AllCrashed, PublicURL: d.cfg.PublicURL,
		FixedURL: d.fixedURL, Names: namesForInstances(d.engine), APINames: apiHosts, AuthNames: logins, Domain: d.cfg.Domain, Version: version, Logger: d.log,
		Notify: d.notify.handler(), Mails: d.notify.mails(), MailQueue: d.notify.queue(), PreviewMail: d.notify.server.Preview, CrashMails: d.notify.crashes, Console: web,
		UploadDir: filepath.Join(d.cfg.Root, "packages"), Metrics: d.metrics, Stats: d.sup.Stats, RefusedURLs: d.urls.refused,
		Shutdown: func(apps bool) { go d.shutdown(ctx, apps) },
		About: v3.Status{
			Version: version, PID: os.Getpid(), Cell: d.cell, StartedAt: time.Now(), Root: d.cfg.Root, Run: d.cfg.Run,
			API: d.cfg.PublicURL, Router: "http://" + d.ports.routes[0].Addr().String(), Domain: d.cfg.Domain, Containerd: d.engine.Address(), TLS: addresses{d}.tlsStatus(),
			NetworkPolicies: d.policyMode, LogRetention: d.logs.Retention(), LogRetentionAsked: int64(d.cfg.LogRetention),
		},
		PolicyNotice: d.policies.Notice, SetAside: d.aside.List, Warnings: addresses{d}.warnings, Doctor: d.cfg.examineSelf,
	})
	return err
}

// namesForInstances returns the names of the API for instances.
func namesForInstances(e engine) []string {
	if gateway := e.Gateway(); gateway.IsValid() {
		return []string{apiName, gateway.String()}
	}
	return []string{apiName}
}

// openConsole returns the web console, with its stored sessions.
func openConsole(d *daemon) (*console.Console, error) {
	public, err := url.Parse(d.cfg.PublicURL)
	if err != nil {
		return nil, err
	}
	return console.New(console.Config{DB: d.db, Auth: d.auth, Roles: d.roles, Public: public, Version: version, Logger: d.log})
}

// shutdown stops the daemon when a client requests that over the socket.
func (d *daemon) shutdown(ctx context.Context, apps bool) {
	if apps {
		d.endApps.Store(true)
		bounded, cancel := context.WithTimeout(ctx, teardownLimit)
		defer cancel()
		if err := d.sup.Shutdown(bounded); err != nil {
			d.log.Error("cannot stop all apps before dewd exits", "err", err)
		}
	}
	d.stop()
}

// close closes the parts in reverse order. Apps keep running.
func (d *daemon) close() error {
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		errs = append(errs, d.closers[i]())
	}
	d.closers = nil
	return errors.Join(errs...)
}
