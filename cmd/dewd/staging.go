package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
)

// staging holds the limits of one build.
type staging struct {
	Memory, Disk size
	Timeout      time.Duration
	Insecure     string // registries to use without TLS, separated by commas
}

// parallelBuilds is the number of builds of different apps at the same time.
const parallelBuilds = 4

func defaultStaging() staging {
	return staging{
		Memory: droplet.DefaultStagingMemoryMB << 20, Disk: droplet.DefaultStagingDiskMB << 20, Timeout: droplet.DefaultStagingTimeout,
	}
}

func (s *staging) flags() []cli.Flag {
	return []cli.Flag{
		value(&s.Memory, "staging-memory", "Memory limit of a staging container in `bytes`"),
		value(&s.Disk, "staging-disk", "Disk limit of a staging container in `bytes`"),
		duration(&s.Timeout, "staging-timeout", "Timeout of a staging (`time`)"),
		text(&s.Insecure, "insecure-registry", "Registries that dewd can use without TLS, `host:port`, separated by commas; registries on this machine never need TLS"),
	}
}

func (s *staging) validate() (errs []error) {
	if s.Memory < 64<<20 {
		errs = append(errs, fmt.Errorf("--staging-memory: %s is less than 64M", &s.Memory))
	}
	if s.Disk < 64<<20 {
		errs = append(errs, fmt.Errorf("--staging-disk: %s is less than 64M", &s.Disk))
	}
	if s.Timeout < time.Second {
		errs = append(errs, fmt.Errorf("--staging-timeout: %s is shorter than 1s", s.Timeout))
	}
	for _, host := range s.insecure() {
		if strings.ContainsAny(host, "/@ ") {
			errs = append(errs, fmt.Errorf("--insecure-registry: %q is not of the form host or host:port", host))
		}
	}
	return errs
}

func (s *staging) insecure() []string {
	return strings.FieldsFunc(s.Insecure, func(r rune) bool { return r == ',' || r == ' ' })
}

// openStacks opens the stacks other than the machine's own.
func (d *daemon) openStacks() (err error) {
	d.stacks, err = stack.Open(d.db, stack.Options{
		Host: stack.HostOptions{UID: d.cfg.AppUID, GID: d.cfg.AppUID}, NoHost: d.cfg.Cluster.Used(), Dir: filepath.Join(d.cfg.Root, "stacks"),
		Space: d.packages.Space, Insecure: d.cfg.Staging.insecure(), Prune: d.pruneStacks, Logger: d.log,
	})
	return err
}

// pruneStacks removes containerd's data of deleted stacks.
func (d *daemon) pruneStacks(ctx context.Context, keep func(id string) bool) {
	if err := d.engine.PruneStacks(ctx, keep); err != nil && ctx.Err() == nil {
		d.log.Warn("cannot remove unused stacks from containerd", "err", err)
	}
}

// openBuilds creates the builds, which create droplets from packages.
func (d *daemon) openBuilds() (err error) {
	if err := d.openStacks(); err != nil {
		return err
	}
	d.catalog, err = droplet.NewCatalog(d.db, droplet.CatalogOptions{
		Packages: droplet.PackageOptions{Dir: filepath.Join(d.cfg.Root, "buildpacks")}, Stack: d.stacks.Check,
		Programs: filepath.Dir(d.cfg.Init), Logger: d.log,
	})
	if err != nil {
		return err
	}
	d.aside.add("stacks", d.stacks.Sweep)
	d.aside.add("buildpacks", d.catalog.Sweep)
	d.builds = droplet.NewBuilds(d.db, d.packages, d.droplets, droplet.BuildOptions{
		Stacks: d.stacks.Get, StackStore: d.stacks, Say: d.appLogs.writeStagingLine, Printed: d.appLogs.stagingErrors, InUse: d.apps.dropletsInUse, Built: func(app, stack, image string) { noteBuilt(d, app, stack, image) }, Collected: d.stale.fire, Ended: d.sweep.fire, Logger: d.log,
		Builder: builder{d}, Version: version, Catalog: d.catalog, Env: d.apps.stagingEnv, Buildpacks: d.apps.buildpacks, Bindings: d.frozen, CacheDir: filepath.Join(d.cfg.Root, "cache"), StartCaches: !d.cfg.Cluster.Used(),
		MemoryMB: int(d.cfg.Staging.Memory >> 20), DiskMB: int(d.cfg.Staging.Disk >> 20), Timeout: d.cfg.Staging.Timeout, Parallel: parallelBuilds,
	})
	return nil
}

// builtImage is the image of a new droplet.
type builtImage struct{ app, stack, sha string }

// maxBuilt limits how many new images wait to be unpacked. The start of an instance
// unpacks the others.
const maxBuilt = 16

func noteBuilt(d *daemon, app, stack, sha string) {
	select {
	case d.built <- builtImage{app, stack, sha}:
	default:
	}
}

// unpackBuilt unpacks new images while dewd waits for the disk and the client prepares the
// start of the app, so that the first instance starts earlier.
func unpackBuilt(ctx context.Context, d *daemon) error {
	select {
	case <-d.ready:
	case <-ctx.Done():
		return nil
	}
	for {
		select {
		case b := <-d.built:
			if err := unpack(ctx, d, b); err != nil && ctx.Err() == nil {
				d.log.Info("cannot unpack a new image; the first start of an instance tries again", "app", b.app, "image", b.sha, "err", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func unpack(ctx context.Context, d *daemon, b builtImage) error {
	st, err := d.stacks.Get(b.stack)
	if err != nil {
		return err
	}
	err = d.engine.Unpack(ctx, runtime.Spec{App: b.app, Image: b.sha, Stack: st})
	if !hasImage(d, b.sha) { // it was removed in the meantime
		d.stale.fire()
	}
	return err
}

// builder is the builder of the supervisor, which is created after the builds.
type builder struct{ d *daemon }

func (b builder) Build(ctx context.Context, s droplet.Staging, done func(ctx context.Context, code int, f droplet.Files) error) error {
	return b.d.sup.Stager().Build(ctx, s, done)
}
