// Package kubetest controls the Kubernetes cluster of `make k8stest`: it kills and stops
// its components, switches nodes off, and calls its API. Only tests with the tag k8stest
// import it. The program in tools/cluster is the other side.
package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// Control is the machine of the control plane. The tests run on it.
const Control = "control"

// Components of the control plane.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Registry          = "registry"
)

// Components of a node.
const (
	Containerd = "containerd"
	Kubelet    = "kubelet"
	Proxy      = "kube-proxy"
)

// Cluster is the running cluster.
type Cluster struct {
	Client            // of the administrator
	Kubeconfig string // file of the administrator
	Registry   string // address of a registry that nodes pull from over HTTP
	Nodes      []string
	Logs       string // folder with the logs of the components
	Program    string // starts another cluster

	stack   string
	archive string // OCI archive of stack
	control *http.Client
}

// Component is the state of a component.
type Component struct {
	Machine string `json:"machine"`
	Name    string `json:"name"`
	State   string `json:"state"`  // running, paused or stopped
	PID     int    `json:"pid"`    // 0 if it is stopped
	Starts  int    `json:"starts"` // grows when the component starts again
}

// Open returns the cluster that the test runs in.
func Open(t testing.TB) *Cluster {
	t.Helper()
	socket := os.Getenv("DEW_CLUSTER")
	if socket == "" {
		t.Fatal("the test does not run in a cluster: DEW_CLUSTER is not set\nRun it with make k8stest, or with .ci/k8stest enter in a running cluster")
	}
	c := &Cluster{control: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
	t.Cleanup(c.control.CloseIdleConnections)
	var facts struct {
		Kubeconfig, Registry, Server, Token, CA, StackImage, StackArchive, Logs, Program string
		Nodes                                                                            []string
	}
	c.call(t, http.MethodGet, "/cluster", nil, &facts)
	ca, err := os.ReadFile(facts.CA)
	if err != nil {
		t.Fatal(err)
	}
	c.Client = newClient(facts.Server, facts.Token, ca)
	c.Kubeconfig, c.Registry, c.Nodes = facts.Kubeconfig, facts.Registry, facts.Nodes
	c.stack, c.archive, c.Logs, c.Program = facts.StackImage, facts.StackArchive, facts.Logs, facts.Program
	return c
}

// call sends a request to the control API. It works after the end of the test's context,
// so that cleanups can use it.
func (c *Cluster) call(t testing.TB, method, path string, body io.Reader, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, "http://cluster"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.control.Do(req)
	if err != nil {
		t.Fatalf("the cluster does not answer: %v", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(text))
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// Components returns the components of all machines.
func (c *Cluster) Components(t testing.TB) (all []Component) {
	t.Helper()
	c.call(t, http.MethodGet, "/components", nil, &all)
	return all
}

// Component returns one component.
func (c *Cluster) Component(t testing.TB, machine, name string) Component {
	t.Helper()
	for _, component := range c.Components(t) {
		if component.Machine == machine && component.Name == name {
			return component
		}
	}
	t.Fatalf("%s has no component %s", machine, name)
	return Component{}
}

func (c *Cluster) act(t testing.TB, machine, name, action string) {
	t.Helper()
	c.call(t, http.MethodPost, fmt.Sprintf("/machines/%s/components/%s/%s", machine, name, action), nil, nil)
}

// Kill sends SIGKILL to a component and returns when the process has exited. The
// component starts again after a moment, as with systemd.
func (c *Cluster) Kill(t testing.TB, machine, name string) {
	t.Helper()
	c.act(t, machine, name, "kill")
}

// Stop stops a component until Start or the end of the test.
func (c *Cluster) Stop(t testing.TB, machine, name string) {
	t.Helper()
	t.Cleanup(func() { c.Start(t, machine, name) })
	c.act(t, machine, name, "stop")
}

// Start starts a component that Stop stopped.
func (c *Cluster) Start(t testing.TB, machine, name string) {
	t.Helper()
	c.act(t, machine, name, "start")
}

// Pause sends SIGSTOP to a component: it keeps its connections and does not answer, until
// Resume or the end of the test.
func (c *Cluster) Pause(t testing.TB, machine, name string) {
	t.Helper()
	t.Cleanup(func() { c.Resume(t, machine, name) })
	c.act(t, machine, name, "pause")
}

// Resume sends SIGCONT to a component.
func (c *Cluster) Resume(t testing.TB, machine, name string) {
	t.Helper()
	c.act(t, machine, name, "resume")
}

// CutLink disconnects a node from all other machines, until RestoreLink or the end of the
// test. The node and its Pods keep running.
func (c *Cluster) CutLink(t testing.TB, node string) {
	t.Helper()
	t.Cleanup(func() {
		c.RestoreLink(t, node)
		c.WaitReady(t, node)
	})
	c.call(t, http.MethodPost, "/machines/"+node+"/link/cut", nil, nil)
}

// RestoreLink connects a node again.
func (c *Cluster) RestoreLink(t testing.TB, node string) {
	t.Helper()
	c.call(t, http.MethodPost, "/machines/"+node+"/link/restore", nil, nil)
}

// PowerOff switches a node off, until PowerOn or the end of the test. All its processes
// die at once.
func (c *Cluster) PowerOff(t testing.TB, node string) {
	t.Helper()
	t.Cleanup(func() { c.PowerOn(t, node) })
	c.call(t, http.MethodPost, "/machines/"+node+"/power/off", nil, nil)
}

// PowerOn switches a node on and waits until it is ready. Its disk has the files from
// before.
func (c *Cluster) PowerOn(t testing.TB, node string) {
	t.Helper()
	c.call(t, http.MethodPost, "/machines/"+node+"/power/on", nil, nil)
	testkit.Eventually(t, node+" answers", func() error {
		for _, component := range c.Components(t) {
			if component.Machine == node && component.Name == Kubelet {
				return nil
			}
		}
		return fmt.Errorf("kubelet of %s does not run", node)
	})
	c.WaitReady(t, node)
}

// StackImage returns the name of a small Debian image that every node has. Pods need
// imagePullPolicy: Never.
func (c *Cluster) StackImage(t testing.TB) string {
	t.Helper()
	for _, node := range c.Nodes {
		c.call(t, http.MethodPost, "/machines/"+node+"/images/stack", nil, nil)
	}
	return c.stack
}

// StackArchive returns the OCI archive of the image for tests.
func (c *Cluster) StackArchive(t testing.TB) string {
	t.Helper()
	if c.archive == "" {
		t.Fatal("the cluster has no image for tests: start it with --stack FILE")
	}
	return c.archive
}

// ImportImage loads an OCI archive into the images of a node. The annotation
// io.containerd.image.name in the archive's index is the name of the image.
func (c *Cluster) ImportImage(t testing.TB, node, archive string) {
	t.Helper()
	file := testkit.Open(os.Open(archive))(t)
	c.call(t, http.MethodPost, "/machines/"+node+"/images", file, nil)
}
