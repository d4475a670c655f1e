package kubetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// pod is the part of a Pod that tests of nodes need.
type pod struct {
	Metadata struct{ Name, Namespace string }
}

// ready reports whether Kubernetes says that a node is ready, and has removed the taints
// of a node that is not. With them it would evict new Pods.
func (c *Cluster) ready(ctx context.Context, node string) (bool, error) {
	var answer struct {
		Spec   struct{ Taints []struct{ Key string } }
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := c.Do(ctx, http.MethodGet, "/api/v1/nodes/"+node, nil, &answer); err != nil {
		return false, err
	}
	for _, taint := range answer.Spec.Taints {
		if taint.Key == "node.kubernetes.io/unreachable" || taint.Key == "node.kubernetes.io/not-ready" {
			return false, nil
		}
	}
	for _, condition := range answer.Status.Conditions {
		if condition.Type == "Ready" {
			return condition.Status == "True", nil
		}
	}
	return false, errors.New("the node has no condition Ready")
}

// WaitReady waits until a node is ready.
func (c *Cluster) WaitReady(t testing.TB, node string) {
	t.Helper()
	c.waitReady(t, node, true)
}

// WaitLost waits until Kubernetes has noticed that a node does not answer.
func (c *Cluster) WaitLost(t testing.TB, node string) {
	t.Helper()
	c.waitReady(t, node, false)
}

func (c *Cluster) waitReady(t testing.TB, node string, want bool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	testkit.Eventually(t, fmt.Sprintf("%s is ready: %t", node, want), func() error {
		got, err := c.ready(ctx, node)
		if err == nil && got != want {
			err = fmt.Errorf("ready: %t", got)
		}
		return err
	})
}

// Cordon keeps new Pods away from a node, until Uncordon or the end of the test.
func (c *Cluster) Cordon(t testing.TB, node string) {
	t.Helper()
	t.Cleanup(func() { c.Uncordon(t, node) })
	c.Patch(t, "/api/v1/nodes/"+node, Object{"spec": Object{"unschedulable": true}})
}

// Uncordon lets new Pods run on a node again.
func (c *Cluster) Uncordon(t testing.TB, node string) {
	t.Helper()
	c.Patch(t, "/api/v1/nodes/"+node, Object{"spec": Object{"unschedulable": nil}})
}

// Drain cordons a node and evicts its Pods, as kubectl drain does. It returns when the
// Pods are gone. Evictions respect disruption budgets.
func (c *Cluster) Drain(t testing.TB, node string) {
	t.Helper()
	c.Cordon(t, node)
	testkit.Eventually(t, node+" has no Pods", func() error {
		var list struct{ Items []pod }
		query := url.Values{"fieldSelector": {"spec.nodeName=" + node}}
		c.Get(t, "/api/v1/pods?"+query.Encode(), &list)
		var failed []error
		for _, p := range list.Items {
			failed = append(failed, c.Evict(t.Context(), p.Metadata.Namespace, p.Metadata.Name))
		}
		if err := errors.Join(failed...); err != nil || len(list.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d Pods are left", len(list.Items))
	})
}

// Evict evicts a Pod. The API refuses it with 429 if a disruption budget forbids it.
func (c *Client) Evict(ctx context.Context, namespace, name string) error {
	err := c.Do(ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods/"+name+"/eviction", Object{
		"apiVersion": "policy/v1", "kind": "Eviction", "metadata": Object{"name": name, "namespace": namespace},
	}, nil)
	if IsCode(err, http.StatusNotFound) {
		return nil
	}
	return err
}
