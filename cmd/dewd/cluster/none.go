//go:build !kubernetes

package cluster

import (
	"context"
	"errors"
)

// Open refuses to start: this dewd has no engine for Kubernetes.
func Open(context.Context, Options) (*Engine, error) {
	return nil, errors.New("this dewd was built without Kubernetes (build it with make build-kubernetes)")
}
