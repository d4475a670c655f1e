package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/cmd/dewd/cluster"
	"github.com/dewrun/dew/drain"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/route"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/builtin"
	"github.com/dewrun/dew/services/dashboard"
	"github.com/dewrun/dew/services/marketplace"
)

// When the credentials of a binding are added to an app's environment.
const (
	onRestage = "restage"
	onRestart = "restart"
)

// serviceFlags are the flags of services.
type serviceFlags struct {
	BindingsOn string // onRestage or onRestart
	DrainCA    string // file with certificates
}

func (m *serviceFlags) flags() []cli.Flag {
	return []cli.Flag{
		text(&m.BindingsOn, "bindings-on", "When an app gets the credentials of a new service binding, `restage|restart`; Cloud Foundry: restart"),
		text(&m.DrainCA, "drain-ca", "PEM `file` with certificate authorities to trust for log drains and route services over TLS, in addition to those of this machine"),
	}
}

func (m *serviceFlags) validate() (errs []error) {
	if m.BindingsOn != onRestage && m.BindingsOn != onRestart {
		errs = append(errs, fmt.Errorf("--bindings-on: %q is not one of %s, %s", m.BindingsOn, onRestage, onRestart))
	}
	return errs
}

// openServices opens the marketplace with the built-in broker.
func (d *daemon) openServices(ctx context.Context) (err error) {
	stacks := builtin.Stacks{Store: d.stacks, Images: d.cfg.Cluster.Used()}
	databases := builtin.Config{
		DB: d.db, Host: d.sup, Dir: filepath.Join(d.cfg.Root, "services"), UID: d.cfg.AppUID, GID: d.cfg.AppUID, Logger: d.log,
		Stacks: stacks.Get, Unneeded: stacks.Abandon, Changed: d.databaseChanged, Say: d.appLogs.writeServiceLine,
	}
	if e, ok := d.engine.(*cluster.Engine); ok {
		databases.Volumes, databases.Machine, databases.LastError = e.Volumes(), "-", d.appLogs.lastServiceError
		databases.Start, databases.Measure = cluster.DatabaseStart, time.Minute // a measurement is a session in the Pod
	}
	if d.databases, err = builtin.New(databases); err != nil {
		return err
	}
	d.aside.add("services", d.databases.Stuck)
	dashboards := dashboard.New(d.db, auth.NewAccounts(d.db, 0))
	d.services = marketplace.New(marketplace.Config{
		DB: d.db, Registry: d.registry, Events: d.events, Logger: d.log, Builtin: d.databases,
		Changed: func(string) { d.drains.Changed(); d.router.Refresh(); d.engine.PoliciesChanged() }, Egress: d.egress(),
		Dashboards: dashboards,
	})
	if err := d.sweepDashboards(dashboards); err != nil {
		return err
	}
	d.urls = newStoredURLs(d.services, d.egress(), d.log)
	if err := d.services.LoadBuiltinCatalog(ctx); err != nil { // so that the first client finds the services
		return err
	}
	roots, err := moreRoots(d.cfg.Marketplace.DrainCA)
	if err != nil {
		return err
	}
	d.drains = drain.New(drain.Config{DB: d.db, Logs: d.logs, Targets: drainTargets(d.services), Host: d.apps.host, Roots: roots, Logger: d.log, Egress: d.egress()})
	return d.router.Reload() // now it can query the route services
}

// routeServices returns the route services. There are none while the marketplace is not
// open, and no requests are served then.
func (d *daemon) routeServices() (map[string]route.Service, error) {
	if d.services == nil {
		return nil, nil
	}
	all, err := d.services.RouteServices()
	out := make(map[string]route.Service, len(all))
	for guid, s := range all {
		out[guid] = route.Service(s)
	}
	return out, err
}

// databaseChanged wakes the waiters for a database, and removes the log of a deleted
// one.
func (d *daemon) databaseChanged(instance string) {
	d.services.PollNow(instance)
	d.sweep.fire()
}

// moreRoots returns the machine's CA certificates and those of a file, or nil.
func moreRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--drain-ca: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a machine without CA certificates
	}
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("--drain-ca: no PEM certificate found in %s", file)
	}
	return pool, nil
}

// serveServices runs databases, brokers and drains until ctx is done.
func (d *daemon) serveServices(ctx context.Context) error {
	select {
	case <-d.ready: // before that, it is not known which servers run
	case <-ctx.Done():
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { d.urls.report(); return nil })
	for _, part := range []func(context.Context) error{d.databases.Run, d.services.Run, d.drains.Run} {
		g.Go(func() error { return part(ctx) })
	}
	return g.Wait()
}

// frozen returns the service bindings that an app gets if it is staged now.
func (d *daemon) frozen(guid string) (droplet.Bindings, error) {
	f, err := d.services.AppServices(guid)
	if err != nil {
		return droplet.Bindings{}, err
	}
	a, err := d.registry.App(guid)
	return droplet.Bindings{JSON: f.JSON, Names: f.Names, Files: a.K8sBindings || a.VCAPBindings}, err
}

// liveBindings returns a function if instances get the present bindings of their app at
// each start.
func (d *daemon) liveBindings() func(string) (droplet.Bindings, error) {
	if d.cfg.Marketplace.BindingsOn == onRestart {
		return d.frozen
	}
	return nil
}

// drainTargets lists the drains of the marketplace.
func drainTargets(market *marketplace.Marketplace) func() ([]drain.Target, error) {
	return func() ([]drain.Target, error) {
		all, err := market.Drains()
		var out []drain.Target
		for _, v := range all {
			out = append(out, drain.Target(v))
		}
		return out, err
	}
}

// snapshots provides the snapshots of databases to the API.
type snapshots struct{ databases *builtin.Broker }

func (s snapshots) Snapshots(_ context.Context, instance string) ([]platform.Snapshot, error) {
	all, err := s.databases.Snapshots(instance)
	slices.Reverse(all)
	var out []platform.Snapshot
	for _, v := range all {
		out = append(out, asSnapshot(v))
	}
	return out, err
}

func (s snapshots) Snapshot(ctx context.Context, instance string) (platform.Snapshot, error) {
	v, err := s.databases.Snapshot(ctx, instance)
	return asSnapshot(v), err
}

func (s snapshots) Restore(ctx context.Context, instance, snapshot string) error {
	return s.databases.Restore(ctx, instance, snapshot)
}

func (s snapshots) DeleteSnapshot(ctx context.Context, instance, snapshot string) error {
	return s.databases.DropSnapshot(ctx, instance, snapshot)
}

func asSnapshot(v builtin.Snapshot) platform.Snapshot {
	return platform.Snapshot{GUID: v.ID, CreatedAt: v.CreatedAt, Size: v.Bytes}
}

// sweepDashboards deletes the OAuth clients of brokers that do not exist any more.
func (d *daemon) sweepDashboards(c *dashboard.Clients) error {
	brokers, err := d.services.Brokers(services.BrokerFilter{})
	if err != nil {
		return err
	}
	return c.Sweep(brokers)
}
