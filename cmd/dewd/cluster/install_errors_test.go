//go:build k8stest

package cluster_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
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

// In a namespace that someone else created, dew changes and deletes only its own objects.
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
	if out, err := i.kubernetes("uninstall", "-f"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if after := all(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
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
