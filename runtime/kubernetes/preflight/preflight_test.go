package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dewrun/dew/api/v3"
)

func TestVersionRule(t *testing.T) {
	for _, tt := range []struct{ major, minor, level, what string }{
		{"1", "36", levelOK, "Kubernetes 1.36"},
		{"1", "35+", levelOK, "Kubernetes 1.35"},
		{"2", "0", levelOK, "Kubernetes 2.0"},
		{"1", "34", levelFail, "older than 1.35"},
		{"1", "9", levelFail, "older than 1.35"},
		{"one", "", levelWarn, "cannot read the version"},
	} {
		if f := versionRule(tt.major, tt.minor, "https://cluster"); f.Level != tt.level || !strings.Contains(f.What, tt.what) {
			t.Errorf("%s.%s: %+v, want %s %q", tt.major, tt.minor, f, tt.level, tt.what)
		}
	}
}

func TestNamespaceRule(t *testing.T) {
	for level, want := range map[string]string{"restricted": levelOK, "baseline": levelWarn, "": levelWarn} {
		f := namespaceRule(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dew", Labels: map[string]string{enforceLabel: level}}})
		if f.Level != want || want == levelWarn && !strings.Contains(f.Do, "kubectl label --overwrite namespace dew pod-security.kubernetes.io/enforce=restricted") {
			t.Errorf("level %q: %+v, want %s", level, f, want)
		}
	}
	now := metav1.Now()
	if f := namespaceRule(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dew", DeletionTimestamp: &now}}); f.Level != levelFail {
		t.Errorf("a namespace that is being deleted: %+v", f)
	}
}

func TestNodesRule(t *testing.T) {
	nodes := func(all ...string) (out []corev1.Node) {
		for _, a := range all {
			out = append(out, corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{Architecture: a}}})
		}
		return out
	}
	for _, tt := range []struct {
		nodes []corev1.Node
		level string
		text  string
	}{
		{nodes("amd64"), levelOK, "1 node, amd64"},
		{nodes("amd64", "amd64"), levelOK, "2 nodes, amd64"},
		{nodes("arm64"), levelFail, "make build-kubernetes ARCH=arm64"},
		{nodes("amd64", "arm64"), levelWarn, "others arm64"},
		{nil, levelFail, "no nodes"},
	} {
		if f := nodesRule(tt.nodes, "amd64"); f.Level != tt.level || !strings.Contains(f.What+" "+f.Do, tt.text) {
			t.Errorf("%+v, want %s %q", f, tt.level, tt.text)
		}
	}
}

// cluster is an API server that answers what the checks ask.
type cluster struct {
	minor     string
	forbidden []string // verb and resource
	objects   map[string]any
}

func (c cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch {
	case r.URL.Path == "/version":
		answer = map[string]string{"major": "1", "minor": c.minor}
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		var review struct {
			Spec struct {
				ResourceAttributes struct{ Verb, Resource string }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked := review.Spec.ResourceAttributes
		answer = map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
			"status": map[string]bool{"allowed": !slices.Contains(c.forbidden, asked.Verb+" "+asked.Resource)},
		}
		w.WriteHeader(http.StatusCreated)
	case c.objects[r.URL.Path] != nil:
		answer = c.objects[r.URL.Path]
	default:
		w.WriteHeader(http.StatusNotFound)
		answer = map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound}
	}
	_ = json.NewEncoder(w).Encode(answer) // the test sees a broken answer
}

// examine runs the checks for a cluster.
func examine(t *testing.T, c cluster, s Subject) map[string]v3.Finding {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: 1000, Burst: 1000, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	s.Client, s.Server, s.Namespace, s.Arch = client, server.URL, "dew", "amd64"
	out := map[string]v3.Finding{}
	for _, f := range s.Examine(t.Context()) {
		out[f.Name] = f
	}
	return out
}

func list(version, kind string, items ...any) map[string]any {
	return map[string]any{"apiVersion": version, "kind": kind, "items": items}
}

// Each requirement that a cluster lacks has a finding with what to do.
func TestExamine(t *testing.T) {
	good := cluster{minor: "36", objects: map[string]any{
		"/apis/storage.k8s.io/v1/storageclasses": list("storage.k8s.io/v1", "StorageClassList", map[string]any{"metadata": map[string]any{"name": "fast", "annotations": map[string]string{defaultClass: "true"}}}),
		"/api/v1/nodes":                          list("v1", "NodeList", map[string]any{"status": map[string]any{"nodeInfo": map[string]string{"architecture": "amd64"}}}),
		"/apis/apps/v1/daemonsets":               list("apps/v1", "DaemonSetList", map[string]any{"metadata": map[string]any{"name": "calico-node"}}),
	}}
	found := examine(t, good, Subject{Install: true, Name: "registry", Registry: func(context.Context) error { return nil }})
	for name, f := range found {
		if f.Level != levelOK || f.Do != "" {
			t.Errorf("%s: %+v, want ok", name, f)
		}
	}
	if len(found) != 7 {
		t.Errorf("%d checks, want 7: %v", len(found), found)
	}
	bad := cluster{minor: "30", forbidden: []string{"create pods", "patch statefulsets", "create namespaces"}, objects: map[string]any{
		"/apis/storage.k8s.io/v1/storageclasses": list("storage.k8s.io/v1", "StorageClassList", map[string]any{"metadata": map[string]any{"name": "slow"}}),
		"/apis/apps/v1/daemonsets":               list("apps/v1", "DaemonSetList"),
	}}
	found = examine(t, bad, Subject{Install: true, Name: "registry", Registry: func(context.Context) error { return errors.New("connection refused") }})
	for name, want := range map[string]string{
		"cluster": "older than 1.35", "permissions": "create namespaces; create pods; patch statefulsets", "storage": "the cluster has slow",
		"registry": "connection refused",
	} {
		if f := found[name]; f.Level != levelFail || f.Do == "" || !strings.Contains(f.What, want) {
			t.Errorf("%s: %+v, want %q", name, f, want)
		}
	}
	if f := found["network policy"]; f.Level != levelWarn {
		t.Errorf("network policy: %+v, want a warning", f)
	}
	var all []v3.Finding
	for _, f := range found {
		all = append(all, f)
	}
	if !Failed(all) {
		t.Error("the checks did not fail")
	}
}

// dewd itself needs fewer permissions, and the namespace must exist.
func TestExamineDaemon(t *testing.T) {
	found := examine(t, cluster{minor: "36", forbidden: []string{"create statefulsets", "update leases"}}, Subject{})
	if f := found["permissions"]; f.Level != levelFail || !strings.Contains(f.What, "update leases") || strings.Contains(f.What, "statefulsets") || !strings.Contains(f.Do, "install again") {
		t.Errorf("permissions: %+v", f)
	}
	if f := found["namespace"]; f.Level != levelFail || !strings.Contains(f.What, "does not exist") {
		t.Errorf("namespace: %+v", f)
	}
	if len(found) != 3 {
		t.Errorf("%d checks, want 3: %v", len(found), found)
	}
}

// Without an answer there is one finding, and not one for each check.
func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	found := Subject{Client: client, Server: server.URL, Namespace: "dew", Install: true}.Examine(t.Context())
	if len(found) != 1 || found[0].Level != levelFail || !strings.Contains(found[0].What, "does not answer at "+server.URL) {
		t.Errorf("findings = %+v, want one", found)
	}
}
