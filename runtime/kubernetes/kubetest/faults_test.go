//go:build k8stest

package kubetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// A Pod survives the death of every component, the component starts again, and the
// cluster can run new Pods.
func TestKilledComponents(t *testing.T) {
	c := Open(t)
	image, namespace := c.StackImage(t), c.Namespace(t, Restricted)
	node := c.Nodes[0]
	start := func(name string) podStatus {
		spec := podSpec(container(image, "main", "64Mi", "/bin/sleep", "1000"))
		spec["nodeSelector"] = Object{"kubernetes.io/hostname": node}
		testkit.Eventually(t, "the API accepts the Pod "+name, func() error {
			err := c.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", Object{"metadata": Object{"name": name}, "spec": spec}, nil)
			if IsCode(err, http.StatusConflict) { // an answer was lost
				return nil
			}
			return err
		})
		return waitPod(t, c, namespace, name)
	}
	before := start("old")
	for i, killed := range []Component{
		{Machine: Control, Name: Etcd},
		{Machine: Control, Name: APIServer},
		{Machine: Control, Name: Scheduler},
		{Machine: Control, Name: ControllerManager},
		{Machine: node, Name: Kubelet},
		{Machine: node, Name: Containerd},
	} {
		was := c.Component(t, killed.Machine, killed.Name)
		c.Kill(t, killed.Machine, killed.Name)
		testkit.EventuallyTrue(t, killed.Name+" starts again", func() bool {
			is := c.Component(t, killed.Machine, killed.Name)
			return is.State == "running" && is.Starts == was.Starts+1 && is.PID != was.PID
		})
		start(fmt.Sprintf("new-%d", i))
		after := waitPod(t, c, namespace, "old")
		if got, want := after.Status.ContainerStatuses[0].ContainerID, before.Status.ContainerStatuses[0].ContainerID; got != want {
			t.Errorf("container after the death of %s = %s, want %s", killed.Name, got, want)
		}
	}
}

// A paused API server accepts connections and does not answer. A stopped one refuses
// them.
func TestPausedAndStopped(t *testing.T) {
	c := Open(t)
	c.Pause(t, Control, APIServer)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := c.Do(ctx, http.MethodGet, "/version", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("request to a paused API server: %v, want no answer", err)
	}
	c.Resume(t, Control, APIServer)
	c.Get(t, "/version", nil)

	c.Stop(t, Control, APIServer)
	if got := c.Component(t, Control, APIServer); got.State != "stopped" || got.PID != 0 {
		t.Errorf("stopped component = %+v, want the state stopped", got)
	}
	if err := c.Do(t.Context(), http.MethodGet, "/version", nil, nil); err == nil {
		t.Error("a stopped API server answers")
	}
	c.Start(t, Control, APIServer)
	testkit.Eventually(t, "the API server answers", func() error {
		return c.Do(t.Context(), http.MethodGet, "/readyz/ping", nil, nil)
	})
}

// deploy creates a Deployment that leaves lost nodes at once, and returns a function that
// waits until its Pods that are not being deleted run, on none of the given nodes.
func deploy(t *testing.T, c *Cluster, namespace string, replicas int) func(avoid ...string) []podStatus {
	t.Helper()
	spec := podSpec(container(c.StackImage(t), "main", "64Mi", "/bin/sleep", "1000"))
	spec["tolerations"] = []Object{
		{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
		{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
	}
	spec["topologySpreadConstraints"] = []Object{{
		"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
		"labelSelector": Object{"matchLabels": Object{"app": "web"}},
	}}
	c.Create(t, "/apis/apps/v1/namespaces/"+namespace+"/deployments", Object{
		"metadata": Object{"name": "web"},
		"spec": Object{
			"replicas": replicas, "selector": Object{"matchLabels": Object{"app": "web"}},
			"template": Object{"metadata": Object{"labels": Object{"app": "web"}}, "spec": spec},
		},
	})
	return func(avoid ...string) (pods []podStatus) {
		t.Helper()
		testkit.Eventually(t, "the Deployment runs", func() error {
			var list struct{ Items []podStatus }
			if err := c.Do(t.Context(), http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods", nil, &list); err != nil {
				return err
			}
			pods = slices.DeleteFunc(list.Items, func(p podStatus) bool { return p.Metadata.DeletionTimestamp != "" })
			if len(pods) != replicas {
				return fmt.Errorf("%d Pods, want %d", len(pods), replicas)
			}
			for _, p := range pods {
				if err := p.isReady(); err != nil {
					return err
				}
				if slices.Contains(avoid, p.Spec.NodeName) {
					return fmt.Errorf("%s is on %s", p.Metadata.Name, p.Spec.NodeName)
				}
			}
			return nil
		})
		return pods
	}
}

func needNodes(t *testing.T, c *Cluster, count int) {
	t.Helper()
	if len(c.Nodes) < count {
		t.Skipf("the cluster has %d nodes, the test needs %d: DEW_K8STEST_NODES=%d", len(c.Nodes), count, count)
	}
}

// nodesOf returns the nodes of Pods.
func nodesOf(pods []podStatus) (nodes []string) {
	for _, p := range pods {
		nodes = append(nodes, p.Spec.NodeName)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Pods of different nodes reach each other. When a node is switched off, its Pods start
// on another one; when it is on again, it runs Pods.
func TestNodeOff(t *testing.T) {
	c := Open(t)
	needNodes(t, c, 2)
	namespace := c.Namespace(t, Restricted)
	running := deploy(t, c, namespace, len(c.Nodes))
	if got := nodesOf(running()); !slices.Equal(got, c.Nodes) {
		t.Fatalf("the Pods run on %q, want %q", got, c.Nodes)
	}
	lost := c.Nodes[1]
	c.PowerOff(t, lost)
	for _, component := range c.Components(t) {
		if component.Machine == lost {
			t.Errorf("%s of a node without power is %s", component.Name, component.State)
		}
	}
	c.WaitLost(t, lost)
	running(lost)
	c.PowerOn(t, lost)
	spec := podSpec(container(c.StackImage(t), "main", "64Mi", "/bin/sleep", "1000"))
	spec["nodeName"] = lost
	c.Create(t, "/api/v1/namespaces/"+namespace+"/pods", Object{"metadata": Object{"name": "again"}, "spec": spec})
	waitPod(t, c, namespace, "again")
}

// A node without network is lost for the cluster, while its Pods keep running. When it
// is connected again, Kubernetes removes the Pods that it replaced.
func TestNodeCut(t *testing.T) {
	c := Open(t)
	needNodes(t, c, 2)
	namespace := c.Namespace(t, Restricted)
	running := deploy(t, c, namespace, len(c.Nodes))
	pods := running()
	lost := c.Nodes[1]
	c.CutLink(t, lost)
	c.WaitLost(t, lost)
	running(lost)
	for _, component := range c.Components(t) {
		if component.Machine == lost && component.State != "running" {
			t.Errorf("%s of a node without network is %s, want running", component.Name, component.State)
		}
	}
	c.RestoreLink(t, lost)
	c.WaitReady(t, lost)
	for _, p := range pods {
		if p.Spec.NodeName != lost {
			continue
		}
		testkit.EventuallyTrue(t, "the replaced Pod is gone", func() bool {
			return IsCode(c.Do(t.Context(), http.MethodGet, podPath(namespace, p.Metadata.Name), nil, nil), http.StatusNotFound)
		})
	}
}

// Draining a node moves its Pods, and respects a disruption budget.
func TestDrain(t *testing.T) {
	c := Open(t)
	needNodes(t, c, 2)
	namespace := c.Namespace(t, Restricted)
	running := deploy(t, c, namespace, len(c.Nodes))
	pods := running()
	budgets := "/apis/policy/v1/namespaces/" + namespace + "/poddisruptionbudgets"
	c.Create(t, budgets, Object{
		"metadata": Object{"name": "web"},
		"spec":     Object{"minAvailable": len(c.Nodes), "selector": Object{"matchLabels": Object{"app": "web"}}},
	})
	testkit.Eventually(t, "the budget counts the Pods", func() error {
		var budget struct{ Status struct{ ExpectedPods int } }
		c.Get(t, budgets+"/web", &budget)
		if budget.Status.ExpectedPods != len(c.Nodes) {
			return fmt.Errorf("%d Pods", budget.Status.ExpectedPods)
		}
		return nil
	})
	if err := c.Evict(t.Context(), namespace, pods[0].Metadata.Name); !IsCode(err, http.StatusTooManyRequests) {
		t.Errorf("evict a Pod that the budget needs: %v, want 429", err)
	}
	c.Patch(t, budgets+"/web", Object{"spec": Object{"minAvailable": len(c.Nodes) - 1}})
	drained := c.Nodes[0]
	c.Drain(t, drained)
	running(drained)
	var list struct{ Items []podStatus }
	query := url.Values{"fieldSelector": {"spec.nodeName=" + drained}}
	c.Get(t, "/api/v1/namespaces/"+namespace+"/pods?"+query.Encode(), &list)
	if len(list.Items) != 0 {
		t.Errorf("%d Pods are on a drained node, want 0", len(list.Items))
	}
}
