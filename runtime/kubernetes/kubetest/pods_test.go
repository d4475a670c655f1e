//go:build k8stest

package kubetest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// A web server in Perl, which the image for tests has.
const webServer = `use Socket; socket(S, PF_INET, SOCK_STREAM, 0); setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1);
bind(S, sockaddr_in(8080, INADDR_ANY)) or die; listen(S, 5);
while (accept(C, S)) { sysread(C, $request, 4096); print C "HTTP/1.0 200 OK\r\n\r\nhello from $ENV{HOSTNAME}\n"; close C }`

// container returns a container that the strictest Pod security standard accepts.
func container(image, name, memory string, command ...string) Object {
	return Object{
		"name": name, "image": image, "imagePullPolicy": "Never", "command": command,
		"resources": Object{"limits": Object{"memory": memory}},
		"securityContext": Object{
			"allowPrivilegeEscalation": false, "capabilities": Object{"drop": []string{"ALL"}},
			"runAsNonRoot": true, "runAsUser": 2000, "seccompProfile": Object{"type": "RuntimeDefault"},
		},
	}
}

func podSpec(containers ...Object) Object {
	return Object{"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "containers": containers}
}

// podStatus is the part of a Pod that the tests check.
type podStatus struct {
	Metadata struct{ Name, UID, DeletionTimestamp string }
	Spec     struct{ NodeName string }
	Status   struct {
		Phase, PodIP, Message string
		Conditions            []struct{ Type, Status, Message string }
		ContainerStatuses     []struct {
			Name, ContainerID, ImageID string
			RestartCount               int
			State                      map[string]Object
		}
	}
}

// isReady returns an error if a Pod is not ready.
func (p *podStatus) isReady() error {
	for _, condition := range p.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			return nil
		}
	}
	return fmt.Errorf("the Pod %s is not ready: %+v", p.Metadata.Name, p.Status)
}

func podPath(namespace, name string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + name
}

func waitPod(t *testing.T, c *Cluster, namespace, name string) (p podStatus) {
	t.Helper()
	testkit.Eventually(t, "the Pod "+name+" is ready", func() error {
		p = podStatus{}
		if err := c.Do(t.Context(), http.MethodGet, podPath(namespace, name), nil, &p); err != nil {
			return err
		}
		return p.isReady()
	})
	return p
}

// inside is a container of a running Pod.
type inside struct {
	*Cluster
	namespace, pod, container string
}

// exec runs a command in the container that must succeed.
func (in inside) exec(t *testing.T, command ...string) string {
	t.Helper()
	result, err := in.Exec(t.Context(), in.namespace, in.pod, in.container, command...)
	if err != nil || result.Code != 0 {
		t.Fatalf("%q: %v, exit code %d: %s", command, err, result.Code, result.Stderr)
	}
	return result.Stdout
}

// A Pod has two containers that see each other's processes, each with its own memory
// limit, in a namespace that forbids privileges.
func TestTwoContainers(t *testing.T) {
	c := Open(t)
	image, namespace := c.StackImage(t), c.Namespace(t, Restricted)
	spec := podSpec(container(image, "main", "64Mi", "/bin/sleep", "1001"), container(image, "side", "32Mi", "/bin/sleep", "1002"))
	spec["shareProcessNamespace"] = true
	spec["restartPolicy"] = "Never"
	c.Create(t, "/api/v1/namespaces/"+namespace+"/pods", Object{"metadata": Object{"name": "two"}, "spec": spec})
	waitPod(t, c, namespace, "two")

	processes := inside{c, namespace, "two", "side"}.exec(t, "/bin/sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
	for _, want := range []string{"/pause", "sleep 1001", "sleep 1002"} {
		if !strings.Contains(processes, want) {
			t.Errorf("processes in the container side = %q, want %q among them", processes, want)
		}
	}
	for container, want := range map[string]string{"main": "67108864", "side": "33554432"} {
		// cgroup v1 or v2
		got := inside{c, namespace, "two", container}.exec(t, "/bin/sh", "-c",
			"cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max")
		if strings.TrimSpace(got) != want {
			t.Errorf("memory limit of %s = %q, want %s", container, got, want)
		}
	}
}

// pods/exec carries stdout, stderr and the exit code.
func TestExec(t *testing.T) {
	c := Open(t)
	image, namespace := c.StackImage(t), c.Namespace(t, Restricted)
	c.Create(t, "/api/v1/namespaces/"+namespace+"/pods", Object{
		"metadata": Object{"name": "one"}, "spec": podSpec(container(image, "main", "64Mi", "/bin/sleep", "1000")),
	})
	waitPod(t, c, namespace, "one")
	got, err := c.Exec(t.Context(), namespace, "one", "main", "/bin/sh", "-c", "echo out; echo err >&2; exit 7")
	if want := (Result{Stdout: "out\n", Stderr: "err\n", Code: 7}); err != nil || got != want {
		t.Errorf("result = %+v, %v, want %+v", got, err, want)
	}
	if _, err := c.Exec(t.Context(), namespace, "none", "main", "/bin/true"); !IsCode(err, http.StatusNotFound) {
		t.Errorf("exec in a Pod that does not exist: %v, want 404", err)
	}
}

// A namespace with the label restricted refuses a Pod that runs as root.
func TestRestrictedNamespace(t *testing.T) {
	c := Open(t)
	namespace := c.Namespace(t, Restricted)
	root := Object{"metadata": Object{"name": "root"}, "spec": Object{"containers": []Object{{"name": "main", "image": "x"}}}}
	err := c.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", root, nil)
	if !IsCode(err, http.StatusForbidden) || !strings.Contains(err.Error(), "runAsNonRoot") {
		t.Errorf("create a Pod with root: %v, want 403 because of runAsNonRoot", err)
	}
}

// The address of a Service leads to its Pod from outside of the cluster, from Pods on
// every node, and from the Pod itself.
func TestServiceAddress(t *testing.T) {
	c := Open(t)
	image, namespace := c.StackImage(t), c.Namespace(t, Restricted)
	core := "/api/v1/namespaces/" + namespace
	server := podSpec(container(image, "main", "64Mi", "/usr/bin/perl", "-e", webServer))
	c.Create(t, core+"/pods", Object{"metadata": Object{"name": "server", "labels": Object{"app": "server"}}, "spec": server})
	c.Create(t, core+"/services", Object{
		"metadata": Object{"name": "server"},
		"spec":     Object{"selector": Object{"app": "server"}, "ports": []Object{{"port": 80, "targetPort": 8080}}},
	})
	clients := []string{"server"}
	for _, node := range c.Nodes {
		spec := podSpec(container(image, "main", "64Mi", "/bin/sleep", "1000"))
		spec["nodeName"] = node
		c.Create(t, core+"/pods", Object{"metadata": Object{"name": "from-" + node}, "spec": spec})
		clients = append(clients, "from-"+node)
	}
	var service struct{ Spec struct{ ClusterIP string } }
	c.Get(t, core+"/services/server", &service)
	waitPod(t, c, namespace, "server")
	testkit.Eventually(t, "the Service answers", func() error { return checkHello(service.Spec.ClusterIP) })

	script := fmt.Sprintf(`exec 3<>/dev/tcp/%s/80 && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && cat <&3`, service.Spec.ClusterIP)
	for _, client := range clients {
		waitPod(t, c, namespace, client)
		// kube-proxy of another node can learn of the Service later.
		testkit.Eventually(t, "the Service answers "+client, func() error {
			result, err := c.Exec(t.Context(), namespace, client, "main", "/usr/bin/timeout", "5", "/bin/bash", "-c", script)
			if err == nil && !strings.Contains(result.Stdout, "hello from server") {
				err = fmt.Errorf("got %+v", result)
			}
			return err
		})
	}
}

func checkHello(address string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && string(text) != "hello from server\n" {
		err = fmt.Errorf("the answer is %q", text)
	}
	return err
}

// The Pods of a StatefulSet keep their names, and a new Pod has the files of a hostPath
// volume, but not those of an emptyDir.
func TestStatefulSet(t *testing.T) {
	c := Open(t)
	image, namespace := c.StackImage(t), c.Namespace(t, nil)
	spec := podSpec(container(image, "main", "64Mi", "/bin/sleep", "1000"))
	spec["nodeName"] = c.Nodes[0] // a hostPath is on one node
	spec["volumes"] = []Object{
		{"name": "kept", "hostPath": Object{"path": "/var/tmp/" + namespace, "type": "DirectoryOrCreate"}},
		{"name": "empty", "emptyDir": Object{}},
	}
	spec["initContainers"] = []Object{{
		"name": "permissions", "image": image, "imagePullPolicy": "Never", "command": []string{"/bin/chmod", "777", "/kept"},
		"volumeMounts": []Object{{"name": "kept", "mountPath": "/kept"}},
	}}
	spec["containers"].([]Object)[0]["volumeMounts"] = []Object{{"name": "kept", "mountPath": "/kept"}, {"name": "empty", "mountPath": "/empty"}}
	c.Create(t, "/apis/apps/v1/namespaces/"+namespace+"/statefulsets", Object{
		"metadata": Object{"name": "set"},
		"spec": Object{
			"replicas": 2, "serviceName": "set", "selector": Object{"matchLabels": Object{"app": "set"}},
			"template": Object{"metadata": Object{"labels": Object{"app": "set"}}, "spec": spec},
		},
	})
	waitPod(t, c, namespace, "set-1")
	before := waitPod(t, c, namespace, "set-0")
	inside{c, namespace, "set-0", "main"}.exec(t, "/bin/sh", "-c", "touch /kept/file /empty/file")
	if err := c.Do(t.Context(), http.MethodDelete, podPath(namespace, "set-0"), nil, nil); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "another Pod set-0 is ready", func() error {
		var after podStatus
		if err := c.Do(t.Context(), http.MethodGet, podPath(namespace, "set-0"), nil, &after); err != nil {
			return err
		}
		if after.Metadata.UID == before.Metadata.UID {
			return fmt.Errorf("it is the same Pod")
		}
		return after.isReady()
	})
	got := inside{c, namespace, "set-0", "main"}.exec(t, "/bin/ls", "/kept", "/empty")
	if got != "/empty:\n\n/kept:\nfile\n" {
		t.Errorf("files of the new Pod = %q, want only that of the hostPath", got)
	}
}

// A ServiceAccount can do what its role says, and nothing else.
func TestServiceAccount(t *testing.T) {
	c := Open(t)
	namespace := c.Namespace(t, Restricted)
	account := c.ServiceAccount(t, namespace, "engine", Rule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}})
	account.Get(t, "/api/v1/namespaces/"+namespace+"/pods", nil)
	for _, path := range []string{"/api/v1/namespaces/" + namespace + "/secrets", "/api/v1/pods"} {
		if err := account.Do(t.Context(), http.MethodGet, path, nil, nil); !IsCode(err, http.StatusForbidden) {
			t.Errorf("%s: %v, want 403", path, err)
		}
	}
}
