// Package kubernetes has the manifests of dewd in a Kubernetes cluster.
package kubernetes

import "embed"

// Files has the manifests: base for every cluster, and loadbalancer for one with load
// balancers.
//
//go:embed base/*.yaml loadbalancer/service.yaml
var Files embed.FS
