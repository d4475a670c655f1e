//go:build kubernetes

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/kubernetes"
	"github.com/dewrun/dew/runtime/kubernetes/images"
	"github.com/dewrun/dew/runtime/kubernetes/lease"
)

// minGrace is the shortest time that Kubernetes gives a Pod that someone else deletes, so
// that dewd can read its last lines.
const minGrace = 30 * time.Second

// Open connects with the cluster, and pushes the image of the agent.
func Open(ctx context.Context, o Options) (*Engine, error) {
	fence := lease.New(o.Namespace, holder(o.Root), o.Logger)
	client, server, err := kubernetes.Connect(o.Kubeconfig, fence.Guard)
	if err != nil {
		return nil, err
	}
	if err := fence.Take(ctx, client.CoordinationV1().Leases(o.Namespace)); err != nil {
		return nil, err
	}
	e, err := openEngine(ctx, o, client)
	if err != nil {
		return nil, errors.Join(err, fence.Release(context.WithoutCancel(ctx)))
	}
	return &Engine{
		Engine: e, CrashKeeper: e, server: server, fence: fence.Wait, held: fence.Check,
		close:    func() error { return errors.Join(e.Close(), fence.Release(context.WithoutCancel(ctx))) },
		changed:  e.Changed,
		volumes:  kubernetes.Volumes{Client: client, Namespace: o.Namespace, Daemon: o.Name, StorageClass: o.StorageClass},
		tearDown: func(ctx context.Context) error { return tearDown(ctx, e) },
	}, nil
}

// openEngine opens the engine of a dewd that holds the Lease.
func openEngine(ctx context.Context, o Options, client kubernetes.Client) (*kubernetes.Engine, error) {
	host, _, _ := strings.Cut(o.Registry, "/")
	store := &images.Store{Prefix: o.Registry, Insecure: slices.Contains(o.Insecure, host)}
	agent, err := store.PushPrograms(ctx, o.Programs)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", o.AgentListen)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for Pods at --agent-listen: %w", err)
	}
	e, err := kubernetes.New(ctx, kubernetes.Config{
		Client: client, Namespace: o.Namespace, Name: o.Name, Dir: filepath.Join(o.Root, "kubernetes"), Listener: l, Address: o.AgentAddress, Image: agent,
		StackImage: func(s stack.Stack) (string, error) { return stackImage(ctx, store, s) },
		PullSecret: o.PullSecret, UID: int64(o.UID), Backlog: o.Backlog, CPU: o.CPU, Droplet: o.Droplet,
		Crashed: kubernetes.Crashed{Dir: filepath.Join(o.Root, "crashed"), Bytes: o.CrashFiles}, Logs: o.Logs, Logger: o.Logger,
		StartLimit: startLimit, GracePeriod: max(minGrace, o.KillDelay),
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return e, nil
}

// holder returns the holder of the Lease: the Pod of dewd, or the machine and the root.
// Kubernetes runs one process for a Pod, and dewd locks its root.
func holder(root string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + cmp.Or(os.Getenv(podUID), root)
}

// podUID is the environment variable with the ID of dewd's own Pod.
const podUID = "DEW_POD_UID"

// stackImage pushes the image of a stack. The stack with the files of this machine is
// not on the nodes.
func stackImage(ctx context.Context, store *images.Store, s stack.Stack) (string, error) {
	if len(s.Tree) == 0 {
		return "", &runtime.StartError{Reason: fmt.Sprintf("the stack %s has the files of this machine, which the nodes do not have: run dew stack build debian, then push the app with -s debian", s.Name)}
	}
	return store.PushStack(context.WithoutCancel(ctx), s)
}

// tearDown stops every instance and removes its Pod.
func tearDown(ctx context.Context, e *kubernetes.Engine) error {
	found, err := e.Adopt(ctx)
	if some := (*runtime.AdoptError)(nil); err != nil && !errors.As(err, &some) { // the sweep removes those
		return err
	}
	var errs error
	for _, c := range found {
		errs = errors.Join(errs, c.Delete(ctx))
	}
	return errors.Join(errs, e.Sweep(ctx, nil), e.RemoveBudgets(ctx))
}
