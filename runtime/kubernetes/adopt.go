package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/capture"
	"github.com/dewrun/dew/runtime/containerd/names"
)

// Adopt finds the instances that an earlier daemon left, and removes those that never
// ran.
func (e *Engine) Adopt(ctx context.Context) ([]runtime.Container, error) {
	pods, err := e.pods(ctx)
	if err != nil {
		return nil, err
	}
	var found []runtime.Container
	var left []runtime.Unadopted
	for i := range pods {
		p := &pods[i]
		id := runtime.InstanceID(p.Labels[labelInstance])
		if e.find(id) != nil {
			continue
		}
		c, err := e.adopt(ctx, p)
		if errors.Is(err, names.ErrNewerFormat) {
			return nil, fmt.Errorf("cannot adopt Pod %s: %w", p.Name, err)
		}
		if err != nil {
			left = append(left, e.unadopted(p, err))
		}
		if c != nil {
			found = append(found, c)
		}
	}
	if len(left) > 0 {
		return found, &runtime.AdoptError{Left: left}
	}
	return found, nil
}

func (e *Engine) pods(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := e.cfg.Client.CoreV1().Pods(e.cfg.Namespace).List(ctx, metav1.ListOptions{LabelSelector: e.selector()})
	if err != nil {
		return nil, unavailable(fmt.Errorf("cannot list the Pods of namespace %s: %w", e.cfg.Namespace, err))
	}
	return list.Items, nil
}

// adopt takes over one Pod. It removes the Pod if its commands never ran.
func (e *Engine) adopt(ctx context.Context, p *corev1.Pod) (*container, error) {
	s, err := specOf(p)
	if err != nil {
		return nil, err
	}
	kind := p.Labels[labelKind]
	if s.StartedAt.IsZero() || kind == string(runtime.KindStaging) || kind == kindCrashFiles {
		e.log.Info("swept Pod", "pod", p.Name, "kind", kind, "started", !s.StartedAt.IsZero())
		return nil, errors.Join(e.deletePod(ctx, s.Instance, ptr.To(int64(0))), e.removeFiles(s.Instance, s.App))
	}
	given, err := e.readSettings(s.Instance)
	if err != nil {
		return nil, err
	}
	s.Stack.Shell = given.Shell
	for i := range s.Processes {
		for _, g := range given.Processes {
			if g.Exec == s.Processes[i].Exec {
				s.Processes[i].Dir, s.Processes[i].Env = g.Dir, g.Env
			}
		}
	}
	c, err := e.newContainer(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, proc := range c.procs {
		err := proc.Create()
		if err == nil {
			err = errors.Join(proc.openFiles(), proc.Follow(capture.Late))
		}
		if err != nil {
			c.detach()
			return nil, err
		}
	}
	e.add(c)
	c.mu.Lock()
	c.spawn(c.run)
	c.mu.Unlock()
	c.podChanged(p)
	return c, nil
}

// unadopted describes a Pod that could not be adopted, with functions to try again and
// to remove it.
func (e *Engine) unadopted(p *corev1.Pod, err error) runtime.Unadopted {
	id := runtime.InstanceID(p.Labels[labelInstance])
	u := runtime.Unadopted{Instance: id, App: p.Labels[labelApp], Err: err}
	if s, err := specOf(p); err == nil {
		u.App, u.Slot, u.Task, u.Address = s.App, s.Slot, s.Task, s.Address.Addr()
	}
	u.Retry = func(ctx context.Context) (runtime.Container, error) {
		pods, err := e.pods(ctx)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(pods, func(other corev1.Pod) bool { return other.Name == p.Name })
		if i < 0 {
			return nil, e.removeFiles(id, u.App)
		}
		c, err := e.adopt(ctx, &pods[i])
		if err != nil || c == nil {
			return nil, err
		}
		return c, nil
	}
	u.Remove = func(ctx context.Context) error {
		return errors.Join(e.deletePod(ctx, id, ptr.To(int64(0))), e.removeFiles(id, u.App))
	}
	return u
}

// Sweep removes all Pods and files of this daemon that belong to no instance in keep.
func (e *Engine) Sweep(ctx context.Context, keep map[runtime.InstanceID]bool) error {
	pods, err := e.pods(ctx)
	if err != nil {
		return err
	}
	var errs error
	for i := range pods {
		p := &pods[i]
		id := runtime.InstanceID(p.Labels[labelInstance])
		if keep[id] || p.Labels[labelKind] == kindCrashFiles && e.find(id) != nil {
			continue
		}
		e.log.Info("swept Pod", "pod", p.Name)
		if c := e.find(id); c != nil {
			errs = errors.Join(errs, c.Delete(ctx))
			continue
		}
		errs = errors.Join(errs, e.deletePod(ctx, id, ptr.To(int64(0))))
	}
	e.states.adopted() // all slots are known by now
	return errors.Join(errs, e.sweepCaptures(keep), e.crashed.sweep())
}

// sweepCaptures removes capture files whose instance is gone.
func (e *Engine) sweepCaptures(keep map[runtime.InstanceID]bool) error {
	apps, err := e.cfg.Logs.Apps()
	if err != nil {
		return fmt.Errorf("cannot list logs: %w", err)
	}
	var errs error
	for _, guid := range apps {
		l, err := e.cfg.Logs.App(guid)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		ids, err := l.Captures()
		errs = errors.Join(errs, err)
		for _, id := range ids {
			if !keep[runtime.InstanceID(id)] && e.find(runtime.InstanceID(id)) == nil {
				errs = errors.Join(errs, e.removeFiles(runtime.InstanceID(id), guid))
			}
		}
	}
	return errs
}
