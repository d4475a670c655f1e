package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/droplet"
)

// staging are the limits of one build.
type staging struct {
	Memory, Disk size
	Timeout      time.Duration
}

// parallelBuilds is how many builds of different apps are staged at a time.
const parallelBuilds = 4

func defaultStaging() staging {
	return staging{
		Memory: droplet.DefaultStagingMemoryMB << 20, Disk: droplet.DefaultStagingDiskMB << 20, Timeout: droplet.DefaultStagingTimeout,
	}
}

func (s *staging) flags() []cli.Flag {
	return []cli.Flag{
		value(&s.Memory, "staging-memory", "`bytes` of memory that one build may use"),
		value(&s.Disk, "staging-disk", "`bytes` on disk that one build may use"),
		duration(&s.Timeout, "staging-timeout", "`time` after which a build is given up"),
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
		errs = append(errs, fmt.Errorf("--staging-timeout: %s is shorter than a second", s.Timeout))
	}
	return errs
}

// openBuilds makes what turns packages into droplets.
func (d *daemon) openBuilds() (err error) {
	d.catalog, err = droplet.NewCatalog(d.db, droplet.CatalogOptions{
		Packages: droplet.PackageOptions{Dir: filepath.Join(d.cfg.Root, "buildpacks")},
		Programs: filepath.Dir(d.cfg.Init), Logger: d.log,
	})
	if err != nil {
		return err
	}
	d.builds = droplet.NewBuilds(d.db, d.packages, d.shelf, droplet.BuildOptions{
		Stacks: d.stacks.Get, Say: d.sayStaging, InUse: d.dropletsInUse, Logger: d.log,
		Builder: builder{d}, Catalog: d.catalog, Env: d.stagingEnv, CacheDir: filepath.Join(d.cfg.Root, "cache"),
		MemoryMB: int(d.cfg.Staging.Memory >> 20), DiskMB: int(d.cfg.Staging.Disk >> 20), Timeout: d.cfg.Staging.Timeout, Parallel: parallelBuilds,
	})
	return nil
}

// stagingEnv are the variables that a user has given an app.
func (d *daemon) stagingEnv(guid string) (map[string]string, error) {
	a, err := d.registry.App(guid)
	return a.Env, err
}

// builder is the supervisor's, which is made after the builds.
type builder struct{ d *daemon }

func (b builder) Build(ctx context.Context, s droplet.Staging, done func(ctx context.Context, code int, f droplet.Files) error) error {
	return b.d.sup.Stager().Build(ctx, s, done)
}
