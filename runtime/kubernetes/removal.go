package kubernetes

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
)

// removal is why Kubernetes takes a Pod away. It is empty if Kubernetes does not.
type removal struct {
	cause  runtime.Cause
	detail string
}

// removalReasons are the reasons that Kubernetes gives in the condition DisruptionTarget,
// in words.
var removalReasons = map[string]string{
	"EvictionByEvictionAPI":              "someone evicted it, for example to drain its node",
	"PreemptionByScheduler":              "a Pod with a higher priority needs its place",
	"DeletionByTaintManager":             "its node is not ready, or no longer allows it",
	"DeletionByPodGC":                    "its node no longer exists",
	corev1.PodReasonTerminationByKubelet: "its node shuts down, or has too little memory or disk left",
}

// evictedReason is the status reason of a Pod that its node has evicted.
const evictedReason = "Evicted"

// removalOf returns why Kubernetes takes a Pod away.
func removalOf(p *corev1.Pod) removal {
	if p == nil || p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed {
		return removal{}
	}
	for _, cond := range p.Status.Conditions {
		if cond.Type != corev1.DisruptionTarget || cond.Status != corev1.ConditionTrue {
			continue
		}
		text := removalReasons[cond.Reason]
		if text == "" {
			text = cond.Reason + ": " + cond.Message
		}
		if cond.Reason == corev1.PodReasonTerminationByKubelet {
			text += ": " + cond.Message
		}
		if p.Spec.NodeName != "" {
			text += " (" + p.Spec.NodeName + ")"
		}
		return removal{runtime.CauseRemoved, text}
	}
	message := strings.TrimSpace(p.Status.Message)
	switch {
	case p.Status.Reason == evictedReason: // not because of others: they have the condition above
		return removal{runtime.CauseDiskFull, message}
	case p.Status.Reason != "":
		return removal{runtime.CauseRemoved, p.Status.Reason + ": " + message}
	case p.DeletionTimestamp != nil:
		return removal{runtime.CauseRemoved, "someone deleted it"}
	}
	return removal{}
}

// apply makes the removal the cause of an exit. An exit for lack of memory keeps its
// own.
func (r removal) apply(x runtime.Exit) runtime.Exit {
	if r.cause != "" && !x.OOM {
		x.Cause, x.Detail = r.cause, r.detail
	}
	return x
}

// removed has the steps of the end of a container that Kubernetes removes.
type removed struct{ *container }

// removalPatience is how much later than the exits Kubernetes can say why it stopped a
// Pod.
const removalPatience = 10 * time.Second

// awaitRemoval waits until Kubernetes says why it stopped the containers of the Pod.
func (c removed) awaitRemoval() (r removal) {
	ctx, cancel := context.WithTimeout(c.ctx, removalPatience)
	defer cancel()
	_ = c.await(ctx, func() bool { // without a reason the exit keeps its own cause
		if r = removalOf(c.pod); r.cause == "" && c.gone != "" {
			r = removal{runtime.CauseRemoved, "someone deleted it"}
		}
		return r.cause != ""
	})
	return r
}

// explainStop reports the exits of a Pod that Kubernetes stops, when it is known why. It
// reports main first, because the removal is about the whole instance.
func (c removed) explainStop() {
	r := c.awaitRemoval()
	ctx, cancel := context.WithTimeout(c.ctx, c.e.grace(c.spec)+exitPatience)
	defer cancel()
	_ = c.await(ctx, func() bool { // at the end of the time the exits so far are reported
		return !slices.ContainsFunc(c.procs, func(p *proc) bool { return !p.exited && p.stopped == nil })
	})
	c.mu.Lock()
	c.explaining = false // an exit that comes later starts it again
	var all []*proc
	for _, p := range c.procs {
		if p.stopped != nil && !p.exited {
			all = append(all, p)
		}
	}
	c.mu.Unlock()
	for _, p := range all {
		c.report(p, r.apply(*p.stopped))
	}
}

// silentNode reports the exits of a Pod that Kubernetes has given up. Its node does not
// answer, so nothing else will report them. An agent that is connected does.
func (c removed) silentNode(deleted time.Time) {
	if process.Sleep(c.ctx, time.Until(deleted)+exitPatience) != nil {
		return
	}
	if c.await(c.ctx, func() bool { return c.link == nil || c.left == 0 }) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left > 0 && !c.stopping.Load() {
		c.loseAll(removalOf(c.pod))
	}
}
