//go:build k8stest

package kubernetes

import (
	"archive/tar"
	"bytes"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/runtime/runtimetest"
)

// agentRules are the permissions that the engine needs in its namespace.
var agentRules = []kubetest.Rule{
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get", "list", "watch", "patch", "delete"}},
	{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "update"}},
}

// agentImage pushes the image of the agent to the registry of the cluster, once.
var agentImage = sync.OnceValues(func() (string, error) {
	dir, err := programs()
	if err != nil {
		return "", err
	}
	image := os.Getenv("DEW_CLUSTER_REGISTRY") + "/dew-pod:test"
	ref, err := name.ParseReference(image, name.Insecure)
	if err != nil {
		return "", err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return programsTar(dir) })
	if err != nil {
		return "", err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err == nil {
		img, err = mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: must(img.ConfigFile()).RootFS})
	}
	if err != nil {
		return "", err
	}
	return image, remote.Write(ref, img)
})

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// programsTar returns a layer with the programs.
func programsTar(dir string) (io.ReadCloser, error) {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for _, program := range []string{"dew-pod", "dew-init", "dew-sftp"} {
		data, err := os.ReadFile(filepath.Join(dir, program))
		if err != nil {
			return nil, err
		}
		if err := t.WriteHeader(&tar.Header{Name: program, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := t.Write(data); err != nil {
			return nil, err
		}
	}
	return io.NopCloser(&b), t.Close()
}

// newClusterWorld returns a world in a namespace of its own, with the permissions that
// dewd has.
func newClusterWorld(t *testing.T) *world {
	cluster := kubetest.Open(t)
	namespace := cluster.Namespace(t, kubetest.Restricted)
	login := cluster.ServiceAccount(t, namespace, "dewd", agentRules...)
	cfg, err := clientcmd.BuildConfigFromFlags("", login.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(server.Host)
	if err != nil {
		t.Fatal(err)
	}
	image, err := agentImage()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, client: client, namespace: namespace, host: host, image: image, stack: cluster.StackImage(t), appDir: homeDir + "/app", dir: t.TempDir()}
	t.Cleanup(w.leave)
	return w
}

// The engine fulfills the same contract on a real cluster.
func TestEngineSuite(t *testing.T) {
	runtimetest.EngineSuite(t, func(t *testing.T) runtimetest.SuiteConfig { return newClusterWorld(t).suite() })
}
