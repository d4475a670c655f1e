package kubernetes

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dewrun/dew/runtime"
)

func TestRemovalOf(t *testing.T) {
	disrupted := func(reason, message string) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message}}
	}
	for _, row := range []struct {
		name    string
		deleted bool
		status  corev1.PodStatus
		want    removal
	}{
		{name: "running", status: corev1.PodStatus{Phase: corev1.PodRunning}},
		{name: "exited", status: corev1.PodStatus{Phase: corev1.PodFailed}},
		{name: "deleted", deleted: true, want: removal{runtime.CauseRemoved, "someone deleted it"}},
		{name: "an eviction that was not carried out", status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: disrupted("EvictionByEvictionAPI", "")}},
		{
			name: "drained", deleted: true, status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: disrupted("EvictionByEvictionAPI", "Eviction API: evicting")},
			want: removal{runtime.CauseRemoved, "someone evicted it, for example to drain its node (one)"},
		},
		{
			name: "node low on memory", status: corev1.PodStatus{
				Phase: corev1.PodFailed, Reason: evictedReason, Message: "The node was low on resource: memory.",
				Conditions: disrupted(corev1.PodReasonTerminationByKubelet, "The node was low on resource: memory."),
			},
			want: removal{runtime.CauseRemoved, "its node shuts down, or has too little memory or disk left: The node was low on resource: memory. (one)"},
		},
		{
			name: "own disk usage", status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: evictedReason, Message: `Usage of EmptyDir volume "home" exceeds the limit "16Mi". `},
			want: removal{runtime.CauseDiskFull, `Usage of EmptyDir volume "home" exceeds the limit "16Mi".`},
		},
		{
			name: "unknown reason", deleted: true, status: corev1.PodStatus{Conditions: disrupted("SomethingNew", "it moved")},
			want: removal{runtime.CauseRemoved, "SomethingNew: it moved (one)"},
		},
		{
			name: "refused by the node", status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfmemory", Message: "Node didn't have enough resource"},
			want: removal{runtime.CauseRemoved, "OutOfmemory: Node didn't have enough resource"},
		},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "one"}, Status: row.status}
		if row.deleted {
			p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		if got := removalOf(p); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.name, got, row.want)
		}
	}
	if got := removalOf(nil); got != (removal{}) {
		t.Errorf("without a Pod: %+v", got)
	}
}

// A process that ran out of memory keeps its own cause.
func TestRemovalKeepsOutOfMemory(t *testing.T) {
	x := removal{runtime.CauseRemoved, "someone deleted it"}.apply(runtime.Exit{Cause: runtime.CauseOutOfMemory, OOM: true})
	if x.Cause != runtime.CauseOutOfMemory {
		t.Errorf("cause = %s", x.Cause)
	}
}
