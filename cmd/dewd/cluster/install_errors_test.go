//go:build k8stest

package cluster_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/testkit"
)

// A user without permissions sees which ones are missing, and nothing is created.
func TestCheck(t *testing.T) {
	i := newInstalled(t)
	namespace := i.cluster.Namespace(t, nil)
	login := i.cluster.ServiceAccount(t, namespace, "reader", kubetest.Rule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}})
	i.flags = []string{"--kubeconfig", login.Kubeconfig, "--namespace", namespace, "--registry", i.cluster.Registry, "--insecure-registry"}
	out, err := i.kubernetes("check")
	for _, want := range []string{"ok    cluster", "FAIL  permissions", "create, delete, patch pods", "create, get, patch statefulsets", "ask an administrator", "ok    registry"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("check: %v, want %q:\n%s", err, want, out)
		}
	}
	if out, err := i.kubernetes("install"); err == nil || !strings.Contains(out, "does not meet the requirements") || !strings.Contains(out, "--skip-checks") {
		t.Errorf("install: %v\n%s", err, out)
	}
	if out, err := i.kubernetes("install", "--skip-checks"); err == nil || !strings.Contains(out, "cannot create serviceaccount/dewd") {
		t.Errorf("install without checks: %v\n%s", err, out)
	}
	i.namespace = namespace
	if out := i.kubectl("get", "serviceaccounts,services,statefulsets", "-o", "name"); strings.Contains(out, "dewd") {
		t.Errorf("something was created:\n%s", out)
	}
	// Of the administrator, as JSON, with a registry that does not answer.
	i.flags = []string{"--namespace", namespace, "--registry", "127.0.0.1:1/dew"}
	out, err = i.kubernetes("check", "--json")
	var found []v3.Finding
	if jerr := json.Unmarshal([]byte(out), &found); jerr != nil || err == nil {
		t.Fatalf("check --json: %v, %v\n%s", err, jerr, out)
	}
	got := map[string]string{}
	for _, f := range found {
		got[f.Name] = f.Level
	}
	for name, level := range map[string]string{"cluster": "ok", "permissions": "ok", "namespace": "warn", "storage": "FAIL", "registry": "FAIL", "network policy": "warn", "nodes": "ok"} {
		if got[name] != level {
			t.Errorf("%s = %q, want %q", name, got[name], level)
		}
	}
}

// An installation that cannot start says why. The next one with the right flags repairs it.
func TestInstallRepairs(t *testing.T) {
	i := newInstalled(t)
	wrong := strings.Replace(i.flags[len(i.flags)-1], "3m", "1m", 1)
	i.flags[len(i.flags)-1] = wrong
	out, err := i.kubernetes("install", "--image", i.cluster.Registry+"/none:1")
	for _, want := range []string{"the node cannot pull the image " + i.cluster.Registry + "/none:1", "--registry-config"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("install: %v, want %q:\n%s", err, want, out)
		}
	}
	i.flags[len(i.flags)-1] = "3m"
	i.install()
	password := func() string { return i.kubectl("exec", "dewd-0", "--", "dew", "credentials") }
	first := password()
	if out, err := i.kubernetes("uninstall", "-f", "--keep-data"); err != nil || !strings.Contains(out, "root-dewd-0") {
		t.Errorf("uninstall: %v\n%s", err, out)
	}
	if left := strings.Fields(i.kubectl("get", "pods,services,statefulsets,roles,rolebindings,secrets,leases,persistentvolumeclaims", "-o", "name")); len(left) != 1 || left[0] != "persistentvolumeclaim/root-dewd-0" {
		t.Errorf("left = %v, want only the volume", left)
	}
	// The next installation has the same data.
	i.install()
	if next := password(); next != first {
		t.Errorf("the login changed from %q to %q", first, next)
	}
}

// In a namespace that someone else created, dew changes and deletes only its own objects. It
// keeps the data of databases if the user wants that.
func TestForeignNamespace(t *testing.T) {
	i := newInstalled(t)
	i.namespace = i.cluster.Namespace(t, kubetest.Restricted)
	i.flags[1] = i.namespace
	all := func() string {
		return i.kubectl("get", "pods,services,statefulsets,roles,rolebindings,serviceaccounts,configmaps,secrets,leases,persistentvolumeclaims,poddisruptionbudgets", "-o", "name")
	}
	before := all()
	if out := i.install("--json"); !strings.Contains(out, "Using the existing namespace "+i.namespace) || !strings.Contains(out, `"namespace": "`+i.namespace+`"`) {
		t.Errorf("install:\n%s", out)
	}
	i.forward()
	createVolume(t, i.cluster, i.flags[6]+"-database", i.flags[6])
	d := &databases{i.world}
	d.must("stack", "add", "redis", databaseArchive(t))
	key := d.create("redis", "db")
	testkit.Eventually(t, "the database answers", func() error { // kube-proxy adds its address later
		if got := askRedis(t, key, "SET v kept"); got != "+OK" {
			return fmt.Errorf("Redis answered %q", got)
		}
		return nil
	})
	i.unforward()
	if out, err := i.kubernetes("uninstall", "-f", "--keep-data"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if left, _ := d.objects(); len(left) != 2 {
		t.Errorf("left = %v, want the volume and the Service of the database", left)
	}
	i.install()
	testkit.Eventually(t, "the database has its data and its address", func() error {
		if got := askRedis(t, key, "GET v"); got != "kept" {
			return fmt.Errorf("Redis answered %q", got)
		}
		return nil
	})
	if out, err := i.kubernetes("uninstall", "-f"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if after := all(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// askRedis sends a command to Redis and returns the last line of the answer, or an error.
func askRedis(t *testing.T, key login, command string) string {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", net.JoinHostPort(key.Host, strconv.Itoa(key.Port)))
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "AUTH %s %s\r\n%s\r\nQUIT\r\n", key.Username, key.Password, command)
	if err != nil {
		return err.Error()
	}
	out, err := io.ReadAll(conn)
	lines := strings.Split(strings.TrimSpace(string(out)), "\r\n")
	if err != nil || len(lines) < 3 {
		return fmt.Sprint(lines, err)
	}
	return lines[len(lines)-2] // the last one answers QUIT
}

// The API server accepts the manifests for objects that have no effect in the test cluster: load
// balancers and Ingresses.
func TestManifestsAreValid(t *testing.T) {
	i := newInstalled(t)
	i.namespace = i.cluster.Namespace(t, kubetest.Restricted)
	printed := i.must("kubernetes", "install", "--registry", i.cluster.Registry, "--namespace", i.namespace, "--domain", "apps.example.com", "--load-balancer", "--dry-run")
	ingress, err := os.ReadFile(filepath.Join("..", "..", "..", "dist", "kubernetes", "ingress", "ingress.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := printed + "---\n" + strings.ReplaceAll(string(ingress), "namespace: dew", "namespace: "+i.namespace)
	cmd := exec.CommandContext(t.Context(), "kubectl", "apply", "--dry-run=server", "-f", "-")
	cmd.Stdin = strings.NewReader(all)
	out, err := cmd.CombinedOutput()
	for _, want := range []string{
		"service/dewd-public created (server dry run)", "ingress.networking.k8s.io/dewd created (server dry run)", "statefulset.apps/dewd created (server dry run)",
		"role.rbac.authorization.k8s.io/dewd created (server dry run)",
	} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("kubectl: %v, want %q:\n%s", err, want, out)
		}
	}
	if strings.Contains(string(out), "would violate") { // Pod security
		t.Errorf("kubectl warns:\n%s", out)
	}
}
