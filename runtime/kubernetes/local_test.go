//go:build integration

package kubernetes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/dewrun/dew/runtime/kubernetes/wrapper"
	"github.com/dewrun/dew/runtime/runtimetest"
)

// localNode runs the containers of Pods as plain processes of this machine, with the
// real agent and the real wrappers. The API server is client-go's fake.
type localNode struct {
	*testing.T
	client *fake.Clientset
	bin    string
	dir    string

	mu   sync.Mutex
	pods map[string][]*exec.Cmd
	uids int
}

// newLocalWorld returns a world without a cluster.
func newLocalWorld(t *testing.T) *world {
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pod") // the path of a socket has at most 107 characters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &localNode{T: t, client: fake.NewClientset(), bin: bin, dir: dir, pods: map[string][]*exec.Cmd{}}
	n.client.PrependReactor("create", "pods", n.create)
	n.client.PrependReactor("delete", "pods", n.delete)
	w := &world{TB: t, client: n.client, namespace: "dew", host: "127.0.0.1", image: "agent", stack: "stack", appDir: "/", dir: t.TempDir()}
	t.Cleanup(func() {
		w.leave()
		n.mu.Lock()
		defer n.mu.Unlock()
		for name := range n.pods {
			n.kill(name)
		}
	})
	return w
}

// create starts the containers of a Pod.
func (n *localNode) create(action k8stesting.Action) (bool, apiruntime.Object, error) {
	pod := action.(k8stesting.CreateAction).GetObject().(*corev1.Pod)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.uids++
	pod.UID = types.UID(fmt.Sprint(n.uids))
	root := filepath.Join(n.dir, pod.Name)
	for _, dir := range []string{binDir, runDir, tlsDir, homeDir, tmpDir, "/cgroup"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return true, nil, err
		}
	}
	secret, err := n.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), pod.Namespace, "dew-test-agent")
	if err != nil {
		return true, nil, err
	}
	for name, data := range secret.(*corev1.Secret).Data {
		if err := os.WriteFile(filepath.Join(root, tlsDir, name), data, 0o600); err != nil {
			return true, nil, err
		}
	}
	for _, c := range pod.Spec.Containers {
		cmd, err := n.start(root, c)
		if err != nil {
			return true, nil, err
		}
		n.pods[pod.Name] = append(n.pods[pod.Name], cmd)
	}
	return false, nil, nil // the fake stores the Pod
}

// start starts one container. Its folders are below root.
func (n *localNode) start(root string, c corev1.Container) (*exec.Cmd, error) {
	paths := strings.NewReplacer("/.dew/", root+"/.dew/", homeDir, root+homeDir, ","+tmpDir, ","+root+tmpDir, "/dew-", n.bin+"/dew-")
	var args []string
	for _, a := range append(c.Command, c.Args...) {
		if strings.HasPrefix(a, "/.dew/bin/") {
			a = root + a
		} else {
			a = paths.Replace(a)
		}
		args = append(args, a)
	}
	if c.Name != agentContainerName {
		args = append(args, "--cgroup", root+"/cgroup")
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=/bin:/usr/bin"}
	for _, e := range c.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	cmd.Dir, cmd.Stderr, cmd.SysProcAttr = "/", n.Output(), &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = cmd.Wait() }()
	return cmd, nil
}

func (n *localNode) delete(action k8stesting.Action) (bool, apiruntime.Object, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kill(action.(k8stesting.DeleteAction).GetName())
	return false, nil, nil
}

// kill kills the containers of a Pod, with the children of the wrappers first.
func (n *localNode) kill(name string) {
	for _, cmd := range n.pods[name] {
		for _, pid := range wrapper.Descendants(cmd.Process.Pid, nil) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it can have exited
		}
		_ = cmd.Process.Kill()
	}
	delete(n.pods, name)
}

// The engine fulfills the contract with real agents and wrappers.
func TestEngineSuiteLocal(t *testing.T) {
	runtimetest.EngineSuite(t, func(t *testing.T) runtimetest.SuiteConfig { return newLocalWorld(t).suite() })
}
