package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/store"
)

// storeFormat is the number of the store's format that this dewd writes.
const storeFormat = 1

// daemon is everything that runs, bottom up.
type daemon struct {
	cfg      config
	log      *slog.Logger
	cell     string
	init     string // dew-init as instances bind it
	db       *store.DB
	registry *app.Registry
	logs     *logstream.Logs

	closers []func() error // in the order of opening
}

// open opens what the daemon stands on, from the ground up. When a step fails
// the ones before it are undone.
func open(cfg config, log *slog.Logger) (_ *daemon, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("cannot run: not root (sudo dewd, or the unit dew.service)")
	}
	d := &daemon{cfg: cfg, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	h, err := hold(cfg.Root, cfg.Run)
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, h.release)
	if d.cell, err = h.cellID(); err != nil {
		return nil, err
	}
	if d.init, err = h.placeInit(cfg.Init); err != nil {
		return nil, err
	}
	if d.db, err = store.Open(filepath.Join(cfg.Root, "dew.db"), store.Options{Format: storeFormat}); err != nil {
		return nil, err
	}
	d.closers = append(d.closers, d.db.Close)
	d.registry = app.NewRegistry(d.db)
	d.logs, err = logstream.Open(filepath.Join(cfg.Root, "logs"), logstream.Options{
		Reserve: int64(cfg.LogReserve), Backlog: int64(cfg.LogBacklog), Retention: int64(cfg.LogRetention), Logger: log,
	})
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, d.logs.Close)
	return d, nil
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

// run is the daemon: until a signal ends ctx.
func run(c *cli.Context, cfg config) (err error) {
	log := cfg.logger()
	d, err := open(cfg, log)
	if err != nil {
		return infrastructure(err)
	}
	defer func() { err = errors.Join(err, d.close()) }()
	door, err := openDoor(cfg.Run)
	if err != nil {
		return infrastructure(err)
	}
	return d.serve(c.Context, func(ctx context.Context) error { return serveDoor(ctx, door, log) })
}

// serve runs the parts until ctx ends or one of them fails.
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
	systemd.ready()
	d.log.Info("ready", "version", version, "cell", d.cell, "root", d.cfg.Root, "run", d.cfg.Run)
	<-ctx.Done()
	systemd.stopping()
	d.log.Info("leaving, apps stay")
	return g.Wait()
}

// teardown ends all apps of a root and removes what is left of them outside of
// it. The state stays: the next dewd starts the apps again.
func teardown(_ *cli.Context, cfg config) (err error) {
	if os.Geteuid() != 0 {
		return infrastructure(errors.New("cannot tear down: not root (sudo dewd teardown)"))
	}
	h, err := hold(cfg.Root, cfg.Run)
	if err != nil {
		return infrastructure(fmt.Errorf("cannot tear down: %w", err))
	}
	defer func() { err = errors.Join(err, h.release()) }()
	return infrastructure(h.clearRun())
}
