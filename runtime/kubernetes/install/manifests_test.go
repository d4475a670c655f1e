package install

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/runtime/kubernetes/preflight"
)

func objects(t *testing.T, s Settings) map[string]Object {
	t.Helper()
	all, err := Objects(s)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Object{}
	for _, o := range all {
		out[o.String()] = o
	}
	return out
}

// Every setting is in the manifests.
func TestObjects(t *testing.T) {
	all := objects(t, Settings{
		Namespace: "shop", Image: "registry.example.com/dewd:1", Env: map[string]string{"DEW_REGISTRY": "registry.example.com/shop", "DEW_LOG_RETENTION": "1G"},
		Registry: []byte(`{"auths":{}}`), StorageClass: "fast", StorageSize: "20Gi", LoadBalancer: true,
	})
	var paths []string
	for name, o := range all {
		if name != "namespace/shop" && text(o, "metadata", "namespace") != "shop" {
			t.Errorf("%s is in namespace %q", name, text(o, "metadata", "namespace"))
		}
		paths = append(paths, o.path())
	}
	slices.Sort(paths)
	want := []string{
		"/api/v1/namespaces/shop", "/api/v1/namespaces/shop/secrets/dew-registry", "/api/v1/namespaces/shop/serviceaccounts/dewd",
		"/api/v1/namespaces/shop/services/dewd", "/api/v1/namespaces/shop/services/dewd-agents", "/api/v1/namespaces/shop/services/dewd-public",
		"/apis/apps/v1/namespaces/shop/statefulsets/dewd", "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/dewd",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles/dewd",
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	if got := text(all["rolebinding/dewd"]["subjects"].([]any)[0], "namespace"); got != "shop" {
		t.Errorf("the permissions are for namespace %q", got)
	}
	daemon, err := json.Marshal(all["statefulset/dewd"])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"image":"registry.example.com/dewd:1"`, `{"name":"DEW_REGISTRY","value":"registry.example.com/shop"}`, `{"name":"DEW_LOG_RETENTION","value":"1G"}`,
		`"imagePullSecrets":[{"name":"dew-registry"}]`, `{"name":"DEW_PULL_SECRET","value":"dew-registry"}`, `"storageClassName":"fast"`, `"storage":"20Gi"`,
		`"runAsNonRoot":true`, `"allowPrivilegeEscalation":false`, `"readOnlyRootFilesystem":true`, `"drop":["ALL"]`,
	} {
		if !strings.Contains(string(daemon), want) {
			t.Errorf("the StatefulSet does not contain %s:\n%s", want, daemon)
		}
	}
	if strings.Count(string(daemon), `"DEW_REGISTRY"`) != 1 {
		t.Errorf("DEW_REGISTRY is not set once:\n%s", daemon)
	}
}

// The ports of TCP routes are in the Services for clients, and not in that for agents.
func TestTCPPorts(t *testing.T) {
	all := objects(t, Settings{Namespace: "dew", LoadBalancer: true, TCPPorts: []int{20000, 20001}})
	for name, want := range map[string]int{"service/dewd": 2, "service/dewd-public": 2, "service/dewd-agents": 0} {
		b, err := json.Marshal(all[name])
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(b), `"name":"tcp-2000`); got != want {
			t.Errorf("%s has %d ports of TCP routes, want %d:\n%s", name, got, want, b)
		}
	}
}

// The manifests of the next installation do not have the settings of the last one.
func TestObjectsAreFresh(t *testing.T) {
	objects(t, Settings{Namespace: "a", StorageClass: "fast", PullSecret: "secret"})
	b, err := json.Marshal(objects(t, Settings{Namespace: "b"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{`"namespace":"a"`, "fast", `"secret"}`} {
		if strings.Contains(string(b), other) {
			t.Errorf("the manifests contain %s", other)
		}
	}
}

// kubectl reads the printed manifests.
func TestYAML(t *testing.T) {
	all, err := Objects(Settings{Namespace: "dew", Image: "x"})
	if err != nil {
		t.Fatal(err)
	}
	printed, err := YAML(all)
	if err != nil {
		t.Fatal(err)
	}
	var again []Object
	for doc := range strings.SplitSeq(string(printed), "---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		again = append(again, o)
	}
	if diff := cmp.Diff(all, again); diff != "" {
		t.Errorf("the printed manifests differ:\n%s", diff)
	}
}

// permissions returns the rules of the Role.
func permissions(t *testing.T) (out []preflight.Permission) {
	t.Helper()
	b, err := json.Marshal(objects(t, Settings{Namespace: "dew"})["role/dewd"]["rules"])
	if err != nil {
		t.Fatal(err)
	}
	var rules []struct{ APIGroups, Resources, ResourceNames, Verbs []string }
	if err := json.Unmarshal(b, &rules); err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		p := preflight.Permission{Group: r.APIGroups[0], Resource: r.Resources[0], Verbs: r.Verbs}
		if len(r.ResourceNames) > 0 {
			p.Name = r.ResourceNames[0]
		}
		out = append(out, p)
	}
	return out
}

// dewd doctor checks the permissions of the Role.
func TestCheckedPermissions(t *testing.T) {
	if diff := cmp.Diff(permissions(t), preflight.Daemon); diff != "" {
		t.Errorf("the Role and the checks differ (-Role +checks):\n%s", diff)
	}
}

// The table of permissions in the documentation equals the Role.
func TestDocumentedPermissions(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z/]+)`( `[a-z-]+`)? \\| (`[a-z]+`(?:, `[a-z]+`)*) \\| .+ \\|$").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, row[1]+row[2]+": "+row[3])
	}
	var want []string
	for _, p := range permissions(t) {
		name := ""
		if p.Name != "" {
			name = " `" + p.Name + "`"
		}
		want = append(want, p.Resource+name+": `"+strings.Join(p.Verbs, "`, `")+"`")
	}
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("the table in docs/kubernetes.md differs (-Role +page):\n%s", diff)
	}
}

// The folders work with kubectl apply -k.
func TestKustomize(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed")
	}
	for folder, want := range map[string]string{"base": "kind: StatefulSet", "loadbalancer": "type: LoadBalancer", "ingress": "kind: Ingress"} {
		out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", filepath.Join("..", "..", "..", "dist", "kubernetes", folder)).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), "kind: Role") {
			t.Errorf("%s: %v, want %q and a Role:\n%s", folder, err, want, out)
		}
	}
}
