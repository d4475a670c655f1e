//go:build k8stest

package kubernetes

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/testkit"
)

// counting prints numbered lines for a few seconds, and then one last line.
const counting = `i=0; while [ $i -lt 100 ]; do seq $((i*100+1)) $((i*100+100)); i=$((i+1)); sleep 0.05; done; echo all; sleep 1000`

// start starts an instance with commands for main and a sidecar.
func (w *world) start(main, sidecar string) runtime.Container {
	w.Helper()
	s := w.spec()
	s.Slot = runtime.SlotID{Process: "process-of-the-test", Index: w.specs}
	s.Processes[0].Command = main
	side := s.Processes[0]
	side.Exec, side.Name, side.Source, side.Command = runtime.SidecarExec(0), "side", "APP/PROC/WEB/SIDECAR/SIDE", sidecar
	s.Processes = append(s.Processes, side)
	c, err := w.engine.Start(w.Context(), s)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// processOf finds the process of the machine whose arguments contain all the texts.
func processOf(t *testing.T, texts ...string) int {
	t.Helper()
	found := 0
	testkit.Eventually(t, "a process with "+strings.Join(texts, " "), func() error {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return testkit.Finally(err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				continue // it has exited
			}
			line, all := string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})), true
			for _, text := range texts {
				all = all && strings.Contains(line, text)
			}
			if all {
				found, err = strconv.Atoi(filepath.Base(filepath.Dir(file)))
				return err
			}
		}
		return errors.New("there is none")
	})
	return found
}

// exits returns the next n exits by their process.
func (w *world) exits(c runtime.Container, n int) map[string]runtime.Exit {
	w.Helper()
	out := map[string]runtime.Exit{}
	for range n {
		select {
		case x, ok := <-c.Exits():
			if !ok {
				w.Fatalf("there are no more exits after %v", out)
			}
			out[x.Exec] = x
		case <-w.Context().Done():
			w.Fatal("no exit was reported")
		}
	}
	return out
}

// wantAllLines waits until the app has printed everything and checks that every line is
// in the log, once.
func (w *world) wantAllLines(c runtime.Container) {
	w.Helper()
	var texts []string
	testkit.Eventually(w, "all lines are in the log", func() error {
		texts = nil
		for _, e := range w.lines(c.Spec().App) {
			if e.Source.InstanceID == string(c.Spec().Instance) && e.Exec == runtime.MainExec {
				texts = append(texts, string(e.Text))
			}
		}
		if len(texts) == 0 || texts[len(texts)-1] != "all" {
			return errors.New("the last line is missing: " + strconv.Itoa(len(texts)))
		}
		return nil
	})
	for i, text := range texts[:len(texts)-1] {
		if text != strconv.Itoa(i+1) {
			w.Fatalf("line %d is %q", i+1, text)
		}
	}
	if len(texts) != 10_001 {
		w.Errorf("%d lines, want 10001", len(texts))
	}
}

// An agent that is killed again and again loses no line, and no exit.
func TestAgentKilled(t *testing.T) {
	w := newClusterWorld(t)
	w.open()
	c := w.start(counting, "sleep 1000")
	for range 2 {
		pid := processOf(t, "agent", "--instance "+string(c.Spec().Instance))
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testkit.EventuallyTrue(t, "Kubernetes has started the agent again", func() bool {
			return processOf(t, "agent", "--instance "+string(c.Spec().Instance)) != pid
		})
	}
	w.wantAllLines(c)
	testkit.Eventually(t, "the signal arrives", func() error { return c.Signal(t.Context(), syscall.SIGTERM, runtime.SidecarExec(0)) })
	if x := w.exits(c, 1)[runtime.SidecarExec(0)]; x.Code != 143 {
		t.Errorf("exit = %+v, want that of the sidecar", x)
	}
	if err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

// The death of a wrapper is an exit of its process alone.
func TestWrapperKilled(t *testing.T) {
	w := newClusterWorld(t)
	w.open()
	c := w.start("sleep 1000", "sleep 1234")
	spec := c.Spec()
	// The wrapper is the parent of the parent-less command of this Pod.
	pid := processOf(t, "sleep 1234")
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	parent, err := strconv.Atoi(strings.Fields(string(stat))[3])
	if err != nil {
		t.Fatal(err)
	}
	for { // a shell can be between them
		b, err := os.ReadFile("/proc/" + strconv.Itoa(parent) + "/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("dew-pod")) {
			break
		}
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(parent) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		if parent, err = strconv.Atoi(strings.Fields(string(stat))[3]); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	x := w.exits(c, 1)[runtime.SidecarExec(0)]
	if x.Code != 137 || x.Cause != runtime.CauseRuntimeLost || x.Name != "side" {
		t.Errorf("exit of %s = %+v, want 137", spec.Instance, x)
	}
	select {
	case x := <-c.Exits():
		t.Errorf("exit of %s, want none", x.Exec)
	default:
	}
	if _, err := c.Reap(t.Context(), runtime.SidecarExec(0)); err != nil {
		t.Error(err)
	}
	if err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

// Someone else deletes a Pod: every process has an exit, and no line is lost.
func TestPodDeleted(t *testing.T) {
	w := newClusterWorld(t)
	w.open()
	c := w.start(`trap 'echo leaving; exit 3' TERM; echo ready; while :; do sleep 0.1; done`, "sleep 1000")
	testkit.EventuallyTrue(t, "the app is ready", func() bool { return w.printed(c, "ready") })
	err := w.client.CoreV1().Pods(w.namespace).Delete(t.Context(), podName(c.Spec().Instance), metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	xs := w.exits(c, 2)
	if xs[runtime.MainExec].Code != 3 || xs[runtime.SidecarExec(0)].Code != 143 {
		t.Errorf("exits = %+v, want 3 and 143", xs)
	}
	wantRemoved(t, xs, "someone deleted it")
	last, err := c.Reap(t.Context(), runtime.MainExec)
	if err != nil {
		t.Fatal(err)
	}
	found := w.printed(c, "leaving")
	for _, e := range last {
		found = found || string(e.Text) == "leaving"
	}
	if !found {
		t.Errorf("the last line is missing: %v", last)
	}
	if err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

func (w *world) printed(c runtime.Container, text string) bool {
	for _, e := range w.lines(c.Spec().App) {
		if e.Source.InstanceID == string(c.Spec().Instance) && string(e.Text) == text {
			return true
		}
	}
	return false
}

// Killed components of the cluster do not disturb running instances.
func TestComponentsKilled(t *testing.T) {
	w := newClusterWorld(t)
	cluster := kubetest.Open(t)
	w.open()
	c := w.start(counting, "sleep 1000")
	p, err := w.client.CoreV1().Pods(w.namespace).Get(t.Context(), podName(c.Spec().Instance), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node := p.Spec.NodeName
	cluster.Kill(t, node, kubetest.Kubelet)
	cluster.Kill(t, node, kubetest.Containerd)
	cluster.Kill(t, kubetest.Control, kubetest.Etcd)
	w.wantAllLines(c)
	if err := c.Signal(t.Context(), syscall.SIGKILL, runtime.MainExec); err != nil {
		t.Fatal(err)
	}
	if x := w.exits(c, 1)[runtime.MainExec]; x.Code != 137 || x.Cause != runtime.CauseExited {
		t.Errorf("exit = %+v, want that of main", x)
	}
	testkit.Eventually(t, "the Pod is deleted", func() error { return c.Delete(t.Context()) })
}

// While the API server is away, running instances are watched through their agents.
func TestAPIServerAway(t *testing.T) {
	w := newClusterWorld(t)
	cluster := kubetest.Open(t)
	w.open()
	c := w.start("sleep 1000", "sleep 1000")
	cluster.Stop(t, kubetest.Control, kubetest.APIServer)
	testkit.EventuallyTrue(t, "the engine reports the outage", func() bool { return w.engine.Outage() != nil })
	if err := c.Signal(t.Context(), syscall.SIGKILL, runtime.SidecarExec(0)); err != nil {
		t.Error(err)
	}
	if x := w.exits(c, 1)[runtime.SidecarExec(0)]; x.Code != 137 {
		t.Errorf("exit = %+v, want that of the sidecar", x)
	}
	if err := c.Delete(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Delete = %v, want that the cluster is not available", err)
	}
	cluster.Start(t, kubetest.Control, kubetest.APIServer)
	testkit.EventuallyTrue(t, "the outage has ended", func() bool { return w.engine.Outage() == nil })
	testkit.Eventually(t, "the Pod is deleted", func() error { return c.Delete(t.Context()) })
}
