package containerd_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dewrun/dew/runtime/containerd/connection"
)

var someTime = time.Date(2025, 11, 15, 3, 0, 0, 0, time.UTC)

// fakeTasks answers the calls of a test. Functions that a test does not set must not be
// called.
type fakeTasks struct {
	tasks.TasksClient
	wait   func(n int) (*tasks.WaitResponse, error)
	get    func() (*tasks.GetResponse, error)
	delete func(n int) error
	calls  int
}

func (f *fakeTasks) Wait(context.Context, *tasks.WaitRequest, ...grpc.CallOption) (*tasks.WaitResponse, error) {
	f.calls++
	return f.wait(f.calls)
}

func (f *fakeTasks) Get(context.Context, *tasks.GetRequest, ...grpc.CallOption) (*tasks.GetResponse, error) {
	return f.get()
}

func (f *fakeTasks) DeleteProcess(context.Context, *tasks.DeleteProcessRequest, ...grpc.CallOption) (*tasks.DeleteResponse, error) {
	f.calls++
	return &tasks.DeleteResponse{}, f.delete(f.calls)
}

// Every open Wait fails when containerd is killed. That is not an exit.
func TestWaitOutlivesContainerd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTasks{
			wait: func(n int) (*tasks.WaitResponse, error) {
				if n <= 20 {
					return &tasks.WaitResponse{ExitStatus: 255}, status.Error(codes.Unavailable, "error reading from server: EOF")
				}
				return &tasks.WaitResponse{ExitStatus: 3, ExitedAt: timestamppb.New(someTime)}, nil
			},
			get: func() (*tasks.GetResponse, error) { return nil, status.Error(codes.Unavailable, "connection refused") },
		}
		code, at, err := (&connection.Connection{Tasks: f}).Wait(t.Context(), "dew-x", "main")
		if code != 3 || !at.Equal(someTime) || err != nil {
			t.Errorf("end = %d at %v, %v, want 3 at %v", code, at, err, someTime)
		}
	})
}

// Only containerd itself can report that a process is lost.
func TestWaitForALostProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTasks{
			wait: func(int) (*tasks.WaitResponse, error) { return nil, status.Error(codes.Unknown, "ttrpc: closed") },
			get:  func() (*tasks.GetResponse, error) { return nil, status.Error(codes.NotFound, "no running task found") },
		}
		if _, at, err := (&connection.Connection{Tasks: f}).Wait(t.Context(), "dew-x", "main"); !connection.IsNotFound(err) || at.IsZero() {
			t.Errorf("end at %v, %v, want not found, with a time", at, err)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		f := &fakeTasks{
			wait: func(int) (*tasks.WaitResponse, error) { return nil, status.Error(codes.Unavailable, "away") },
			get:  func() (*tasks.GetResponse, error) { return nil, status.Error(codes.Unavailable, "away") },
		}
		if _, _, err := (&connection.Connection{Tasks: f}).Wait(ctx, "dew-x", "main"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v, want %v", err, context.DeadlineExceeded)
		}
		if f.calls > 100 {
			t.Errorf("asked %d times in a minute", f.calls)
		}
	})
}

func TestDeletionIsRepeated(t *testing.T) {
	t.Parallel()
	broken := status.Error(codes.InvalidArgument, "bad id")
	tests := []struct {
		name  string
		first error // error of the first three calls
		calls int
		want  error
	}{
		{"at once", nil, 1, nil},
		{"gone already", status.Error(codes.NotFound, "process not found"), 1, nil},
		{"containerd away", status.Error(codes.Unavailable, "connection refused"), 4, nil},
		{"not reaped yet", status.Error(codes.FailedPrecondition, "process must be stopped"), 4, nil},
		{"shim away", status.Error(codes.Unknown, "ttrpc: closed"), 4, nil},
		{"refused", broken, 1, connection.Native(broken)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fakeTasks{delete: func(n int) error {
					if n <= 3 {
						return tt.first
					}
					return nil
				}}
				err := (&connection.Connection{Tasks: f}).DeleteExec(t.Context(), "dew-x", "main")
				if (err == nil) != (tt.want == nil) || err != nil && err.Error() != tt.want.Error() {
					t.Errorf("error = %v, want %v", err, tt.want)
				}
				if f.calls != tt.calls {
					t.Errorf("asked %d times, want %d", f.calls, tt.calls)
				}
			})
		})
	}
}

func TestDeletionGivesUpWithBothReasons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		f := &fakeTasks{delete: func(int) error { return status.Error(codes.FailedPrecondition, "process must be stopped") }}
		err := (&connection.Connection{Tasks: f}).DeleteExec(ctx, "dew-x", "main")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "process must be stopped") {
			t.Errorf("error = %v, want what containerd said and that time is up", err)
		}
	})
}
