package kubetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// Object is a resource of Kubernetes as JSON.
type Object = map[string]any

// Client calls the API of the cluster with the permissions of one user. It has no types
// of Kubernetes, so that tests see what the API sends.
type Client struct {
	server, token string
	ca            []byte
	http          *http.Client
}

func newClient(server, token string, ca []byte) Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	return Client{server: server, token: token, ca: ca, http: &http.Client{Transport: transport, Timeout: time.Minute}}
}

// StatusError is an answer of the API that is no success.
type StatusError struct {
	Code            int
	Reason, Message string
}

func (e *StatusError) Error() string { return fmt.Sprintf("%d %s: %s", e.Code, e.Reason, e.Message) }

// IsCode reports whether err is an answer of the API with this status code.
func IsCode(err error, code int) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == code
}

// Do sends a request to the API. body and into can be nil.
func (c *Client) Do(ctx context.Context, method, path string, body, into any) error {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, reader)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		status := &StatusError{Code: resp.StatusCode, Message: string(text)}
		_ = json.Unmarshal(text, status) // a proxy's answer can be text
		return status
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// Watch calls changed for every change in a collection until ctx is done. The state at
// the beginning counts as changes.
func (c *Client) Watch(ctx context.Context, path string, changed func(kind string, object json.RawMessage)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+path+"?watch=1", http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := (&http.Client{Transport: c.http.Transport}).Do(req) // without a time limit
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &StatusError{Code: resp.StatusCode, Message: "cannot watch " + path}
	}
	for events := json.NewDecoder(resp.Body); ; {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := events.Decode(&event); err != nil {
			return err
		}
		changed(event.Type, event.Object)
	}
}

// Get reads a resource into a value.
func (c *Client) Get(t testing.TB, path string, into any) {
	t.Helper()
	if err := c.Do(t.Context(), http.MethodGet, path, nil, into); err != nil {
		t.Fatalf("cannot get %s: %v", path, err)
	}
}

// Create creates a resource in the collection with this path.
func (c *Client) Create(t testing.TB, path string, object Object) {
	t.Helper()
	if err := c.Do(t.Context(), http.MethodPost, path, object, nil); err != nil {
		t.Fatalf("cannot create a resource in %s: %v", path, err)
	}
}

// Patch changes a resource with a JSON merge patch.
func (c *Client) Patch(t testing.TB, path string, patch Object) {
	t.Helper()
	if err := c.Do(context.WithoutCancel(t.Context()), http.MethodPatch, path, patch, nil); err != nil {
		t.Fatalf("cannot patch %s: %v", path, err)
	}
}

// Restricted are the labels of a namespace that enforce the strictest Pod security
// standard.
var Restricted = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}

// Namespace creates a namespace that is deleted after the test, and returns its name.
func (c *Cluster) Namespace(t testing.TB, labels map[string]string) string {
	t.Helper()
	name := "test-" + strings.ToLower(rand.Text()[:8])
	c.Create(t, "/api/v1/namespaces", Object{"metadata": Object{"name": name, "labels": labels}})
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := c.Do(ctx, http.MethodDelete, "/api/v1/namespaces/"+name, nil, nil); err != nil {
			t.Errorf("cannot delete the namespace %s: %v", name, err)
		}
	})
	// Without this ServiceAccount the API server refuses Pods.
	testkit.Eventually(t, "the namespace has its ServiceAccount", func() error {
		return c.Do(t.Context(), http.MethodGet, "/api/v1/namespaces/"+name+"/serviceaccounts/default", nil, nil)
	})
	return name
}

// Rule is a rule of an RBAC role.
type Rule struct {
	APIGroups     []string `json:"apiGroups"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames,omitempty"`
	Verbs         []string `json:"verbs"`
}

// Login is a user with a client and a kubeconfig file.
type Login struct {
	Client
	Kubeconfig string
}

// ServiceAccount creates a ServiceAccount that has only the permissions of the rules, in
// its namespace, and a token for it.
func (c *Cluster) ServiceAccount(t testing.TB, namespace, name string, rules ...Rule) Login {
	t.Helper()
	core, rbac := "/api/v1/namespaces/"+namespace, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace
	meta := Object{"name": name}
	c.Create(t, core+"/serviceaccounts", Object{"metadata": meta})
	c.Create(t, rbac+"/roles", Object{"metadata": meta, "rules": rules})
	c.Create(t, rbac+"/rolebindings", Object{
		"metadata": meta,
		"roleRef":  Object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
		"subjects": []Object{{"kind": "ServiceAccount", "name": name, "namespace": namespace}},
	})
	return c.Token(t, namespace, name)
}

// Token requests a token for a ServiceAccount.
func (c *Cluster) Token(t testing.TB, namespace, name string) Login {
	t.Helper()
	var answer struct{ Status struct{ Token string } }
	path := "/api/v1/namespaces/" + namespace + "/serviceaccounts/" + name + "/token"
	if err := c.Do(t.Context(), http.MethodPost, path, Object{"spec": Object{"expirationSeconds": 7200}}, &answer); err != nil {
		t.Fatalf("cannot get a token of %s: %v", name, err)
	}
	login := Login{
		Client:     newClient(c.server, answer.Status.Token, c.ca),
		Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"),
	}
	if err := writeKubeconfig(login, namespace, name); err != nil {
		t.Fatal(err)
	}
	return login
}

// writeKubeconfig writes the kubeconfig file of a login. JSON is valid YAML.
func writeKubeconfig(login Login, namespace, name string) error {
	text, err := json.MarshalIndent(Object{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []Object{{"name": "test", "cluster": Object{
			"server": login.server, "certificate-authority-data": base64.StdEncoding.EncodeToString(login.ca),
		}}},
		"users":    []Object{{"name": name, "user": Object{"token": login.token}}},
		"contexts": []Object{{"name": "test", "context": Object{"cluster": "test", "user": name, "namespace": namespace}}},
	}, "", "  ")
	if err != nil {
		return err
	}
	file, err := os.OpenFile(login.Kubeconfig, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}
