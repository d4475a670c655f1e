package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/certs"
	kubecli "github.com/dewrun/dew/cli/kubernetes"
	"github.com/dewrun/dew/cmd/dewd/cluster"
)

// kubernetesCommand installs dewd in a cluster. dew kubernetes runs it.
func kubernetesCommand() *cli.Command {
	return &cli.Command{
		Name: "kubernetes", Usage: "Install dewd in a Kubernetes cluster, check the cluster, or uninstall dewd (dew kubernetes --help)",
		ArgsUsage: strings.Join(kubecli.Actions, "|"), Flags: kubecli.Flags(), HideHelpCommand: true, OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			o, action := kubecli.Read(c), c.Args().First()
			if c.NArg() != 1 {
				return usageError(c, errors.New("kubernetes needs one action: "+strings.Join(kubecli.Actions, ", ")), true)
			}
			if err := o.Validate(action); err != nil {
				return usageError(c, err, true)
			}
			i, err := installation(o)
			if err != nil {
				return usageError(c, err, true)
			}
			i.Out, i.Err = c.App.Writer, c.App.ErrWriter
			err = i.Run(c.Context, action)
			if errors.Is(err, cluster.ErrChecks) && action == kubecli.Check {
				return infrastructure(errors.New("")) // everything is printed already
			}
			return infrastructure(err)
		},
	}
}

// installation returns an installation with the programs next to this one.
func installation(o kubecli.Options) (cluster.Installation, error) {
	env, err := daemonEnv(o)
	if err != nil {
		return cluster.Installation{}, err
	}
	c := defaultConfig()
	if err := c.complete(); err != nil {
		return cluster.Installation{}, err
	}
	return cluster.Installation{Options: o, Env: env, Programs: cmp.Or(o.Folder, filepath.Dir(c.Init)), Bundle: certs.BundlePath, Version: version}, nil
}

// fixedFlags are the flags of dewd that the manifests or other flags of install set.
var fixedFlags = []string{
	"engine", "kubeconfig", "namespace", "registry", "pull-secret", "storage-class", "agent-listen", "agent-address", "root", "run", "domain",
	"tcp-ports", "listen", "listen-tls", "router", "router-tls", "ssh",
}

// daemonEnv returns the environment variables of dewd in the cluster, for the flags of
// install and those of --set. dewd must accept the values.
func daemonEnv(o kubecli.Options) (map[string]string, error) {
	c := defaultConfig()
	set := flag.NewFlagSet("dewd", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	for _, f := range c.allFlags() {
		if err := f.Apply(set); err != nil {
			return nil, err
		}
	}
	out := map[string]string{}
	put := func(name, value string) error {
		if err := set.Set(name, value); err != nil {
			return fmt.Errorf("--set: %s=%s: %w (dewd --help lists the flags)", name, value, err)
		}
		out[env(name)[0]] = value
		return nil
	}
	registry := o.Registry
	if registry == "" { // uninstall and check do not need one
		registry = "registry.example.com/dew"
	}
	host, _, _ := strings.Cut(registry, "/")
	err := errors.Join(put("registry", registry), put("domain", o.Domain))
	if o.Domain != defaultConfig().Domain {
		err = errors.Join(err, put("public-url", "https://api."+o.Domain))
	}
	if o.TCPPorts != "" {
		err = errors.Join(err, put("tcp-ports", o.TCPPorts))
	}
	if o.StorageClass != "" {
		err = errors.Join(err, put("storage-class", o.StorageClass))
	}
	if o.Insecure {
		err = errors.Join(err, put("insecure-registry", host))
	}
	for _, s := range o.Set {
		name, value, _ := strings.Cut(s, "=")
		if slices.Contains(fixedFlags, name) {
			err = errors.Join(err, fmt.Errorf("--set: %s has its own flag or a fixed value in the cluster (dew kubernetes --help)", name))
			continue
		}
		err = errors.Join(err, put(name, value))
	}
	if err != nil {
		return nil, err
	}
	c.Cluster.Engine, c.Cluster.AgentAddress = cluster.Kubernetes, c.Cluster.AgentListen // in the cluster, dewd finds its address
	return out, c.validate()
}
