package kubernetes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/kubernetes/link"
	"github.com/dewrun/dew/runtime/process"
)

func (e *Engine) selector() string { return labelDaemon + "=" + e.cfg.Name }

// list reads all Pods of this daemon and returns the version to watch from.
func (e *Engine) list(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pods, err := e.cfg.Client.CoreV1().Pods(e.cfg.Namespace).List(ctx, metav1.ListOptions{LabelSelector: e.selector()})
	if err != nil {
		return "", unavailable(fmt.Errorf("cannot list the Pods of namespace %s: %w", e.cfg.Namespace, err))
	}
	found := map[string]bool{}
	for i := range pods.Items {
		found[pods.Items[i].Name] = true
		e.podChanged(&pods.Items[i])
	}
	for _, c := range e.all() {
		c.mu.Lock()
		seen := c.pod != nil
		c.mu.Unlock()
		if seen && !found[podName(c.spec.Instance)] {
			c.podGone(removal{runtime.CauseRemoved, "someone deleted it while dewd was not watching"})
		}
	}
	return pods.ResourceVersion, nil
}

// watchPods follows all Pods of this daemon.
func (e *Engine) watchPods(version string) {
	for wait := 100 * time.Millisecond; e.ctx.Err() == nil; {
		err := e.watchFrom(version)
		if e.ctx.Err() != nil {
			return
		}
		if err == nil { // the API server ends a watch now and then
			if version, err = e.list(e.ctx); err == nil {
				e.setOutage(nil)
				wait = 100 * time.Millisecond
				continue
			}
		}
		e.setOutage(err)
		if process.Sleep(e.ctx, wait) != nil {
			return
		}
		wait = min(2*wait, 2*time.Second)
		if v, err := e.list(e.ctx); err == nil {
			version, wait = v, 100*time.Millisecond
			e.setOutage(nil)
		}
	}
}

// watchFrom follows changes after a version until the watch ends.
func (e *Engine) watchFrom(version string) error {
	w, err := e.cfg.Client.CoreV1().Pods(e.cfg.Namespace).Watch(e.ctx, metav1.ListOptions{LabelSelector: e.selector(), ResourceVersion: version})
	if err != nil {
		return fmt.Errorf("cannot watch the Pods of namespace %s: %w", e.cfg.Namespace, err)
	}
	defer w.Stop()
	e.setOutage(nil)
	for {
		select {
		case <-e.ctx.Done():
			return nil
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			p, isPod := event.Object.(*corev1.Pod)
			if !isPod {
				return nil // the version is too old
			}
			e.handle(event.Type, p)
		}
	}
}

// handle handles one change of a Pod.
func (e *Engine) handle(t watch.EventType, p *corev1.Pod) {
	if t != watch.Deleted {
		e.podChanged(p)
		return
	}
	if c := e.find(runtime.InstanceID(p.Labels[labelInstance])); c != nil {
		c.podGone(removalOf(p))
	}
}

func (e *Engine) podChanged(p *corev1.Pod) {
	if c := e.find(runtime.InstanceID(p.Labels[labelInstance])); c != nil {
		c.podChanged(p)
	}
}

// podChanged records the state of the Pod. If a container has terminated, its exit must
// be known.
func (c *container) podChanged(p *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pod != nil && c.pod.UID != p.UID {
		return
	}
	c.pod = small(p)
	c.broadcast()
	if c.ctx.Err() != nil || c.stopping.Load() || c.spec.StartedAt.IsZero() {
		return
	}
	for _, s := range p.Status.ContainerStatuses {
		for _, proc := range c.procs {
			if t := s.State.Terminated; s.Name == proc.Exec && t != nil && !proc.exited {
				c.spawn(func() { c.lost(proc, *t) })
			}
		}
	}
	switch {
	case p.Status.Phase == corev1.PodFailed && p.Status.Reason != "":
		c.loseAll(removalOf(p))
	case p.DeletionTimestamp != nil && !c.leaving:
		c.leaving = true
		close(c.removing)
		c.spawn(func() { removed{c}.silentNode(p.DeletionTimestamp.Time) })
	}
}

// small returns the part of a Pod that the engine reads later. With many instances the
// rest would use most of dewd's memory.
func small(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{}
	out.Name, out.UID, out.DeletionTimestamp = p.Name, p.UID, p.DeletionTimestamp
	out.Spec.NodeName = p.Spec.NodeName
	p.Status.DeepCopyInto(&out.Status)
	return out
}

// exitPatience is how long the report of a wrapper can be later than that of
// Kubernetes.
const exitPatience = 5 * time.Second

// lost reports the exit of a process whose wrapper was killed. Only Kubernetes knows of
// it.
func (c *container) lost(p *proc, t corev1.ContainerStateTerminated) {
	if process.Sleep(c.ctx, exitPatience) != nil {
		return
	}
	c.mu.Lock()
	exited := p.exited
	c.mu.Unlock()
	if exited {
		return
	}
	if agent, err := c.agent(c.ctx); err == nil {
		ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
		defer cancel()
		if err := agent.Call(ctx, link.PathLost+"?exec="+p.Exec, nil, nil); err != nil {
			c.e.log.Warn("cannot read the last output of a process", "instance", c.spec.Instance, "exec", p.Exec, "err", err)
		}
	}
	x := runtime.Exit{
		Exec: p.Exec, Name: p.Name, Source: p.Source, Code: int(t.ExitCode), At: t.FinishedAt.Time, Cause: runtime.CauseRuntimeLost,
		Detail: "its wrapper was killed, and with it the exit status", OOM: t.Reason == "OOMKilled", Memory: runtime.Memory{Limit: p.Memory},
	}
	if x.OOM {
		x.Cause, x.Detail = runtime.CauseOutOfMemory, ""
	}
	c.mu.Lock()
	r := removalOf(c.pod)
	c.mu.Unlock()
	c.report(p, r.apply(x))
}

// podGone reports that the Pod no longer exists.
func (c *container) podGone(why removal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != "" {
		return
	}
	if why.cause == "" { // Kubernetes did not say why before it was gone
		why = removal{runtime.CauseRemoved, "someone deleted it"}
	}
	c.gone = "Kubernetes removed its Pod: " + why.detail
	c.broadcast()
	if c.ctx.Err() == nil && !c.stopping.Load() {
		c.loseAll(why)
	}
	if c.stopping.Load() {
		for _, p := range c.procs {
			c.abandonOutput(p)
		}
	}
}

// loseAll reports the exit of every process that has not exited. The caller holds c.mu.
func (c *container) loseAll(why removal) {
	for _, p := range c.procs {
		c.abandonOutput(p)
	}
	c.spawn(func() {
		for _, p := range c.procs {
			c.mu.Lock()
			x := p.stopped
			c.mu.Unlock()
			if x == nil {
				x = &runtime.Exit{
					Exec: p.Exec, Name: p.Name, Source: p.Source, Code: -1, At: time.Now(), Cause: runtime.CauseRuntimeLost,
					Memory: runtime.Memory{Limit: p.Memory},
				}
			}
			c.report(p, why.apply(*x))
		}
	})
}

// abandonOutput reads the output that is here to its end: no more will come. The caller
// holds c.mu.
func (c *container) abandonOutput(p *proc) {
	if !p.ended {
		p.ended = true
		c.spawn(func() { c.finish(p) })
	}
}
