// Package kubernetes has the command that installs dewd in a Kubernetes cluster. dewd does
// the work, because only dewd has the libraries for it.
package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// The actions of the command.
const (
	Install   = "install"
	Uninstall = "uninstall"
	Check     = "check"
)

// Actions are the actions of the command.
var Actions = []string{Install, Uninstall, Check}

// Options are the flags of the command.
type Options struct {
	Kubeconfig, Context, Namespace    string
	Registry, RegistryConfig          string
	PullSecret, Image, Domain         string
	Folder                            string // with the programs; empty: that of dewd
	StorageClass, StorageSize         string
	TCPPorts                          string   // range of the ports of TCP routes, empty: none in the Services
	Set                               []string // flags of dewd, as FLAG=VALUE
	Insecure, LoadBalancer, DryRun    bool
	KeepData, SkipChecks, Force, JSON bool
	Timeout                           time.Duration
}

// Flags returns the flags. dew and dewd have the same.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "registry", Usage: "Registry and folder for images, `host/folder`: this machine and dewd push to it, and the nodes pull from it (required for install)"},
		command.BoolFlag("insecure-registry", "The registry has no TLS"),
		&cli.StringFlag{Name: "registry-config", Usage: "Docker config `file` with the login to the registry for dewd and the nodes; install stores it in the Secret dew-registry"},
		&cli.StringFlag{Name: "pull-secret", Usage: "`Name` of an existing Secret with the login to the registry"},
		&cli.StringFlag{Name: "namespace", Value: "dew", Usage: "Namespace `name` for dewd and the Pods of instances"},
		&cli.StringFlag{Name: "domain", Value: "dew.localhost", Usage: "Default `domain` of app routes: http://APP.domain"},
		command.BoolFlag("load-balancer", "Create a Service of type LoadBalancer for app routes, the API and SSH"),
		&cli.StringFlag{Name: "tcp-ports", Usage: "Range of ports for TCP routes in the Services of dewd, `first-last`, at most 100 ports (default: none)"},
		&cli.StringFlag{Name: "storage-class", Usage: "StorageClass `name` of the volumes of dewd and of databases (default: the default one of the cluster)"},
		&cli.StringFlag{Name: "storage-size", Value: "10Gi", Usage: "`Size` of the volume of dewd"},
		&cli.GenericFlag{Name: "set", Value: &list{}, Usage: "Set a flag of dewd, `FLAG=VALUE`, such as log-retention=1G; can be repeated"},
		&cli.StringFlag{Name: "image", Usage: "Existing `image` of dewd (default: install pushes one with the programs of this machine)"},
		&cli.StringFlag{Name: "programs", Usage: "`Folder` with the programs of dew for the nodes, if those have another architecture than this machine (default: the folder of dewd)"},
		&cli.StringFlag{Name: "kubeconfig", Usage: "Kubeconfig `file` of the cluster (default: as for kubectl, KUBECONFIG or ~/.kube/config)"},
		&cli.StringFlag{Name: "context", Usage: "Context `name` in the kubeconfig file (default: the current one)"},
		&cli.DurationFlag{Name: "timeout", Value: 5 * time.Minute, Usage: "Maximum `time` for install and uninstall"},
		command.BoolFlag("dry-run", "Print the manifests that install would apply, and change nothing"),
		command.BoolFlag("skip-checks", "Install even if a check fails"),
		command.BoolFlag("keep-data", "Keep the volumes of dewd and of databases, and the namespace, when uninstalling"),
		command.ForceFlag(),
		command.JSONFlag(),
	}
}

// Read returns the flags of a command line.
func Read(c *cli.Context) Options {
	set, _ := c.Generic("set").(*list)
	o := Options{
		Kubeconfig: c.String("kubeconfig"), Context: c.String("context"), Namespace: c.String("namespace"),
		Registry: c.String("registry"), RegistryConfig: c.String("registry-config"), PullSecret: c.String("pull-secret"), Image: c.String("image"), Folder: c.String("programs"),
		Domain: c.String("domain"), TCPPorts: c.String("tcp-ports"), StorageClass: c.String("storage-class"), StorageSize: c.String("storage-size"),
		Insecure: c.Bool("insecure-registry"), LoadBalancer: c.Bool("load-balancer"), DryRun: c.Bool("dry-run"), KeepData: c.Bool("keep-data"),
		SkipChecks: c.Bool("skip-checks"), Force: c.Bool("f"), JSON: c.Bool("json"), Timeout: c.Duration("timeout"),
	}
	if set != nil {
		o.Set = *set
	}
	return o
}

// list is the values of a flag that can be repeated. A value can contain commas.
type list []string

// Set adds a value.
func (l *list) Set(v string) error {
	*l = append(*l, v)
	return nil
}

func (l *list) String() string { return strings.Join(*l, " ") }

// args returns the arguments of dewd for an action.
func (o Options) args(action string) []string {
	out := []string{"kubernetes"}
	for _, f := range [][2]string{
		{"kubeconfig", o.Kubeconfig},
		{"context", o.Context},
		{"namespace", o.Namespace},
		{"registry", o.Registry},
		{"registry-config", o.RegistryConfig},
		{"pull-secret", o.PullSecret},
		{"image", o.Image},
		{"programs", o.Folder},
		{"domain", o.Domain},
		{"tcp-ports", o.TCPPorts},
		{"storage-class", o.StorageClass},
		{"storage-size", o.StorageSize},
	} {
		if f[1] != "" {
			out = append(out, "--"+f[0]+"="+f[1])
		}
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"insecure-registry", o.Insecure},
		{"load-balancer", o.LoadBalancer},
		{"dry-run", o.DryRun},
		{"keep-data", o.KeepData},
		{"skip-checks", o.SkipChecks},
		{"force", o.Force},
		{"json", o.JSON},
	} {
		if f.set {
			out = append(out, "--"+f.name)
		}
	}
	for _, s := range o.Set {
		out = append(out, "--set="+s)
	}
	return append(out, "--timeout="+o.Timeout.String(), action)
}

const about = `ACTION is install, uninstall or check.

install checks the cluster, pushes an image of dewd to the registry, creates dewd with its permissions in a namespace, and waits until it is ready. Run it again to change settings or to upgrade dewd: apps keep running. uninstall stops all apps and deletes dewd with all its data. check says what the cluster lacks.

dewd does the work. It must be built with Kubernetes: make build-kubernetes

Examples:
   dew kubernetes check --registry registry.example.com/dew
   dew kubernetes install --registry registry.example.com/dew
   dew kubernetes install --registry registry.example.com/dew --dry-run > dew.yaml
   dew kubernetes uninstall`

// Commands returns the command. run runs a command of dewd.
func Commands(g *command.Set, run func(ctx context.Context, args []string, out *console.Console) error) []*cli.Command {
	return []*cli.Command{g.WithoutClient(command.Verb{
		Name: "kubernetes", Args: "ACTION", Category: "Daemon", Usage: "Install dewd in a Kubernetes cluster, check the cluster, or uninstall dewd", About: about, Flags: Flags(),
	}, func(c *cli.Context) error {
		o, action := Read(c), c.Args().First()
		if err := o.Validate(action); err != nil {
			return err
		}
		if action == Uninstall && !o.Force {
			yes, err := g.Out.Confirm(c.Context, o.question())
			if err != nil || !yes {
				return err
			}
			o.Force = true
		}
		return run(c.Context, o.args(action), g.Out)
	})}
}

// question asks before dewd and its data are deleted.
func (o Options) question() string {
	if o.KeepData {
		return fmt.Sprintf("Really stop all apps and delete dewd in namespace %s, but keep its data", o.Namespace)
	}
	return fmt.Sprintf("Really stop all apps and delete dewd with all its data in namespace %s", o.Namespace)
}

// Validate returns what is wrong with the flags for an action.
func (o Options) Validate(action string) error {
	switch {
	case !slices.Contains(Actions, action):
		return console.UsageError("kubernetes: %q is not an action: use %s", action, strings.Join(Actions, ", "))
	case o.Namespace == "":
		return console.UsageError("--namespace: the value is empty")
	case action == Install && o.Registry == "":
		return console.UsageError("kubernetes install needs --registry: dewd pushes the images of apps to it, and the nodes pull them")
	case o.RegistryConfig != "" && o.PullSecret != "":
		return console.UsageError("--registry-config and --pull-secret cannot be used together")
	case action != Install && o.DryRun:
		return console.UsageError("--dry-run works only with install")
	case action != Uninstall && o.KeepData:
		return console.UsageError("--keep-data works only with uninstall")
	case o.Timeout <= 0:
		return console.UsageError("--timeout: %s is not greater than 0", o.Timeout)
	}
	for _, s := range o.Set {
		if name, _, ok := strings.Cut(s, "="); !ok || name == "" {
			return console.UsageError("--set: %q is not of the form FLAG=VALUE", s)
		}
	}
	return nil
}
