package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/dewrun/dew/runtime"
)

// stateWorld is a namespace with the Pods of one process.
type stateWorld struct {
	*testing.T
	client *fake.Clientset
	e      *Engine
}

func newStateWorld(t *testing.T, instances int) *stateWorld {
	var objects []k8sruntime.Object
	for i := range instances {
		objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName(instance(i)), Namespace: "dew"}})
	}
	w := &stateWorld{T: t, client: fake.NewClientset(objects...)}
	w.e = &Engine{cfg: Config{Client: w.client, Namespace: "dew", Name: "one"}}
	w.restart()
	return w
}

// restart is the next daemon, which knows nothing.
func (w *stateWorld) restart() { w.e.states = newStates(w.e) }

func instance(i int) runtime.InstanceID { return runtime.InstanceID(fmt.Sprintf("instance-%d", i)) }

// change reports the state of a slot.
func (w *stateWorld) change(i int, state runtime.State, ready bool) {
	w.e.Changed(runtime.Status{Slot: runtime.SlotID{Process: "shop", Index: i}, Instance: instance(i), State: state, Ready: ready})
}

func (w *stateWorld) tell() {
	w.Helper()
	if err := w.e.states.tell(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// want checks the budget, -1 for none, and which Pods are ready.
func (w *stateWorld) want(budget int, ready ...int) {
	w.Helper()
	w.tell()
	list, err := w.client.PolicyV1().PodDisruptionBudgets("dew").List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	got := -1
	if len(list.Items) > 0 {
		got = list.Items[0].Spec.MinAvailable.IntValue()
	}
	if got != budget {
		w.Errorf("the budget is %d, want %d", got, budget)
	}
	pods, err := w.client.CoreV1().Pods("dew").List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for i := range pods.Items {
		is := false
		for _, c := range pods.Items[i].Status.Conditions {
			is = c.Type == conditionReady && c.Status == corev1.ConditionTrue
		}
		if is != slices.Contains(ready, i) {
			w.Errorf("%s is ready: %t", pods.Items[i].Name, is)
		}
	}
}

// Kubernetes knows which instances are ready, and that all but one must keep running.
func TestStates(t *testing.T) {
	w := newStateWorld(t, 3)
	w.change(0, runtime.Starting, false)
	w.want(-1)
	w.change(0, runtime.Running, true)
	w.change(1, runtime.Starting, false)
	w.change(2, runtime.Starting, false)
	w.want(2, 0)
	w.change(1, runtime.Running, true)
	w.change(2, runtime.Running, true)
	w.want(2, 0, 1, 2)
	// A crashed instance starts again, so the number of instances is the same.
	w.change(2, runtime.Crashed, false)
	w.change(1, runtime.Running, false)
	w.want(2, 0, 2)
	w.change(2, runtime.Stopping, false)
	w.want(1, 0, 2)
	w.change(1, runtime.Down, false)
	w.want(1, 0, 2) // until all slots are known
	w.e.states.adopted()
	w.want(-1, 0, 2)
}

// The next daemon changes the budgets of the earlier one only when it knows all slots.
func TestStatesOfEarlierDaemon(t *testing.T) {
	w := newStateWorld(t, 3)
	for i := range 3 {
		w.change(i, runtime.Running, true)
	}
	w.want(2, 0, 1, 2)
	w.restart()
	w.want(2, 0, 1, 2)
	w.change(0, runtime.Running, true)
	w.want(2, 0, 1, 2)
	w.change(1, runtime.Running, true)
	w.e.states.adopted()
	w.want(1, 0, 1, 2)
	if err := w.e.RemoveBudgets(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.want(-1, 0, 1, 2)
}

// A call that failed is repeated, and a Pod that is gone is no failure.
func TestStatesAgain(t *testing.T) {
	w := newStateWorld(t, 1)
	broken := true
	w.client.PrependReactor("create", "poddisruptionbudgets", func(k8stesting.Action) (bool, k8sruntime.Object, error) {
		if broken {
			return true, nil, errors.New("the API server is away")
		}
		return false, &policyv1.PodDisruptionBudget{}, nil
	})
	w.change(0, runtime.Running, true)
	w.change(1, runtime.Running, true) // has no Pod
	if err := w.e.states.tell(t.Context()); err == nil {
		t.Error("a failed call was not reported")
	}
	broken = false
	w.want(1, 0)
}
