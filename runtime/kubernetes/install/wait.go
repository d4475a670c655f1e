package install

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dewrun/dew/runtime/process"
)

const (
	// pollTime is the time between two looks at the cluster.
	pollTime = 500 * time.Millisecond
	// lastLines is how many lines of dewd's log an error shows.
	lastLines = 5
	// maxRestarts is how often dewd can fail before the installation fails.
	maxRestarts = 2
)

// podOf is the Pod of dewd.
const podOf = daemonName + "-0"

// Wait waits until the installed dewd is ready. It returns an error if that needs a change
// by the user.
func (c Cluster) Wait(ctx context.Context, namespace string) error {
	said := ""
	for {
		state, err := c.state(ctx, namespace)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && state == "" {
			return nil
		}
		if state != "" && state != said {
			c.Say("Waiting until dewd is ready: %s", state)
			said = state
		}
		if process.Sleep(ctx, pollTime) != nil {
			return fmt.Errorf("dewd is not ready in time: %s (kubectl --namespace %s describe pod %s shows more)", said, namespace, podOf)
		}
	}
}

// state returns what dewd waits for, or nothing if it is ready.
func (c Cluster) state(ctx context.Context, namespace string) (string, error) {
	set, err := c.Client.AppsV1().StatefulSets(namespace).Get(ctx, daemonName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("cannot read the StatefulSet %s: %w", daemonName, err)
	}
	pod, err := c.Client.CoreV1().Pods(namespace).Get(ctx, podOf, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "Kubernetes has not created its Pod yet", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the Pod %s: %w", podOf, err)
	}
	if set.Status.ObservedGeneration < set.Generation || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != set.Status.UpdateRevision {
		return "Kubernetes replaces its Pod", c.replace(ctx, pod, set)
	}
	if isReady(pod) {
		return "", nil
	}
	return c.explain(ctx, pod)
}

// replace deletes an outdated Pod that is not ready, because Kubernetes does not do that.
func (c Cluster) replace(ctx context.Context, pod *corev1.Pod, set *appsv1.StatefulSet) error {
	if set.Status.ObservedGeneration < set.Generation || isReady(pod) || pod.DeletionTimestamp != nil {
		return nil
	}
	err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot replace the Pod %s: %w", pod.Name, err)
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// explain says why the Pod of dewd is not ready. The error is for what waiting does not
// help.
func (c Cluster) explain(ctx context.Context, pod *corev1.Pod) (string, error) {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
			return "no node can run it: " + cond.Message, nil
		}
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		return "its Pod has not started", nil
	}
	s := pod.Status.ContainerStatuses[0]
	if s.RestartCount > maxRestarts {
		return "", fmt.Errorf("dewd does not start: it has exited %d times%s", s.RestartCount, c.lastLog(ctx, pod))
	}
	w := s.State.Waiting
	if w == nil {
		return "its Pod runs and does not answer yet", nil
	}
	switch w.Reason {
	case "ImagePullBackOff", "InvalidImageName":
		return "", fmt.Errorf("the node cannot pull the image %s: %s (the nodes must reach the registry; if it needs a login, use --registry-config or --pull-secret)", s.Image, w.Message)
	case "CreateContainerConfigError", "CreateContainerError":
		return "", fmt.Errorf("the node cannot start the Pod %s: %s", pod.Name, w.Message)
	}
	return strings.TrimSpace(w.Reason + " " + w.Message), nil
}

// lastLog returns the last lines of the log of dewd, as a part of an error.
func (c Cluster) lastLog(ctx context.Context, pod *corev1.Pod) string {
	for _, previous := range []bool{true, false} {
		o := &corev1.PodLogOptions{Container: daemonName, Previous: previous, TailLines: ptr.To(int64(lastLines))}
		r, err := c.Client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, o).Stream(ctx)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(r, 64<<10))
		r.Close()
		if err == nil && len(data) > 0 {
			return ". Its last lines:\n" + strings.TrimSpace(string(data))
		}
	}
	return ""
}
