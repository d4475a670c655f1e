//go:build k8stest

package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/testkit"
)

// installed is a dewd that dew kubernetes install creates in the cluster. dew uses it
// through kubectl port-forward.
type installed struct {
	*world
	cluster   *kubetest.Cluster
	flags     []string // of dew kubernetes
	forwarder *exec.Cmd
}

// newInstalled returns an installation that does not exist yet, with a volume for it.
func newInstalled(t *testing.T) *installed {
	t.Helper()
	cluster := kubetest.Open(t)
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	i := &installed{
		world:   &world{TB: t, cluster: cluster, bin: bin, root: t.TempDir(), run: testkit.ShortDir(t), namespace: "test-" + strings.ToLower(rand.Text()[:8])},
		cluster: cluster,
	}
	i.flags = []string{
		"--namespace", i.namespace, "--registry", cluster.Registry, "--insecure-registry", "--storage-class", i.namespace, "--timeout", "3m",
	}
	i.volume()
	ctx, name := context.WithoutCancel(t.Context()), i.namespace
	t.Cleanup(func() {
		i.unforward()
		if err := cluster.Do(ctx, http.MethodDelete, "/api/v1/namespaces/"+name, nil, nil); err != nil && !kubetest.IsCode(err, http.StatusNotFound) {
			t.Error(err)
		}
	})
	return i
}

// volume creates a volume for dewd.
func (i *installed) volume() {
	i.Helper()
	createVolume(i, i.cluster, i.namespace, i.namespace)
}

// createVolume creates a volume on the disk of the nodes, which all have the same files.
func createVolume(t testing.TB, c *kubetest.Cluster, name, class string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { // Kubernetes does not change the owner of such a volume
		t.Fatal(err)
	}
	c.Create(t, "/api/v1/persistentvolumes", kubetest.Object{
		"metadata": kubetest.Object{"name": name},
		"spec": kubetest.Object{
			"capacity": kubetest.Object{"storage": "30Gi"}, "accessModes": []string{"ReadWriteOnce"}, "storageClassName": class,
			"persistentVolumeReclaimPolicy": "Retain", "hostPath": kubetest.Object{"path": dir},
		},
	})
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := c.Do(ctx, http.MethodDelete, "/api/v1/persistentvolumes/"+name, nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// kubernetes runs dew kubernetes.
func (i *installed) kubernetes(action string, flags ...string) (string, error) {
	return i.dew(append(append([]string{"kubernetes", action}, i.flags...), flags...)...)
}

func (i *installed) install(flags ...string) string {
	i.Helper()
	out, err := i.kubernetes("install", flags...)
	if err != nil {
		i.Fatal(err)
	}
	return out
}

// kubectl runs kubectl in the namespace.
func (i *installed) kubectl(args ...string) string {
	i.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(i.Context(), "kubectl", append([]string{"--namespace", i.namespace}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		i.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// forward forwards the ports of dewd to ports of this machine, and logs in.
func (i *installed) forward() {
	i.Helper()
	i.unforward()
	cmd := exec.Command("kubectl", "--namespace", i.namespace, "port-forward", "pod/dewd-0", ":8484", ":8080")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		i.Fatal(err)
	}
	i.forwarder = cmd
	ports := map[string]string{}
	for lines := bufio.NewScanner(out); len(ports) < 2 && lines.Scan(); {
		if here, there, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "Forwarding from "), " -> "); ok && strings.HasPrefix(here, "127.0.0.1:") {
			ports[there] = here
		}
	}
	if len(ports) != 2 {
		i.Fatalf("kubectl forwards %v, want two ports", ports)
	}
	i.api, i.router = ports["8484"], ports["8080"]
	var login struct{ Password string }
	if err := json.Unmarshal([]byte(i.kubectl("exec", "dewd-0", "--", "dew", "credentials", "--json")), &login); err != nil {
		i.Fatal(err)
	}
	i.must("login", "http://"+i.api, "-u", "admin", "-p", login.Password)
}

func (i *installed) unforward() {
	if i.forwarder != nil {
		_ = i.forwarder.Process.Kill()
		_ = i.forwarder.Wait() // it was killed
		i.forwarder = nil
	}
}

// pod is a part of the Pod of dewd.
type pod struct {
	Metadata struct{ UID string }
	Status   struct {
		Conditions []struct{ Type, Status string }
	}
}

func (i *installed) pod() (p pod, err error) {
	err = i.cluster.Do(i.Context(), http.MethodGet, "/api/v1/namespaces/"+i.namespace+"/pods/dewd-0", nil, &p)
	return p, err
}

// replace deletes the Pod of dewd and waits until the next one is ready.
func (i *installed) replace(flags ...string) {
	i.Helper()
	old, err := i.pod()
	if err != nil {
		i.Fatal(err)
	}
	i.unforward()
	i.kubectl(append([]string{"delete", "pod", "dewd-0", "--wait=false"}, flags...)...)
	testkit.Eventually(i, "the next dewd is ready", func() error {
		p, err := i.pod()
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" && p.Metadata.UID != old.Metadata.UID {
				return nil
			}
		}
		return fmt.Errorf("Pod %s has %v", p.Metadata.UID, p.Status.Conditions)
	})
	i.forward()
}

// A user takes an app from a laptop to a cluster with one command. dewd runs in the
// cluster, and everything works as on one machine.
func TestInstall(t *testing.T) {
	i := newInstalled(t)
	i.flags = append(i.flags, "--tcp-ports", "20000-20001")
	out := i.install()
	for _, want := range []string{"Pushing the image", "Creating dewd in namespace " + i.namespace, "is ready in namespace", "port-forward pod/dewd-0"} {
		if !strings.Contains(out, want) {
			t.Errorf("install does not print %q:\n%s", want, out)
		}
	}
	i.forward()
	// A manifest of Cloud Foundry runs unchanged, on the stack debian.
	if out, err := i.dew("push", "-f", i.manifest(), "-s", "cflinuxfs4"); err == nil || !strings.Contains(out, "dew stack add debian --image") {
		t.Errorf("an app without a stack: %v\n%s", err, out)
	}
	i.must("stack", "add", "debian", i.cluster.StackArchive(t))
	i.must("push", "-f", i.manifest(), "-s", "cflinuxfs4")
	i.must("stack", "add", "pulled", "--image", i.stackImage())
	if out := i.must("stacks"); strings.Contains(out, "host") || !strings.Contains(out, "debian") {
		t.Errorf("stacks:\n%s", out)
	}
	if out, err := i.get("sample", "/config"); err != nil {
		t.Fatalf("the app does not answer through its sidecar: %v %s", err, out)
	}
	i.kubectl("exec", "dewd-0", "--", "dew", "ssh", "sample", "-c", `for p in /proc/[0-9]*; do if [ "$(tr '\0' ' ' <$p/cmdline)" = "./config-server " ]; then kill -9 ${p#/proc/}; fi; done`)
	testkit.Eventually(t, "the crash is recorded", func() error {
		out, err := i.dew("app", "sample")
		if err == nil && !strings.Contains(out, "sidecar config-server ended with status 137") {
			err = errors.New(out)
		}
		return err
	})
	testkit.Eventually(t, "the app answers again", func() error {
		_, err := i.get("sample", "/config")
		return err
	})
	if out := i.must("logs", "sample", "--recent"); !strings.Contains(out, "config server listens") {
		t.Errorf("the log has no line of the sidecar:\n%s", out)
	}
	if out := i.kubectl("exec", "dewd-0", "--", "dewd", "doctor"); !strings.Contains(out, "all ok") || !strings.Contains(out, "Kubernetes 1.") {
		t.Errorf("dewd doctor in the cluster:\n%s", out)
	}
	if out := i.kubectl("logs", "dewd-0"); strings.Contains(out, "is forbidden") {
		t.Errorf("dewd lacks a permission:\n%s", out)
	}
	i.routesTCP()
	i.refusesSecond()
	i.survives()
	i.upgrades()
	i.uninstalls()
}

// routesTCP reaches an app through a TCP route and the Service of dewd.
func (i *installed) routesTCP() {
	i.Helper()
	i.must("create-shared-domain", "tcp.dew.localhost", "--router-group", "default-tcp")
	i.must("map-route", "sample", "tcp.dew.localhost", "--port", "20001")
	address := strings.TrimSpace(i.kubectl("get", "service", "dewd", "-o", "jsonpath={.spec.clusterIP}"))
	testkit.Eventually(i, "the app answers at the port of its TCP route", func() error {
		req, err := http.NewRequestWithContext(i.Context(), http.MethodGet, "http://"+address+":20001/config", http.NoBody)
		if err != nil {
			return testkit.Finally(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// stackImage returns the image that dewd has pushed for the stack.
func (i *installed) stackImage() string {
	i.Helper()
	req, err := http.NewRequestWithContext(i.Context(), http.MethodGet, "http://"+i.cluster.Registry+"/v2/dew-stack/tags/list", http.NoBody)
	if err != nil {
		i.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		i.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct{ Tags []string }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list.Tags) == 0 {
		i.Fatalf("the registry has the tags %v, %v", list.Tags, err)
	}
	return i.cluster.Registry + "/dew-stack:" + list.Tags[0]
}

// refusesSecond starts a second dewd for the same namespace, on this machine.
func (i *installed) refusesSecond() {
	i.Helper()
	port := testkit.FreePorts(i, 4)
	at := func(n int) string { return "127.0.0.1:" + strconv.Itoa(port+n) }
	cmd := exec.CommandContext(i.Context(), filepath.Join(i.bin, "dewd"),
		"--engine", "kubernetes", "--kubeconfig", i.cluster.Kubeconfig, "--namespace", i.namespace, "--registry", i.cluster.Registry, "--insecure-registry", i.cluster.Registry,
		"--agent-listen", at(3), "--agent-address", at(3), "--root", i.TempDir(), "--run", testkit.ShortDir(i),
		"--listen", at(0), "--router", at(1), "--listen-tls", "off", "--router-tls", "off", "--ssh", at(2), "--tcp-ports", "")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"cannot use namespace " + i.namespace, "dewd in Pod dewd-0", "holds the Lease dewd", "--namespace"} {
		if err == nil || !strings.Contains(string(out), want) {
			i.Errorf("a second dewd: %v, want an error with %q:\n%s", err, want, out)
		}
	}
}

// survives deletes the Pod of dewd while an app prints. The next dewd manages the same
// instances, and no line is lost.
func (i *installed) survives() {
	i.Helper()
	i.must("push", "-f", countingApp(i.TB))
	before := i.must("app", "sample", "--json")
	i.replace()
	i.replace("--grace-period=0", "--force") // as after the loss of a node: the Lease must expire
	testkit.Eventually(i, "the app answers", func() error {
		_, err := i.get("sample", "/config")
		return err
	})
	if after := i.must("app", "sample", "--json"); instances(before) != instances(after) {
		i.Errorf("the instances changed:\n%s\n%s", instances(before), instances(after))
	}
	i.checkCount()
}

// upgrades runs install again with another setting: the apps keep running.
func (i *installed) upgrades() {
	i.Helper()
	before := i.must("app", "sample", "--json")
	i.unforward()
	i.install("--set", "log-retention=128M")
	i.forward()
	if out := i.must("status"); !strings.Contains(out, "128.0M kept per app") {
		i.Errorf("the new setting has no effect:\n%s", out)
	}
	if after := i.must("app", "sample", "--json"); instances(before) != instances(after) {
		i.Errorf("the instances changed:\n%s\n%s", instances(before), instances(after))
	}
}

// uninstalls removes everything.
func (i *installed) uninstalls() {
	i.Helper()
	i.unforward()
	if out, err := i.kubernetes("uninstall"); err == nil || !strings.Contains(out, "pass -f") {
		i.Errorf("uninstall without a confirmation: %v\n%s", err, out)
	}
	if out, err := i.kubernetes("uninstall", "-f"); err != nil {
		i.Fatalf("%v\n%s", err, out)
	}
	err := i.cluster.Do(i.Context(), http.MethodGet, "/api/v1/namespaces/"+i.namespace, nil, nil)
	if !kubetest.IsCode(err, http.StatusNotFound) {
		i.Errorf("the namespace still exists: %v", err)
	}
	if out, err := i.kubernetes("uninstall", "-f"); err != nil {
		i.Errorf("a second uninstall: %v\n%s", err, out)
	}
}
