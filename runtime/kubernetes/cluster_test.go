//go:build k8stest

package kubernetes

import (
	"context"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dewrun/dew/runtime/kubernetes/images"
	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/runtime/runtimetest"
)

// agentRules are the permissions that the engine needs in its namespace.
var agentRules = []kubetest.Rule{
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get", "list", "watch", "patch", "delete"}},
	{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
	{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "update"}},
	{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"create", "list", "patch", "delete"}},
}

// agentImage pushes the image of the agent to the registry of the cluster, once.
var agentImage = sync.OnceValues(func() (string, error) {
	dir, err := programs()
	if err != nil {
		return "", err
	}
	return (&images.Store{Prefix: os.Getenv("DEW_CLUSTER_REGISTRY"), Insecure: true}).PushPrograms(context.Background(), dir)
})

// newClusterWorld returns a world in a namespace of its own, with the permissions that
// dewd has.
func newClusterWorld(t testing.TB) *world {
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
	w := &world{TB: t, client: client, namespace: namespace, host: host, image: image, stack: cluster.StackImage(t), appDir: homeDir + "/app", dir: t.TempDir()}
	t.Cleanup(w.leave)
	return w
}

// The engine fulfills the same contract on a real cluster.
func TestEngineSuite(t *testing.T) {
	runtimetest.EngineSuite(t, func(t *testing.T) runtimetest.SuiteConfig { return newClusterWorld(t).suite() })
}
