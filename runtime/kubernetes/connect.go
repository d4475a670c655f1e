package kubernetes

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The limits of calls to the API server, in calls per second.
const (
	callRate  = 200
	callBurst = 400
)

// Connect returns a client for the cluster of a kubeconfig file, or for the cluster that
// dewd runs in if there is no file. It also returns the address of the API server.
func Connect(kubeconfig string) (kubernetes.Interface, string, error) {
	load := rest.InClusterConfig
	if kubeconfig != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	cfg, err := load()
	if err != nil {
		return nil, "", fmt.Errorf("cannot find the cluster: %w (set --kubeconfig if dewd does not run in the cluster)", err)
	}
	cfg.QPS, cfg.Burst = callRate, callBurst
	c, err := kubernetes.NewForConfig(cfg)
	return c, cfg.Host, err
}
