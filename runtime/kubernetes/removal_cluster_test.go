//go:build k8stest

package kubernetes

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/testkit"
)

// wantRemoved checks that every exit has the cluster as its cause, with the reason.
func wantRemoved(t *testing.T, xs map[string]runtime.Exit, reason string) {
	t.Helper()
	for exec, x := range xs {
		if x.Cause != runtime.CauseRemoved || !strings.Contains(x.Detail, reason) {
			t.Errorf("exit of %s = %+v, want that the cluster removed it: %s", exec, x, reason)
		}
	}
}

// nodeOf returns the node of an instance.
func (w *world) nodeOf(c runtime.Container) string {
	w.Helper()
	p, err := w.client.CoreV1().Pods(w.namespace).Get(w.Context(), podName(c.Spec().Instance), metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return p.Spec.NodeName
}

// An evicted Pod has the eviction as its cause.
func TestPodEvicted(t *testing.T) {
	w := newClusterWorld(t)
	cluster := kubetest.Open(t)
	w.open()
	c := w.start("sleep 1000", "sleep 1000")
	node := w.nodeOf(c)
	if err := cluster.Evict(t.Context(), w.namespace, podName(c.Spec().Instance)); err != nil {
		t.Fatal(err)
	}
	wantRemoved(t, w.exits(c, 2), "someone evicted it, for example to drain its node ("+node)
	if err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

// A Pod that uses more than its disk limit is evicted for that, which is a crash.
func TestDiskExceeded(t *testing.T) {
	w := newClusterWorld(t)
	w.open()
	s := w.spec()
	s.Disk = 16 << 20
	s.Processes[0].Command = "head -c 48M /dev/zero >/home/vcap/big; sleep 1000"
	c, err := w.engine.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	x := w.exits(c, 1)[runtime.MainExec]
	if x.Cause != runtime.CauseDiskFull || !strings.Contains(x.Detail, "home") {
		t.Errorf("exit = %+v, want that it used too much disk", x)
	}
	if err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

// A node that is switched off takes its instances with it once Kubernetes has given it
// up. The instances of other nodes run on, and nothing is left.
func TestNodeLost(t *testing.T) {
	w := newClusterWorld(t)
	cluster := kubetest.Open(t)
	w.open()
	lost := w.start("sleep 1000", "sleep 1000")
	node := w.nodeOf(lost)
	cluster.Cordon(t, node) // so that the other one is elsewhere
	kept := w.start("sleep 1000", "sleep 1000")
	cluster.Uncordon(t, node)
	cluster.PowerOff(t, node)
	cluster.WaitLost(t, node)
	select {
	case x := <-lost.Exits():
		t.Errorf("exit %+v, although Kubernetes waits for the node", x)
	default:
	}
	wantRemoved(t, w.exits(lost, 2), "its node is not ready")
	for _, p := range lost.Spec().Processes {
		if _, err := lost.Reap(t.Context(), p.Exec); err != nil {
			t.Error(err)
		}
	}
	testkit.Eventually(t, "the Pod of the lost node is deleted", func() error { return lost.Delete(t.Context()) })
	select {
	case x := <-kept.Exits():
		t.Errorf("exit %+v of an instance on another node", x)
	default:
	}
	cluster.PowerOn(t, node)
	cluster.WaitReady(t, node)
	if err := kept.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

// The instances of a process run on different nodes.
func TestSpread(t *testing.T) {
	w := newClusterWorld(t)
	w.open()
	nodes := map[string]int{}
	for i := range 4 {
		s := w.spec()
		s.Slot = runtime.SlotID{Process: "process-of-the-test", Index: i}
		s.Processes[0].Command = "sleep 1000"
		c, err := w.engine.Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		nodes[w.nodeOf(c)]++
		defer func() {
			if err := c.Delete(t.Context()); err != nil {
				t.Error(err)
			}
		}()
	}
	for node, n := range nodes {
		if n != 2 {
			t.Errorf("%d instances on %s, want 2 on each of two nodes: %v", n, node, nodes)
		}
	}
}
