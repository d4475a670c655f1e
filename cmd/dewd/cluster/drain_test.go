//go:build k8stest

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// The conditions of Pods: that of Kubernetes, and that of dewd, on which it depends.
const (
	podReady      = "Ready"
	instanceReady = "run.dew/ready"
)

// podStates returns the nodes of all instances, and how many of them have a condition.
func (w *world) podStates(ctx context.Context, condition string) (nodes map[string]int, ready int, err error) {
	var list struct {
		Items []struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct{ NodeName string }
			Status   struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	err = w.cluster.Do(ctx, http.MethodGet, "/api/v1/namespaces/"+w.namespace+"/pods", nil, &list)
	nodes = map[string]int{}
	for _, p := range list.Items {
		if p.Metadata.Labels["run.dew/kind"] != "instance" {
			continue
		}
		nodes[p.Spec.NodeName]++
		for _, c := range p.Status.Conditions {
			if c.Type == condition && c.Status == "True" {
				ready++
			}
		}
	}
	return nodes, ready, err
}

// wantReady waits until as many instances have a condition.
func (w *world) wantReady(n int, condition string) {
	w.Helper()
	testkit.Eventually(w, fmt.Sprintf("%d instances are ready", n), func() error {
		_, ready, err := w.podStates(w.Context(), condition)
		if err == nil && ready != n {
			err = fmt.Errorf("%d are ready", ready)
		}
		return err
	})
}

// watchReady records the smallest number of ready instances until the returned function
// is called.
func (w *world) watchReady() func() int {
	ctx, cancel := context.WithCancel(w.Context())
	least := 1 << 20
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			if _, ready, err := w.podStates(ctx, podReady); err == nil {
				least = min(least, ready)
			}
		}
	})
	return func() int {
		cancel()
		work.Wait()
		return least
	}
}

// A node is drained while users send requests: all instances but one keep running, no
// request fails, and nothing counts as a crash.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	w.push()
	w.must("scale", "sample", "-i", "3")
	w.wantReady(3, podReady)
	nodes, _, err := w.podStates(t.Context(), podReady)
	if err != nil || len(nodes) != 2 {
		t.Fatalf("instances on %v (%v), want them on two nodes", nodes, err)
	}
	node, most := "", 0
	for name, n := range nodes {
		if n > most {
			node, most = name, n
		}
	}
	stop, least := w.load(), w.watchReady()
	w.cluster.Drain(t, node)
	w.wantReady(3, podReady)
	if n := least(); n < 2 {
		t.Errorf("only %d instances were ready at one time, want at least 2 of 3", n)
	}
	stop()
	var crashes []struct {
		Count   int
		Verdict struct{ Class, Sentence string }
	}
	if err := json.Unmarshal([]byte(w.must("crashes", "sample", "--all", "--json")), &crashes); err != nil {
		t.Fatal(err)
	}
	if len(crashes) != most {
		t.Errorf("%d records, want one for each of the %d instances on %s", len(crashes), most, node)
	}
	for _, c := range crashes {
		if c.Count != 0 || c.Verdict.Class != "removed" || !strings.Contains(c.Verdict.Sentence, "someone evicted it, for example to drain its node") {
			t.Errorf("record = %+v, want a removal", c)
		}
	}
	w.must("scale", "sample", "-i", "1")
	testkit.Eventually(t, "the budget is removed", func() error {
		var list struct{ Items []struct{} }
		err := w.cluster.Do(t.Context(), http.MethodGet, "/apis/policy/v1/namespaces/"+w.namespace+"/poddisruptionbudgets", nil, &list)
		if err == nil && len(list.Items) > 0 {
			err = errors.New("it exists")
		}
		return err
	})
}
