//go:build kubernetes

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	kubecli "github.com/dewrun/dew/cli/kubernetes"
	"github.com/dewrun/dew/runtime/kubernetes"
	"github.com/dewrun/dew/runtime/kubernetes/images"
	"github.com/dewrun/dew/runtime/kubernetes/install"
	"github.com/dewrun/dew/runtime/kubernetes/lease"
	"github.com/dewrun/dew/runtime/kubernetes/preflight"
)

// installer is an installation with the architecture of its programs.
type installer struct {
	Installation
	arch string
}

// Run runs an action of dew kubernetes.
func (i Installation) Run(ctx context.Context, action string) error {
	arch, err := images.Arch(i.Programs)
	if err != nil {
		return err
	}
	return installer{i, arch}.run(ctx, action)
}

func (i installer) run(ctx context.Context, action string) error {
	if i.DryRun {
		return i.dryRun()
	}
	client, server, err := kubernetes.ConnectUser(i.Kubeconfig, i.Context)
	if err != nil {
		return err
	}
	subject := preflight.Subject{
		Client: client, Server: server, Namespace: i.Namespace, Name: i.Registry, Arch: i.arch, Install: true, StorageClass: i.StorageClass,
	}
	if i.Registry != "" && i.Image == "" {
		subject.Registry = i.store().CheckPush
	}
	target := install.Cluster{Client: client, Say: i.say}
	switch action {
	case kubecli.Check:
		return i.check(ctx, subject)
	case kubecli.Uninstall:
		return i.uninstall(ctx, target)
	default:
		return i.install(ctx, target, subject)
	}
}

func (i installer) say(format string, args ...any) { fmt.Fprintf(i.Err, format+"\n", args...) }

// check prints what the cluster lacks.
func (i installer) check(ctx context.Context, s preflight.Subject) error {
	found := s.Examine(ctx)
	if err := i.print(found); err != nil {
		return err
	}
	if preflight.Failed(found) {
		return ErrChecks
	}
	return nil
}

func (i installer) print(found []v3.Finding) error {
	if i.JSON {
		return i.encode(found)
	}
	for _, f := range found {
		if err := i.printFinding(f); err != nil {
			return err
		}
	}
	return nil
}

func (i installer) printFinding(f v3.Finding) error {
	line := fmt.Sprintf("%-4s  %-14s  %s", f.Level, f.Name, f.What)
	if f.Do != "" {
		line += "  -> " + f.Do
	}
	_, err := fmt.Fprintln(i.Out, line)
	return err
}

func (i installer) encode(v any) error {
	e := json.NewEncoder(i.Out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// store returns the registry, with the login of this machine.
func (i installer) store() *images.Store {
	return &images.Store{Prefix: i.Registry, Insecure: i.Insecure, Arch: i.arch}
}

// settings returns the settings of the manifests.
func (i installer) settings(image string) (install.Settings, error) {
	s := install.Settings{
		Namespace: i.Namespace, Image: image, PullSecret: i.PullSecret, StorageClass: i.StorageClass, StorageSize: i.StorageSize,
		LoadBalancer: i.LoadBalancer, Env: maps.Clone(i.Env),
	}
	var err error
	if s.TCPPorts, err = tcpPorts(i.TCPPorts); err != nil {
		return s, err
	}
	if i.RegistryConfig == "" {
		return s, nil
	}
	data, err := os.ReadFile(i.RegistryConfig)
	if err == nil && !json.Valid(data) {
		err = fmt.Errorf("%s is not JSON", i.RegistryConfig)
	}
	if err == nil && !bytes.Contains(data, []byte(`"auth"`)) {
		err = fmt.Errorf("%s has no login: docker stores it elsewhere (create a Secret with kubectl create secret docker-registry, and use --pull-secret)", i.RegistryConfig)
	}
	if err != nil {
		return s, fmt.Errorf("cannot use the file of --registry-config: %w", err)
	}
	s.Registry = data
	return s, nil
}

// maxTCPPorts is the maximum number of ports of TCP routes in a Service. Load balancers
// support few.
const maxTCPPorts = 100

// tcpPorts returns the ports of a range.
func tcpPorts(text string) (all []int, err error) {
	var r app.PortRange
	if err := r.UnmarshalText([]byte(text)); err != nil {
		return nil, fmt.Errorf("--tcp-ports: %w", err)
	}
	if text == "" {
		return nil, nil
	}
	if n := r.Last - r.First + 1; n > maxTCPPorts {
		return nil, fmt.Errorf("--tcp-ports: %s has %d ports, but a Service can have at most %d", text, n, maxTCPPorts)
	}
	for p := r.First; p <= r.Last; p++ {
		all = append(all, p)
	}
	return all, nil
}

// image returns the image of dewd, with its name.
func (i installer) image() (images.Daemon, error) {
	if i.Image != "" {
		return images.Daemon{Name: i.Image}, nil
	}
	return i.store().Daemon(i.Programs, i.Bundle)
}

// dryRun prints the manifests.
func (i installer) dryRun() error {
	image, err := i.image()
	if err != nil {
		return err
	}
	s, err := i.settings(image.Name)
	if err != nil {
		return err
	}
	all, err := install.Objects(s)
	if err != nil {
		return err
	}
	if i.JSON {
		return i.encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": all})
	}
	text, err := install.YAML(all)
	if err != nil {
		return err
	}
	_, err = i.Out.Write(text)
	return err
}

// install checks the cluster, pushes the image, creates the objects, and waits until dewd
// is ready.
func (i installer) install(ctx context.Context, c install.Cluster, subject preflight.Subject) error {
	if i.SkipChecks {
		i.say("Skipping the checks of the cluster")
	} else if err := i.preflight(ctx, subject); err != nil {
		return err
	}
	image, err := i.image()
	if err != nil {
		return err
	}
	s, err := i.settings(image.Name)
	if err != nil {
		return err
	}
	objects, err := install.Objects(s)
	if err != nil {
		return err
	}
	if i.Image == "" {
		i.say("Pushing the image %s", image.Name)
		if err := i.store().PushDaemon(ctx, image); err != nil {
			return err
		}
	}
	i.say("Creating dewd in namespace %s", i.Namespace)
	if err := c.Apply(ctx, objects); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, i.Timeout)
	defer cancel()
	if err := c.Wait(bounded, i.Namespace); err != nil {
		return err
	}
	if i.JSON {
		return i.encode(Result{Namespace: i.Namespace, Image: image.Name, Version: i.Version, Domain: i.Domain})
	}
	_, err = fmt.Fprint(i.Out, i.nextSteps())
	return err
}

// preflight runs the checks, and prints only those that did not succeed.
func (i installer) preflight(ctx context.Context, s preflight.Subject) error {
	i.say("Checking the cluster at %s", s.Server)
	found := s.Examine(ctx)
	out := i.Out
	i.Out = i.Err
	for _, f := range found {
		if f.Do == "" {
			continue
		}
		if err := i.printFinding(f); err != nil {
			return err
		}
	}
	i.Out = out
	if preflight.Failed(found) {
		return fmt.Errorf("%w (to install all the same, use --skip-checks)", ErrChecks)
	}
	return nil
}

// nextSteps says how to use the installed dewd.
func (i installer) nextSteps() string {
	kubectl := "kubectl --namespace " + i.Namespace
	if i.Context != "" {
		kubectl += " --context " + i.Context
	}
	return strings.Join([]string{
		"dewd " + i.Version + " is ready in namespace " + i.Namespace + ".",
		"",
		"To use it from this machine, forward its ports in another shell:",
		"   " + kubectl + " port-forward pod/dewd-0 8484 8080 2222",
		"and log in with the password that the first command prints:",
		"   " + kubectl + " exec dewd-0 -- dew credentials",
		"   dew login http://127.0.0.1:8484 -u admin",
		"Then add a stack and push an app. docs/kubernetes.md shows how.", "",
	}, "\n")
}

// uninstall removes dewd.
func (i installer) uninstall(ctx context.Context, c install.Cluster) error {
	if !i.Force {
		return fmt.Errorf("confirmation needed: pass -f to delete dewd in namespace %s", i.Namespace)
	}
	bounded, cancel := context.WithTimeout(ctx, i.Timeout)
	defer cancel()
	if err := c.Uninstall(bounded, i.Namespace, i.KeepData); err != nil {
		return err
	}
	if i.KeepData {
		i.say("Uninstalled dewd. Its data is in the PersistentVolumeClaim root-dewd-0 of namespace %s, and that of databases in those that start with dew-", i.Namespace)
	} else {
		i.say("Uninstalled dewd")
	}
	return nil
}

// Examine runs the checks of the cluster with the permissions of dewd itself.
func Examine(ctx context.Context, f Flags, insecure []string) []v3.Finding {
	client, server, err := kubernetes.Connect(f.Kubeconfig, lease.ReadOnly)
	if err != nil {
		return []v3.Finding{{Name: "cluster", Level: "FAIL", What: err.Error(), Do: "set --kubeconfig, or run dewd in the cluster"}}
	}
	host, _, _ := strings.Cut(f.Registry, "/")
	store := &images.Store{Prefix: f.Registry, Insecure: slices.Contains(insecure, host)}
	return preflight.Subject{Client: client, Server: server, Namespace: f.Namespace, Registry: store.CheckPush, Name: f.Registry, Arch: goruntime.GOARCH}.Examine(ctx)
}
