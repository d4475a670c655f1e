package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/cmd/dewd/cluster"
	"github.com/dewrun/dew/cmd/dewd/doctor"
)

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "Print the results as JSON"} }

// runDoctor runs all checks and prints the results.
func runDoctor(c *cli.Context, cfg config) error {
	m := doctor.New(cfg.forDoctor())
	m.FindDaemon(c.Context, c.IsSet("root"))
	found := cfg.examine(c.Context, m)
	if err := doctor.Print(c.App.Writer, found, c.Bool("json")); err != nil {
		return err
	}
	if doctor.Failed(found) {
		return infrastructure(errors.New("")) // everything is printed already
	}
	return nil
}

// examineSelf runs all checks for this daemon.
func (c config) examineSelf(ctx context.Context) []doctor.Finding {
	return c.examine(ctx, doctor.New(c.forDoctor()))
}

// examine runs the checks of the cluster or of this machine, whichever runs the instances.
func (c config) examine(ctx context.Context, m doctor.Machine) []doctor.Finding {
	if c.Cluster.Used() {
		return m.ExamineCluster(ctx, cluster.Examine(ctx, c.Cluster, c.Staging.insecure()), c.ownChecks()...)
	}
	return m.Examine(ctx, c.ownChecks()...)
}

func (c config) forDoctor() doctor.Settings {
	return doctor.Settings{
		Root: c.Root, Run: c.Run, Domain: c.Domain,
		Containerd: c.Containerd, ContainerdBinary: c.ContainerdBinary, DefaultContainerd: c.Containerd == defaultConfig().Containerd,
		Init: c.Init, Snapshotter: c.Snapshotter, DiskLimits: c.DiskLimits == "on", UserNS: c.UserNS != "off",
		AppUID: c.AppUID, Subnet: c.Subnet, LogReserve: int64(c.LogReserve),
	}
}

// ownChecks returns the checks of what this daemon stores.
func (c config) ownChecks() []doctor.Check {
	return []doctor.Check{
		{Name: "set aside", Run: func(_ context.Context, m doctor.Machine) doctor.Finding { return setAsideRule(m.Root) }},
		{Name: "stored URLs", Run: func(ctx context.Context, m doctor.Machine) doctor.Finding {
			c.Root, c.Run = m.Root, m.Run // those of the daemon that was found
			return checkURLs(ctx, c)
		}},
	}
}
