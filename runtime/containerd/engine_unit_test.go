package containerd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dewrun/dew/runtime"
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
		if got := unavailable(tt.err); got != tt.unavailable {
			t.Errorf("%s: unavailable = %v, want %v", tt.name, got, tt.unavailable)
		}
		if got := notFound(tt.err); got != tt.notFound {
			t.Errorf("%s: not found = %v, want %v", tt.name, got, tt.notFound)
		}
		if once, twice := native(tt.err), native(native(tt.err)); unavailable(once) != unavailable(twice) || notFound(once) != notFound(twice) {
			t.Errorf("%s: %v becomes %v by asking twice", tt.name, once, twice)
		}
	}
	if notFound(nil) || native(nil) != nil {
		t.Error("no error became one")
	}
}

func TestKnownTasks(t *testing.T) {
	t.Parallel()
	e := &Engine{cfg: Config{Run: "/run/dew"}, known: map[runtime.InstanceID]*container{}}
	a, b := &container{spec: runtime.Spec{Instance: someInstance}}, &container{spec: runtime.Spec{Instance: runtime.NewInstanceID()}}
	e.remember(a)
	e.remember(b)
	if !e.knows(a.spec.Instance) || len(e.living()) != 2 {
		t.Errorf("living = %v, want both", e.living())
	}
	if got := e.forget(a.spec.Instance); got != a {
		t.Errorf("forgot %v, want %v", got, a)
	}
	if e.forget(a.spec.Instance) != nil || e.knows(a.spec.Instance) || !e.knows(b.spec.Instance) {
		t.Error("a forgotten task is known, or the other one is not")
	}
	if got, want := e.instanceDir(someInstance), filepath.Join("/run/dew/instances", string(someInstance)); got != want {
		t.Errorf("folder = %q, want %q", got, want)
	}
}
