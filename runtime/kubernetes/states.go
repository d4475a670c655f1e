package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
)

// conditionReady is the condition of a Pod whose instance is ready according to dewd's
// own checks. Kubernetes counts only such a Pod as ready.
const conditionReady corev1.PodConditionType = "run.dew/ready"

// readinessGates makes Kubernetes ask dewd whether an instance is ready.
func readinessGates(s runtime.Spec) []corev1.PodReadinessGate {
	if s.Kind != runtime.KindInstance {
		return nil
	}
	return []corev1.PodReadinessGate{{ConditionType: conditionReady}}
}

// states tells Kubernetes which instances are ready, and how many of each process must
// keep running while a node is drained: all but one.
type states struct {
	e       *Engine
	changed chan struct{}

	mu       sync.Mutex // guards the fields below
	slots    map[runtime.SlotID]runtime.Status
	complete bool // the slots of an earlier daemon are known

	// Only run uses these: what Kubernetes was told.
	ready   map[runtime.InstanceID]bool
	budgets map[string]int // by process: how many instances must keep running
}

func newStates(e *Engine) *states {
	return &states{e: e, changed: make(chan struct{}, 1), slots: map[runtime.SlotID]runtime.Status{}, ready: map[runtime.InstanceID]bool{}}
}

// Changed receives every change of a slot.
func (e *Engine) Changed(st runtime.Status) {
	s := e.states
	s.mu.Lock()
	if st.State == runtime.Down || st.State == runtime.Stopping {
		delete(s.slots, st.Slot)
	} else {
		s.slots[st.Slot] = st
	}
	s.mu.Unlock()
	s.wake()
}

// adopted says that every slot has reported its state. Budgets of other processes can be
// removed.
func (s *states) adopted() {
	s.mu.Lock()
	s.complete = true
	s.mu.Unlock()
	s.wake()
}

func (s *states) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// run tells Kubernetes about changes until the engine is closed.
func (s *states) run() {
	for wait := time.Second; ; {
		select {
		case <-s.e.ctx.Done():
			return
		case <-s.changed:
		}
		err := s.tell(s.e.ctx)
		if err == nil {
			wait = time.Second
			continue
		}
		if s.e.ctx.Err() == nil {
			s.e.log.Warn("cannot tell Kubernetes which instances are ready; trying again", "err", err)
		}
		if process.Sleep(s.e.ctx, wait) != nil {
			return
		}
		wait = min(2*wait, time.Minute)
		s.wake()
	}
}

// tell tells Kubernetes what it does not know yet.
func (s *states) tell(ctx context.Context) error {
	if s.budgets == nil {
		found, err := s.readBudgets(ctx)
		if err != nil {
			return err
		}
		s.budgets = found
	}
	ready, wanted, complete := s.wanted()
	if err := s.tellReady(ctx, ready); err != nil {
		return err
	}
	for process, n := range wanted {
		if had, ok := s.budgets[process]; !ok || had != n {
			if err := s.setBudget(ctx, process, n); err != nil {
				return err
			}
			s.budgets[process] = n
		}
	}
	for process := range s.budgets {
		if _, ok := wanted[process]; !ok && complete {
			if err := s.removeBudget(ctx, process); err != nil {
				return err
			}
			delete(s.budgets, process)
		}
	}
	return nil
}

// tellReady sets the conditions of all Pods that changed, some at the same time.
func (s *states) tellReady(ctx context.Context, ready map[runtime.InstanceID]bool) error {
	var calls errgroup.Group
	calls.SetLimit(8)
	var mu sync.Mutex
	for id := range s.ready {
		if _, ok := ready[id]; !ok {
			delete(s.ready, id)
		}
	}
	told := maps.Clone(s.ready)
	for id, r := range ready {
		if told[id] == r {
			continue
		}
		calls.Go(func() error {
			if err := s.setReady(ctx, id, r); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			s.ready[id] = r
			return nil
		})
	}
	return calls.Wait()
}

// wanted returns which instances are ready, and how many instances of each process must
// keep running. One instance alone can be moved.
func (s *states) wanted() (ready map[runtime.InstanceID]bool, budgets map[string]int, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready, budgets = map[runtime.InstanceID]bool{}, map[string]int{}
	count := map[string]int{}
	for id, st := range s.slots {
		count[id.Process]++
		if st.Instance != "" && (st.State == runtime.Running || st.State == runtime.Starting) {
			ready[st.Instance] = st.Ready
		}
	}
	for process, n := range count {
		if n > 1 && labelValue(process) != "" {
			budgets[process] = n - 1
		}
	}
	return ready, budgets, s.complete
}

// setReady sets the condition of a Pod. It is not an error if the Pod is gone.
func (s *states) setReady(ctx context.Context, id runtime.InstanceID, ready bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{
		{Type: conditionReady, Status: status, LastTransitionTime: metav1.Now()},
	}}})
	if err != nil {
		return err
	}
	_, err = s.e.cfg.Client.CoreV1().Pods(s.e.cfg.Namespace).Patch(ctx, podName(id), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot set the condition %s of Pod %s: %w", conditionReady, podName(id), err)
	}
	return nil
}

func budgetName(process string) string { return "dew-" + process }

// readBudgets reads the budgets that exist: how many instances of each process must keep
// running, and -1 if a budget says something else.
func (s *states) readBudgets(ctx context.Context) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := s.e.cfg.Client.PolicyV1().PodDisruptionBudgets(s.e.cfg.Namespace).List(ctx, metav1.ListOptions{LabelSelector: s.e.selector()})
	if err != nil {
		return nil, fmt.Errorf("cannot list disruption budgets: %w", err)
	}
	found := map[string]int{}
	for i := range list.Items {
		b := &list.Items[i]
		found[b.Labels[labelProcess]] = -1
		if b.Spec.MinAvailable != nil {
			found[b.Labels[labelProcess]] = b.Spec.MinAvailable.IntValue()
		}
	}
	return found, nil
}

// RemoveBudgets removes all disruption budgets of this daemon.
func (e *Engine) RemoveBudgets(ctx context.Context) error {
	found, err := e.states.readBudgets(ctx)
	for process := range found {
		err = errors.Join(err, e.states.removeBudget(ctx, process))
	}
	return err
}

// setBudget creates or changes the budget of a process. A Pod that is not ready does not
// delay a drain.
func (s *states) setBudget(ctx context.Context, process string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	budgets := s.e.cfg.Client.PolicyV1().PodDisruptionBudgets(s.e.cfg.Namespace)
	labels := map[string]string{labelDaemon: s.e.cfg.Name, labelProcess: process}
	_, err := budgets.Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: budgetName(process), Labels: labels},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(int32(n))), Selector: &metav1.LabelSelector{MatchLabels: labels},
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		patch := fmt.Appendf(nil, `{"spec":{"minAvailable":%d}}`, n)
		_, err = budgets.Patch(ctx, budgetName(process), types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("cannot set the disruption budget of process %s: %w", process, err)
	}
	return nil
}

func (s *states) removeBudget(ctx context.Context, process string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := s.e.cfg.Client.PolicyV1().PodDisruptionBudgets(s.e.cfg.Namespace).Delete(ctx, budgetName(process), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot remove the disruption budget of process %s: %w", process, err)
	}
	return nil
}
