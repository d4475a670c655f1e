package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/capture"
	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/kubernetes/link"
)

// Start creates the Pod of s and starts all its processes.
func (e *Engine) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	if !s.Instance.Valid() {
		return nil, fmt.Errorf("cannot start: %q is not a valid instance id", s.Instance)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	s, err := withConfiguration(s)
	if err != nil {
		return nil, startError(err)
	}
	c, err := e.create(ctx, s, string(s.Kind), starting.launch)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// starting has the steps of the start of a container.
type starting struct{ *container }

// create creates a Pod and makes it ready. If that fails, it leaves nothing behind.
func (e *Engine) create(ctx context.Context, s runtime.Spec, kind string, ready func(starting, context.Context) error) (*container, error) {
	started, err := e.newContainer(ctx, s)
	if err != nil {
		return nil, startError(err)
	}
	c := starting{started}
	if err = c.build(ctx, kind); err == nil {
		limited, cancel := context.WithTimeout(ctx, e.cfg.StartLimit)
		err = ready(c, limited)
		cancel()
	}
	if err == nil {
		return c.container, nil
	}
	err = c.explain(err)
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	c.stopping.Store(true)
	if derr := e.deletePod(clean, s.Instance, ptr.To(int64(0))); derr != nil {
		e.log.Warn("cannot clean up after a failed start; the next sweep tries again", "instance", s.Instance, "err", derr)
	}
	c.detach()
	e.forget(c.container)
	if rerr := e.removeFiles(s.Instance, s.App); rerr != nil {
		e.log.Warn("cannot remove the files of a failed start", "instance", s.Instance, "err", rerr)
	}
	return nil, startError(err)
}

// startError decides whether the cluster failed, or the instance.
func startError(err error) error {
	if se := (*runtime.StartError)(nil); errors.As(err, &se) {
		return se
	}
	if pe := (*runtime.PlacementError)(nil); errors.As(err, &pe) {
		return pe
	}
	if errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, context.Canceled) {
		return err
	}
	return &runtime.StartError{Reason: strings.Join(strings.Fields(err.Error()), " "), Err: err}
}

// build creates everything of an instance up to its Pod.
func (c starting) build(ctx context.Context, kind string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, s := c.e, c.spec
	if err := supported(s); err != nil {
		return err
	}
	image, err := e.stackImage(s.Stack)
	if err != nil {
		return err
	}
	if s.Image != "" { // find out before the Pod exists
		r, err := e.cfg.Droplet(s.Image)
		if err != nil {
			return fmt.Errorf("cannot open the droplet: %w", err)
		}
		_ = r.Close() // only opened
	}
	for _, p := range c.procs {
		if err := p.Create(); err != nil {
			return err
		}
		if err := errors.Join(p.openFiles(), p.Follow(capture.OnTime)); err != nil {
			return err
		}
	}
	if err := c.writeSettings(); err != nil {
		return err
	}
	e.add(c.container)
	c.mu.Lock()
	c.spawn(c.run)
	c.mu.Unlock()
	// The end of a start does not cancel the call: otherwise the cluster could create the
	// Pod after create has deleted it.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	pods := e.cfg.Client.CoreV1().Pods(e.cfg.Namespace)
	if _, err := pods.Create(call, podTemplate{e}.pod(s, kind, image), metav1.CreateOptions{}); err != nil {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("cannot create the Pod: %w", err)
		}
		return unavailable(fmt.Errorf("cannot create the Pod: %w", err))
	}
	if err := ctx.Err(); err != nil { // create deletes the Pod
		return unavailable(fmt.Errorf("the start ended before the Pod was created: %w", err))
	}
	return nil
}

// supported refuses what Pods cannot have.
func supported(s runtime.Spec) error {
	for _, p := range s.Processes {
		if p.User != nil && p.User.UID == 0 {
			return &runtime.StartError{Exec: p.Exec, Source: p.Source, Reason: "the image runs as root, which Pods are not allowed to (set another USER in the image)"}
		}
	}
	return nil
}

// launch unpacks the droplet and starts the processes, once the agent is connected.
func (c starting) launch(ctx context.Context) error {
	agent, err := c.firstLink(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(c.unpack(ctx, agent), c.unpackLayers(ctx, agent)); err != nil {
		return err
	}
	if err := agent.Call(ctx, link.PathReady, nil, nil); err != nil {
		return err
	}
	c.mu.Lock()
	c.spec.StartedAt = time.Now()
	c.mu.Unlock()
	// From here on commands run: the next daemon must not remove them.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotationStarted: c.spec.StartedAt.Format(time.RFC3339Nano)}}})
	if err != nil {
		return err
	}
	if _, err := c.e.cfg.Client.CoreV1().Pods(c.e.cfg.Namespace).Patch(ctx, podName(c.spec.Instance), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return unavailable(fmt.Errorf("cannot record the start of the Pod: %w", err))
	}
	start := link.Start{Files: c.spec.Files, FilesDir: filesDir(c.spec)}
	for _, p := range c.procs {
		start.Processes = append(start.Processes, link.Process{Exec: p.Exec, Args: launchArgs(p.ProcessSpec, c.spec.Stack.Shell), Dir: p.Dir, Env: p.Env})
	}
	err = agent.Call(ctx, link.PathStart, start, nil)
	if le := (*link.Error)(nil); errors.As(err, &le) {
		for _, p := range c.procs {
			if p.Exec == le.Exec {
				return &runtime.StartError{Exec: p.Exec, Source: p.Source, Reason: le.Text, Err: err}
			}
		}
	}
	return err
}

// launchArgs returns the arguments of dew-init for a process.
func launchArgs(p runtime.ProcessSpec, shell string) []string {
	switch {
	case len(p.Args) > 0:
		return append([]string{"launch", "--exec", "--"}, p.Args...)
	case p.User != nil:
		return []string{"launch", "--no-profile", "--shell", shell, "--", p.Command}
	default:
		return []string{"launch", "--shell", shell, "--", p.Command}
	}
}

// unpack sends the droplet to the Pod.
func (c starting) unpack(ctx context.Context, agent *link.Client) error {
	if c.spec.Image == "" {
		return nil
	}
	r, err := c.e.cfg.Droplet(c.spec.Image)
	if err != nil {
		return err
	}
	defer r.Close()
	return agent.Send(ctx, link.PathTree+"?exec="+runtime.MainExec, r)
}

// unpackLayers sends the files of a build to the Pod.
func (c starting) unpackLayers(ctx context.Context, agent *link.Client) error {
	for _, l := range c.spec.Layers {
		r, err := l.Open()
		if err != nil {
			return err
		}
		q := url.Values{"exec": {runtime.MainExec}, "dir": {l.Path}, "strip": {l.Strip}}
		err = errors.Join(agent.Send(ctx, link.PathTree+"?"+q.Encode(), r), r.Close())
		if err != nil {
			return fmt.Errorf("cannot unpack %s: %w", l.Path, err)
		}
	}
	return nil
}

// firstLink waits until the agent of a new Pod is connected, or the Pod cannot start.
func (c starting) firstLink(ctx context.Context) (*link.Client, error) {
	var l *link.Client
	var failed error
	err := c.await(ctx, func() bool {
		l = c.link
		if c.pod != nil {
			failed = cannotStart(c.pod)
		}
		if c.gone != "" {
			failed = unavailable(errors.New(c.gone))
		}
		return l != nil || failed != nil
	})
	if failed != nil {
		return nil, failed
	}
	return l, err
}

// cannotStart returns why a Pod cannot start without a change by someone, or nil.
func cannotStart(p *corev1.Pod) error {
	if r := removalOf(p); r.cause != "" {
		return unavailable(fmt.Errorf("the cluster removed the Pod: %s", r.detail))
	}
	for _, s := range p.Status.ContainerStatuses {
		w := s.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "ErrImageNeverPull", "InvalidImageName", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return fmt.Errorf("the cluster cannot start container %s: %s: %s", s.Name, w.Reason, w.Message)
		}
	}
	return nil
}

// explain adds to an error what Kubernetes says about a Pod that did not start.
func (c starting) explain(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	c.mu.Lock()
	p := c.pod
	c.mu.Unlock()
	if p == nil {
		return unavailable(errors.New("the cluster has not reported the Pod"))
	}
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
			return &runtime.PlacementError{Reason: "insufficient resources: " + cond.Message}
		}
	}
	return unavailable(fmt.Errorf("the Pod was not ready after %s", c.e.cfg.StartLimit))
}

// settings has what the next daemon needs to open sessions in an instance. It is not in
// the Pod, because the environment contains secrets.
type settings struct {
	Shell     string            `json:"shell"`
	Image     string            `json:"image"` // of the stack
	Processes []processSettings `json:"processes"`
}

// processSettings has the settings that one process was started with.
type processSettings struct {
	Exec string   `json:"exec"`
	Name string   `json:"name"`
	Dir  string   `json:"dir"`
	Env  []string `json:"env"`
}

func (e *Engine) settingsFile(id runtime.InstanceID) string {
	return filepath.Join(e.settingsDir(), string(id)+".json")
}

func (c starting) writeSettings() error {
	image, err := c.e.stackImage(c.spec.Stack)
	if err != nil {
		return err
	}
	v := settings{Shell: c.spec.Stack.Shell, Image: image}
	for _, p := range c.spec.Processes {
		v.Processes = append(v.Processes, processSettings{p.Exec, p.Name, p.Dir, p.Env})
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := runfile.Write(c.e.settingsFile(c.spec.Instance), string(b), 0o600); err != nil {
		return fmt.Errorf("cannot store the settings of the instance: %w", err)
	}
	return nil
}

// readSettings reads the settings of an instance. Without a file they are empty.
func (e *Engine) readSettings(id runtime.InstanceID) (settings, error) {
	var v settings
	b, err := os.ReadFile(e.settingsFile(id))
	if errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		return v, fmt.Errorf("cannot read the settings of instance %s: %w", id, err)
	}
	return v, nil
}

// removeFiles removes what dewd stored for an instance that no longer exists.
func (e *Engine) removeFiles(id runtime.InstanceID, app string) error {
	err := os.Remove(e.settingsFile(id))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	l, lerr := e.cfg.Logs.App(app)
	if lerr != nil {
		return errors.Join(err, lerr)
	}
	return errors.Join(err, l.RemoveCapture(string(id)))
}
