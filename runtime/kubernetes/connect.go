package kubernetes

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The limits of calls to the API server, in calls per second.
const (
	callRate  = 200
	callBurst = 400
)

// Client calls the API of a cluster.
type Client = kubernetes.Interface

// Connect returns a client for the cluster of a kubeconfig file, or for the cluster that
// dewd runs in if there is no file. It also returns the address of the API server. All
// requests go through guard.
func Connect(kubeconfig string, guard func(http.RoundTripper) http.RoundTripper) (kubernetes.Interface, string, error) {
	cfg, err := config(kubeconfig)
	if err != nil {
		return nil, "", err
	}
	cfg.Wrap(guard)
	cfg.QPS, cfg.Burst = callRate, callBurst
	c, err := kubernetes.NewForConfig(cfg)
	return c, cfg.Host, err
}

func config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("cannot find the cluster: %w (set --kubeconfig if dewd does not run in the cluster)", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot read the file of --kubeconfig: %w (check the path and the content of the file)", err)
	}
	return cfg, nil
}

// ConnectUser returns a client for the cluster that kubectl uses, with the permissions of
// the user. The file and the context can be empty. It also returns the address of the API
// server.
func ConnectUser(kubeconfig, context string) (Client, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", errors.New("no cluster found: there is no kubeconfig file (set its path with --kubeconfig)")
	}
	if err != nil {
		return nil, "", fmt.Errorf("cannot read the kubeconfig file: %w (check --kubeconfig and --context)", err)
	}
	cfg.QPS, cfg.Burst = callRate, callBurst
	c, err := kubernetes.NewForConfig(cfg)
	return c, cfg.Host, err
}
