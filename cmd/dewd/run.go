package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/api"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/route"
	"github.com/dewrun/dew/store"
)

// run runs the daemon until a signal ends ctx, or a client requests its shutdown.
func run(c *cli.Context, cfg config) (err error) {
	ctx, stop := context.WithCancel(c.Context)
	defer stop()
	if err := cfg.refuseInsecure(); err != nil {
		return err
	}
	d, err := open(ctx, cfg, cfg.logger())
	if err != nil {
		return infrastructure(err)
	}
	defer func() { err = errors.Join(err, d.close()) }()
	d.stop = stop
	if err := d.openAPI(ctx); err != nil {
		return infrastructure(err)
	}
	err = d.serve(ctx,
		d.sup.Run,
		func(ctx context.Context) error { return keepEngine(ctx, d) },
		d.supervise,
		d.builds.Run,
		d.serveServices,
		d.notify.run,
		d.prune,
		func(ctx context.Context) error { return unpackBuilt(ctx, d) },
		d.sweepLogs,
		func(ctx context.Context) error { return d.aside.run(ctx, d.ready) },
		d.copyLogs,
		d.router.Run,
		d.usage.Run,
		d.serveClients,
	)
	if err == nil && d.endApps.Load() {
		err = d.tearDown(context.WithoutCancel(ctx))
	}
	return err
}

// trigger requests a run of a worker. It holds one request: several requests before the
// worker runs count as one.
type trigger chan struct{}

func (t trigger) fire() {
	select {
	case t <- struct{}{}:
	default: // a request is already waiting
	}
}

// prune removes containerd's data of collected images: after a collection, after the
// last instance on an image can have stopped, and regularly.
func (d *daemon) prune(ctx context.Context) error {
	const every = 10 * time.Minute
	select {
	case <-d.ready: // an earlier daemon can have left some
		d.stale.fire()
	case <-ctx.Done():
		return nil
	}
	for {
		select {
		case <-time.After(every):
		case <-d.stale:
		case <-ctx.Done():
			return nil
		}
		if err := d.engine.PruneImages(ctx, func(sha string) bool { return hasImage(d, sha) }); err != nil && ctx.Err() == nil {
			d.log.Warn("cannot remove unused images from containerd", "err", err)
		}
	}
}

// hasImage reports whether the image of a droplet is stored.
func hasImage(d *daemon, sha string) bool {
	f, err := d.droplets.OpenImage(sha)
	if err == nil {
		err = f.Close()
	}
	return !errors.Is(err, droplet.ErrNoImage)
}

// serveClients serves clients once everything else works. So a socket that responds
// means a working daemon.
func (d *daemon) serveClients(ctx context.Context) error {
	select {
	case <-d.ready:
	case <-ctx.Done():
		return nil
	}
	socket, err := openSocket(d.cfg.Run)
	if err != nil {
		return infrastructure(err)
	}
	g, ctx := errgroup.WithContext(ctx)
	d.serving = ctx
	server := func(h http.Handler) *http.Server {
		s := route.Screened(apiServer(h))
		s.BaseContext = func(net.Listener) context.Context { return ctx } // streams stop with the daemon
		return s
	}
	g.Go(func() error { return d.jobs.Run(ctx) })
	g.Go(func() error { return serveSSH(ctx, d.ssh, d.ports.ssh) })
	g.Go(func() error { return d.inside.serve(ctx, d.api.Handler(), d.router) })
	g.Go(func() error { return addresses{d}.serveTLS(ctx, server) })
	g.Go(func() error { return d.router.ServeTCP(ctx, d.ports.tcpRoute) })
	d.router.Adopted()
	g.Go(func() error {
		local := server(d.api.Local())
		local.ConnContext = api.PeerContext
		return serve(ctx, socket, local, d.log)
	})
	for _, l := range d.ports.api {
		g.Go(func() error { return serve(ctx, route.Screen(l), server(d.api.Handler()), d.log) })
	}
	for _, l := range d.ports.routes {
		g.Go(func() error { return serve(ctx, route.Screen(l), route.Server(d.router), d.log) })
	}
	addresses{d}.report()
	service{d.log}.ready()
	d.log.Info("ready", "version", version, "cell", d.cell, "root", d.cfg.Root, "run", d.cfg.Run,
		"api", d.cfg.PublicURL, "router", d.ports.routes[0].Addr(), "tls", d.tls != nil)
	return g.Wait()
}

// keepEngine watches over what the engine needs. In a cluster it returns an error if
// another dewd has taken the namespace.
func keepEngine(ctx context.Context, d *daemon) error {
	if d.fence != nil {
		return infrastructure(d.fence(ctx))
	}
	d.engine.Keep(ctx)
	return nil
}

func (d *daemon) supervise(ctx context.Context) error {
	if d.private != nil {
		d.private.Supervise(ctx)
	}
	return nil
}

// serve runs the parts until ctx is done or one of them fails.
func (d *daemon) serve(ctx context.Context, parts ...func(context.Context) error) error {
	systemd := service{d.log}
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		g.Go(func() error { return part(ctx) })
	}
	g.Go(func() error {
		systemd.watch(ctx, func() error { return d.db.View(func(*store.Tx) error { return nil }) })
		return nil
	})
	<-ctx.Done()
	systemd.stopping()
	if d.endApps.Load() {
		d.log.Info("exiting; all apps are stopped")
	} else {
		d.log.Info("exiting; apps keep running")
	}
	return g.Wait()
}

// teardown stops all apps of a root and removes their remains outside of it. The state
// stays: the next dewd starts the apps again.
func teardown(c *cli.Context, cfg config) (err error) {
	cfg.Listen, cfg.Router = "", ""
	d, err := open(c.Context, cfg, cfg.logger())
	if err != nil {
		return infrastructure(fmt.Errorf("cannot tear down: %w", err))
	}
	return infrastructure(errors.Join(d.tearDown(c.Context), d.close()))
}

func (d *daemon) tearDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, teardownLimit)
	defer cancel()
	err := d.engine.TearDown(ctx)
	d.aside.try()
	if d.private != nil {
		err = errors.Join(err, d.private.Stop(ctx))
	}
	if err != nil {
		return err
	}
	return d.holder.ClearRun("containerd")
}
