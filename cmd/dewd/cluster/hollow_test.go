//go:build k8stest

package cluster_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/runtime/kubernetes/link"
)

// hollow are nodes without containers. Their Pods count as running, and have an agent
// that answers dewd as a real one does. With them the cost of dewd can be measured with
// more instances than fit on one machine.
type hollow struct {
	testing.TB
	cluster   *kubetest.Cluster
	namespace string
	ctx       context.Context
	work      sync.WaitGroup
	keys      func() *tls.Config

	mu   sync.Mutex // guards pods
	pods map[string]context.CancelFunc
}

// hollowPods is how many Pods fit on a hollow node.
const hollowPods = 250

// newHollow replaces the nodes of the cluster by hollow ones, until the end of the test.
func newHollow(w *world, nodes int) *hollow {
	w.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	h := &hollow{TB: w.TB, cluster: w.cluster, namespace: w.namespace, ctx: ctx, pods: map[string]context.CancelFunc{}}
	h.keys = sync.OnceValue(h.readKeys)
	w.Cleanup(func() {
		cancel()
		h.work.Wait()
	})
	for _, node := range w.cluster.Nodes {
		w.cluster.Cordon(w.TB, node)
	}
	for i := range nodes {
		h.addNode(fmt.Sprintf("hollow-%d", i+1))
	}
	h.work.Go(func() {
		for ctx.Err() == nil {
			_ = w.cluster.Watch(ctx, "/api/v1/namespaces/"+w.namespace+"/pods", h.changed) // again until the test ends
		}
	})
	return h
}

// addNode creates a node and keeps it alive.
func (h *hollow) addNode(name string) {
	h.Helper()
	room := kubetest.Object{"cpu": "1000", "memory": "1Ti", "pods": fmt.Sprint(hollowPods), "ephemeral-storage": "1Ti"}
	h.cluster.Create(h.TB, "/api/v1/nodes", kubetest.Object{
		"metadata": kubetest.Object{"name": name, "labels": kubetest.Object{"kubernetes.io/hostname": name}},
	})
	leases := "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	h.Cleanup(func() {
		ctx := context.WithoutCancel(h.Context())
		err := errors.Join(h.cluster.Do(ctx, http.MethodDelete, "/api/v1/nodes/"+name, nil, nil), h.cluster.Do(ctx, http.MethodDelete, leases+"/"+name, nil, nil))
		if err != nil {
			h.Error(err)
		}
	})
	h.cluster.Patch(h.TB, "/api/v1/nodes/"+name+"/status", kubetest.Object{"status": kubetest.Object{
		"capacity": room, "allocatable": room,
		"conditions": []kubetest.Object{{"type": "Ready", "status": "True", "lastHeartbeatTime": time.Now().UTC().Format(time.RFC3339), "reason": "Hollow", "message": "hollow"}},
	}})
	lease := func() kubetest.Object {
		return kubetest.Object{"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")}
	}
	h.cluster.Create(h.TB, leases, kubetest.Object{"metadata": kubetest.Object{"name": name}, "spec": lease()})
	h.work.Go(func() {
		for t := time.NewTicker(5 * time.Second); ; {
			select {
			case <-h.ctx.Done():
				return
			case <-t.C:
				_ = h.cluster.Do(h.ctx, http.MethodPatch, leases+"/"+name, kubetest.Object{"spec": lease()}, nil) // again soon
			}
		}
	})
}

// hollowPod is the part of a Pod that a hollow node reads.
type hollowPod struct {
	Metadata struct {
		Name              string
		Labels            map[string]string
		DeletionTimestamp string
	}
	Spec struct {
		NodeName   string
		Containers []struct {
			Name string
			Args []string
			Env  []struct{ Name, Value string }
		}
	}
}

// changed starts and ends the Pods of hollow nodes.
func (h *hollow) changed(kind string, object json.RawMessage) {
	var p hollowPod
	if json.Unmarshal(object, &p) != nil || !strings.HasPrefix(p.Spec.NodeName, "hollow-") {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	end, running := h.pods[p.Metadata.Name]
	switch {
	case kind == "DELETED" && running:
		end()
		delete(h.pods, p.Metadata.Name)
	case kind != "DELETED" && !running:
		ctx, cancel := context.WithCancel(h.ctx)
		h.pods[p.Metadata.Name] = cancel
		h.work.Go(func() { h.run(ctx, p) })
	}
}

// run says that a Pod runs, and is its agent.
func (h *hollow) run(ctx context.Context, p hollowPod) {
	path := "/api/v1/namespaces/" + h.namespace + "/pods/" + p.Metadata.Name
	var containers []kubetest.Object
	for _, c := range p.Spec.Containers {
		containers = append(containers, kubetest.Object{
			"name": c.Name, "image": "hollow", "imageID": "hollow", "ready": true, "started": true, "restartCount": 0,
			"state": kubetest.Object{"running": kubetest.Object{"startedAt": time.Now().UTC().Format(time.RFC3339)}},
		})
	}
	_ = h.cluster.Do(ctx, http.MethodPatch, path+"/status", kubetest.Object{"status": kubetest.Object{
		"phase": "Running", "podIP": "192.0.2.1", "podIPs": []kubetest.Object{{"ip": "192.0.2.1"}}, "containerStatuses": containers,
	}}, nil) // the agent alone is enough
	a := &hollowAgent{signals: make(chan string, 16)}
	server := ""
	agent := p.Spec.Containers[0]
	for i, arg := range agent.Args {
		switch arg {
		case "--server":
			server = agent.Args[i+1]
		case "--processes":
			a.execs = strings.Split(agent.Args[i+1], ",")
		}
	}
	hello := link.Hello{Instance: p.Metadata.Labels["run.dew/instance"], Token: agent.Env[0].Value}
	for ctx.Err() == nil {
		if conn, err := (&tls.Dialer{Config: h.keys()}).DialContext(ctx, "tcp", server); err == nil {
			_ = link.Serve(ctx, conn, hello, a.handler()) // connects again
		}
	}
}

// readKeys reads the keys of the agents.
func (h *hollow) readKeys() *tls.Config {
	var secret struct{ Data map[string][]byte }
	if err := h.cluster.Do(h.ctx, http.MethodGet, "/api/v1/namespaces/"+h.namespace+"/secrets/dew-agent", nil, &secret); err != nil {
		h.Error(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(secret.Data["ca.crt"])
	cert, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		h.Error(err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}, ServerName: "dewd.dew.internal", MinVersion: tls.VersionTLS13}
}

// hollowAgent answers dewd for a Pod that has no processes.
type hollowAgent struct {
	execs   []string
	signals chan string // execs that must exit
}

func (a *hollowAgent) handler() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{link.PathReady, link.PathStart, link.PathTree, link.PathQuit, link.PathLost} {
		mux.HandleFunc(path, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // dewd notices
		})
	}
	mux.HandleFunc(link.PathUsage, func(w http.ResponseWriter, _ *http.Request) {
		us := make([]link.Usage, len(a.execs))
		for i := range us {
			us[i] = link.Usage{Exec: a.execs[i], Memory: 8 << 20}
		}
		_ = json.NewEncoder(w).Encode(us) // dewd notices
	})
	mux.HandleFunc(link.PathSignal, func(_ http.ResponseWriter, r *http.Request) {
		var s link.Signal
		if json.NewDecoder(r.Body).Decode(&s) == nil {
			for _, exec := range s.Execs {
				a.signals <- exec
			}
		}
	})
	mux.HandleFunc(link.PathAttach, a.attach)
	return mux
}

// attach reports the exits of signalled processes.
func (a *hollowAgent) attach(w http.ResponseWriter, r *http.Request) {
	in, out := link.Answer(w, r)
	frames := link.NewFrames(out)
	go func() {
		for buf := make([]byte, 64); ; {
			k, b, err := link.ReadFrame(in, buf)
			if err != nil {
				return
			}
			if k == link.KindSync {
				_ = frames.Write(link.KindSynced, b) // dewd notices
			}
		}
	}()
	for {
		select {
		case exec := <-a.signals:
			_ = frames.JSON(link.KindExit, link.Exit{Exec: exec, Code: 143, At: time.Now()})
			_ = frames.JSON(link.KindFinished, link.Finished{Exec: exec})
		case <-r.Context().Done():
			return
		}
	}
}
