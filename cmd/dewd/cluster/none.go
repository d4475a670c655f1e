//go:build !kubernetes

package cluster

import (
	"context"
	"errors"

	"github.com/dewrun/dew/api/v3"
)

// errNotBuilt says that this dewd has no engine for Kubernetes.
var errNotBuilt = errors.New("this dewd was built without Kubernetes (build it with make build-kubernetes)")

// Open refuses to start.
func Open(context.Context, Options) (*Engine, error) { return nil, errNotBuilt }

// Run refuses to install dewd.
func (i Installation) Run(context.Context, string) error { return errNotBuilt }

// Examine reports that this dewd cannot use the cluster.
func Examine(context.Context, Flags, []string) []v3.Finding {
	return []v3.Finding{{Name: "cluster", Level: "FAIL", What: errNotBuilt.Error(), Do: "make build-kubernetes"}}
}
