//go:build k8stest

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/kubernetes/install"
	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/runtime/kubernetes/lease"
	"github.com/dewrun/dew/testkit"
)

// role returns the rules of the Role in the manifests, for a daemon with another name.
func role(t *testing.T) []kubetest.Rule {
	t.Helper()
	all, err := install.Objects(install.Settings{Namespace: "dew"})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o["kind"] != "Role" {
			continue
		}
		b, err := json.Marshal(o["rules"])
		if err != nil {
			t.Fatal(err)
		}
		var rules []kubetest.Rule
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(b), "dew-agent", "dew-test-agent")), &rules); err != nil {
			t.Fatal(err)
		}
		return rules
	}
	t.Fatal("the manifests have no Role")
	return nil
}

// life does everything that dewd does in a namespace: it starts, starts again, and runs an
// instance. It returns the first error.
func (w *world) life() error {
	for range 2 { // create, then update
		l := lease.New(w.namespace, "test/1", slog.New(slog.DiscardHandler))
		if err := l.Take(w.Context(), w.client.CoordinationV1().Leases(w.namespace)); err != nil {
			return err
		}
		if err := l.Release(w.Context()); err != nil {
			return err
		}
		if err := w.tryOpen(); err != nil {
			return err
		}
	}
	testkit.Eventually(w, "the first watch", func() error { return w.watched() })
	if err := w.engine.Outage(); err != nil {
		return err
	}
	s := w.spec()
	s.Processes[0].Command = "sleep 1000"
	c, err := w.engine.Start(w.Context(), s)
	if err != nil {
		return err
	}
	return errors.Join(w.scale(), w.database(), c.Delete(context.WithoutCancel(w.Context())))
}

// database creates and enlarges the volume of a database, and removes it.
func (w *world) database() error {
	v := Volumes{Client: w.client, Namespace: w.namespace, Daemon: "dew-test"}
	want := runtime.Volume{Server: "server-of-the-test", Bytes: 1 << 30, Port: 5432}
	for range 2 { // create, then patch
		addr, err := v.Put(w.Context(), want)
		if err != nil {
			return err
		}
		if want.Address.IsValid() && addr != want.Address {
			return fmt.Errorf("the address changed from %s to %s", want.Address, addr)
		}
		want.Address = addr
	}
	return v.Remove(w.Context(), want.Server)
}

// scale tells Kubernetes about a process with 3, 2 and then 1 instances.
func (w *world) scale() error {
	for n := 3; n > 0; n-- {
		s := newStates(w.engine)
		s.complete = true
		for i := range n {
			id := runtime.SlotID{Process: "process-of-the-test", Index: i}
			s.slots[id] = runtime.Status{Slot: id, Instance: instance(i), State: runtime.Running, Ready: true}
		}
		if err := s.tell(w.Context()); err != nil {
			return err
		}
	}
	return nil
}

// watched returns an error until the engine has tried to watch its Pods: then there is a
// watch that receives the changes, or an outage.
func (w *world) watched() error {
	if w.engine.Outage() != nil {
		return nil
	}
	events, err := w.client.CoreV1().Pods(w.namespace).Watch(w.Context(), metav1.ListOptions{})
	if err != nil {
		return errors.New("no outage was reported yet")
	}
	events.Stop()
	return nil
}

// dewd needs every permission of its Role, and no other one.
func TestRole(t *testing.T) {
	full := role(t)
	t.Run("all", func(t *testing.T) {
		if err := worldWith(t, full).life(); err != nil {
			t.Errorf("the Role is not enough: %v", err)
		}
	})
	for i, rule := range full {
		for _, verb := range rule.Verbs {
			t.Run(fmt.Sprintf("without %s %s", verb, rule.Resources[0]), func(t *testing.T) {
				t.Parallel()
				rules := slices.Clone(full)
				rules[i].Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool { return v == verb })
				if len(rules[i].Verbs) == 0 {
					rules = slices.Delete(rules, i, i+1)
				}
				err := worldWith(t, rules).life()
				want := fmt.Sprintf("cannot %s resource %q", verb, rule.Resources[0])
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v, want %q: otherwise the permission is not needed", err, want)
				}
				t.Log(err)
			})
		}
	}
}

// worldWith returns a world whose daemon has only the permissions of the rules.
func worldWith(t *testing.T, rules []kubetest.Rule) *world {
	t.Helper()
	cluster := kubetest.Open(t)
	w := newClusterWorld(t)
	login := cluster.ServiceAccount(t, w.namespace, "limited", rules...)
	cfg, err := clientcmd.BuildConfigFromFlags("", login.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if w.client, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	return w
}
