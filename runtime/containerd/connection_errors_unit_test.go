package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dewrun/dew/runtime/containerd/connection"
)

// An error of the connection to containerd says nothing about a process.
func TestKindsOfErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                  string
		err                   error
		unavailable, notFound bool
	}{
		{"grpc unavailable", status.Error(codes.Unavailable, "error reading from server: EOF"), true, false},
		{"grpc deadline", status.Error(codes.DeadlineExceeded, "late"), true, false},
		{"grpc canceled", status.Error(codes.Canceled, "grpc: the client connection is closing"), true, false},
		{"grpc not found", status.Error(codes.NotFound, "no running task found: task dew-x not found"), false, true},
		{"grpc unknown", status.Error(codes.Unknown, "runc did not terminate successfully"), false, false},
		{"grpc failed precondition", status.Error(codes.FailedPrecondition, "process must be stopped"), false, false},
		{"grpc internal", status.Error(codes.Internal, "bolt"), false, false},
		{"shim gone", status.Error(codes.Unknown, "ttrpc: closed: unknown"), true, false},
		{"shim gone, native", errors.New("cannot: ttrpc: closed"), true, false},
		{"native unavailable", fmt.Errorf("x: %w", errdefs.ErrUnavailable), true, false},
		{"native not found", fmt.Errorf("x: %w", errdefs.ErrNotFound), false, true},
		{"native deadline", fmt.Errorf("x: %w", context.DeadlineExceeded), true, false},
		{"native canceled", fmt.Errorf("x: %w", context.Canceled), true, false},
		{"made native before", errgrpc.ToNative(status.Error(codes.Unavailable, "closing")), true, false},
		{"made native and wrapped", fmt.Errorf("x: %w", errgrpc.ToNative(status.Error(codes.NotFound, "gone"))), false, true},
		{"grpc inside", fmt.Errorf("cannot delete: %w", status.Error(codes.NotFound, "gone")), false, true},
		{"joined", errors.Join(errors.New("first"), fmt.Errorf("x: %w", errdefs.ErrUnavailable)), true, false},
		{"plain", errors.New("something else"), false, false},
	}
	for _, tt := range tests {
		if got := connection.IsUnavailable(tt.err); got != tt.unavailable {
			t.Errorf("%s: unavailable = %v, want %v", tt.name, got, tt.unavailable)
		}
		if got := connection.IsNotFound(tt.err); got != tt.notFound {
			t.Errorf("%s: not found = %v, want %v", tt.name, got, tt.notFound)
		}
		if once, twice := connection.Native(tt.err), connection.Native(connection.Native(tt.err)); connection.IsUnavailable(once) != connection.IsUnavailable(twice) || connection.IsNotFound(once) != connection.IsNotFound(twice) {
			t.Errorf("%s: %v becomes %v by asking twice", tt.name, once, twice)
		}
	}
	if connection.IsNotFound(nil) || connection.Native(nil) != nil {
		t.Error("no error became one")
	}
}
