package connection

import (
	"context"
	"errors"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/status"
)

// Native converts an error of containerd to its native type. Some calls return
// converted errors, and a second conversion would lose the type.
func Native(err error) error {
	if _, ok := status.FromError(err); ok {
		return errgrpc.ToNative(err)
	}
	return err
}

// IsUnavailable reports whether an error is about the connection to containerd, not about
// the request. Such an error is never an exit.
func IsUnavailable(err error) bool {
	err = Native(err)
	return errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err) || errdefs.IsCanceled(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		strings.Contains(err.Error(), "ttrpc: closed") // the shim's connection: containerd does not give it a type
}

// IsNotFound reports whether containerd does not have the resource.
func IsNotFound(err error) bool { return errdefs.IsNotFound(Native(err)) }
