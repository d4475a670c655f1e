// Package cluster connects dewd with a Kubernetes cluster. Only a dewd that is built with
// the tag kubernetes has the engine, because its libraries double the size of dewd.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/cli/kubernetes"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services/builtin"
)

// Flags are the settings of the cluster.
type Flags struct {
	Engine       string // Containerd or Kubernetes
	Kubeconfig   string // empty: dewd runs in the cluster
	Namespace    string
	Registry     string // registry and folder of images, such as registry.example.com/dew
	PullSecret   string
	AgentListen  string
	AgentAddress string
	StorageClass string // of the volumes of databases; empty: the default one of the cluster
}

// startLimit is how long a Pod can take to start. It includes the pull of its images.
const startLimit = 5 * time.Minute

// DatabaseStart is how long a database can take to start. It is longer than the limit of
// its Pod, so that the error says what Kubernetes says about the Pod.
const DatabaseStart = startLimit + time.Minute

// The engines.
const (
	Containerd = "containerd"
	Kubernetes = "kubernetes"
)

// Default returns the default settings.
func Default() Flags {
	return Flags{Engine: Containerd, Namespace: "dew", AgentListen: ":8486", AgentAddress: serviceAddress(os.Getenv)}
}

// serviceAddress returns the address of the Service dewd-agents, which Kubernetes puts
// into the environment of Pods. It is empty outside of the cluster.
func serviceAddress(getenv func(string) string) string {
	host, port := getenv("DEWD_AGENTS_SERVICE_HOST"), getenv("DEWD_AGENTS_SERVICE_PORT_AGENTS")
	if host == "" || port == "" {
		return ""
	}
	return net.JoinHostPort(host, port)
}

// Used reports whether instances run in a cluster.
func (f Flags) Used() bool { return f.Engine == Kubernetes }

// Validate returns what is wrong with the settings.
func (f Flags) Validate() (errs []error) {
	if f.Engine != Containerd && f.Engine != Kubernetes {
		return []error{fmt.Errorf("--engine: %q is not one of %s, %s", f.Engine, Containerd, Kubernetes)}
	}
	if !f.Used() {
		return nil
	}
	if f.Registry == "" || strings.ContainsAny(f.Registry, " @") {
		errs = append(errs, fmt.Errorf("--registry: %q is not a registry such as registry.example.com/dew (dewd pushes the images of stacks to it, and the nodes pull them)", f.Registry))
	}
	if f.Namespace == "" {
		errs = append(errs, errors.New("--namespace: the value is empty (set the namespace for the Pods)"))
	}
	if f.AgentAddress == "" {
		errs = append(errs, errors.New("--agent-address: the value is empty (set the host:port at which Pods reach --agent-listen, such as 192.0.2.10:8486)"))
	}
	return errs
}

// Options has what the engine needs from dewd.
type Options struct {
	Flags
	Name       string // of this daemon
	Root       string
	Programs   string // folder with the programs for Pods
	UID        int
	Backlog    int64
	CrashFiles int64
	CPU        int64    // limit of each instance in thousandths of a core; 0: none
	Insecure   []string // registries without TLS
	KillDelay  time.Duration
	Droplet    func(sha string) (io.ReadCloser, error)
	Logs       *logstream.Logs
	Logger     *slog.Logger
}

// Installation installs dewd in a cluster, and removes it.
type Installation struct {
	kubernetes.Options
	Env      map[string]string // environment variables of dewd
	Programs string            // folder with the programs of dew
	Bundle   string            // file with the certificate authorities that dewd trusts
	Version  string
	Out, Err io.Writer // results and progress
}

// Result is the result of an installation as JSON.
type Result struct {
	Namespace string `json:"namespace"`
	Image     string `json:"image"`
	Version   string `json:"version"`
	Domain    string `json:"domain"`
}

// ErrChecks says that the cluster does not meet the requirements. The checks are printed
// already.
var ErrChecks = errors.New("the cluster does not meet the requirements")

// Engine is an engine with the functions that dewd needs besides the supervisor. Those
// that concern one machine do nothing.
type Engine struct {
	runtime.Engine
	runtime.CrashKeeper
	server   string
	fence    func(context.Context) error
	held     func() error // why dewd cannot change the cluster
	close    func() error
	tearDown func(context.Context) error
	changed  func(runtime.Status)
	volumes  builtin.Volumes
}

// Volumes returns the volumes of databases.
func (e *Engine) Volumes() builtin.Volumes { return e.volumes }

// Changed tells Kubernetes which instances are ready.
func (e *Engine) Changed(st runtime.Status) { e.changed(st) }

// Outage returns why the state of instances is unknown at the moment. While the cluster
// stores nothing, it does not store the state of Pods either.
func (e *Engine) Outage() error {
	if err := e.Engine.Outage(); err != nil {
		return err
	}
	return e.held()
}

// Gateway returns no address: instances reach dewd through the cluster.
func (e *Engine) Gateway() netip.Addr { return netip.Addr{} }

// Address returns the address of the API server.
func (e *Engine) Address() string { return e.server }

// Fence waits until ctx ends. It returns an error if another dewd has taken the Lease of the
// namespace.
func (e *Engine) Fence(ctx context.Context) error { return e.fence(ctx) }

// Keep waits for the end of ctx: the engine watches its Pods by itself.
func (e *Engine) Keep(ctx context.Context) { <-ctx.Done() }

// Unpack does nothing: droplets are unpacked in each Pod.
func (e *Engine) Unpack(context.Context, runtime.Spec) error { return nil }

// PruneImages does nothing: droplets are unpacked in each Pod.
func (e *Engine) PruneImages(context.Context, func(sha string) bool) error { return nil }

// PruneStacks does nothing: the registry keeps the images of stacks.
func (e *Engine) PruneStacks(context.Context, func(id string) bool) error { return nil }

// TearDown stops every instance.
func (e *Engine) TearDown(ctx context.Context) error { return e.tearDown(ctx) }

// Left returns nothing: the next sweep finds what could not be removed.
func (e *Engine) Left() error { return nil }

// PoliciesChanged does nothing: the cluster has its own network policies.
func (e *Engine) PoliciesChanged() {}

// UseCertificates does nothing: Pods have the certificates of their stack.
func (e *Engine) UseCertificates(*certs.Instances) {}

// UseNames does nothing: Pods use the DNS of the cluster.
func (e *Engine) UseNames() {}

// Close stops the engine. The instances keep running.
func (e *Engine) Close() error { return e.close() }
