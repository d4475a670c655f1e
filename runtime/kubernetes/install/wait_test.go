package install

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

// daemonPod returns the Pod of dewd in a revision, with a status.
func daemonPod(revision string, status corev1.PodStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podOf, Namespace: "dew", Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}},
		Status:     status,
	}
}

func waiting(restarts int32, reason, message string) corev1.PodStatus {
	return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Image: "registry/dewd:1", RestartCount: restarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}
}

var ready = corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}

// clusterWith returns a cluster with a StatefulSet in revision 2 and a Pod.
func clusterWith(pod *corev1.Pod) (Cluster, *strings.Builder) {
	objects := []runtime.Object{&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: daemonName, Namespace: "dew"}, Status: appsv1.StatefulSetStatus{UpdateRevision: "2"},
	}}
	if pod != nil {
		objects = append(objects, pod)
	}
	said := &strings.Builder{}
	return Cluster{Client: fake.NewClientset(objects...), Say: func(format string, args ...any) { fmt.Fprintf(said, format+"\n", args...) }}, said
}

// Each state of the Pod has a text, and those that the user must fix are errors.
func TestState(t *testing.T) {
	unscheduled := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no volume"}}}
	for _, tt := range []struct {
		name       string
		pod        *corev1.Pod
		state, err string
	}{
		{"no Pod", nil, "has not created its Pod", ""},
		{"ready", daemonPod("2", ready), "", ""},
		{"the last revision", daemonPod("1", ready), "replaces its Pod", ""},
		{"no node", daemonPod("2", unscheduled), "no node can run it: no volume", ""},
		{"not started", daemonPod("2", corev1.PodStatus{}), "has not started", ""},
		{"starting", daemonPod("2", waiting(0, "ContainerCreating", "")), "ContainerCreating", ""},
		{"not ready", daemonPod("2", corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{}}}), "does not answer yet", ""},
		{"no image", daemonPod("2", waiting(0, "ImagePullBackOff", "not found")), "", "cannot pull the image registry/dewd:1: not found"},
		{"wrong configuration", daemonPod("2", waiting(0, "CreateContainerConfigError", "no secret")), "", "cannot start the Pod dewd-0: no secret"},
		{"first exit", daemonPod("2", waiting(1, "CrashLoopBackOff", "")), "CrashLoopBackOff", ""},
		{"exits", daemonPod("2", waiting(3, "CrashLoopBackOff", "")), "", "it has exited 3 times. Its last lines:\nfake logs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := clusterWith(tt.pod)
			state, err := c.state(t.Context(), "dew")
			if !strings.Contains(state, tt.state) || (state == "") != (tt.state == "") {
				t.Errorf("state = %q, want %q", state, tt.state)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error = %v, want %q", err, tt.err)
			}
		})
	}
}

// Kubernetes does not replace an outdated Pod that is not ready: install deletes it.
func TestReplace(t *testing.T) {
	for name, tt := range map[string]struct {
		status corev1.PodStatus
		stays  bool
	}{"not ready": {waiting(5, "CrashLoopBackOff", ""), false}, "ready": {ready, true}} {
		c, _ := clusterWith(daemonPod("1", tt.status))
		if _, err := c.state(t.Context(), "dew"); err != nil {
			t.Error(err)
		}
		_, err := c.Client.CoreV1().Pods("dew").Get(t.Context(), podOf, metav1.GetOptions{})
		if (err == nil) != tt.stays {
			t.Errorf("%s: the Pod: %v, want that it stays: %t", name, err, tt.stays)
		}
	}
}

// After the time limit, the error has the last state, which was printed once.
func TestWaitTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, said := clusterWith(nil)
		err := c.Wait(ctx, "dew")
		if err == nil || !strings.Contains(err.Error(), "not ready in time: Kubernetes has not created its Pod yet") || !strings.Contains(err.Error(), "describe pod dewd-0") {
			t.Errorf("error = %v, want the state", err)
		}
		if strings.Count(said.String(), "\n") != 1 {
			t.Errorf("said:\n%s", said)
		}
	})
}
