package containerd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dewrun/dew/runtime"
)

// The caller tries again if the service is unavailable, and otherwise gives up. The
// kind of error therefore decides between a retry and a crash.
func TestStartError(t *testing.T) {
	t.Parallel()
	mine := &runtime.StartError{Exec: "sidecar-0", Source: "APP/PROC/WEB/SIDECAR/A", Reason: "no such file"}
	tests := []struct {
		name        string
		err         error
		unavailable bool
		reason      string // reason of the StartError
	}{
		{"start error", mine, false, "no such file"},
		{"start error inside", fmt.Errorf("cannot: %w", mine), false, "no such file"},
		{"disk full", fmt.Errorf("cannot write: %w", unix.ENOSPC), false, "the disk is full: free some space (cannot write: no space left on device)"},
		{
			"disk full at containerd", status.Error(codes.Unknown, "failed to mkdir: mkdir /x: no space left on device"), false,
			"the disk is full: free some space (",
		},
		{"disk full while unavailable", fmt.Errorf("%w: %w", runtime.ErrUnavailable, unix.ENOSPC), false, "the disk is full"},
		{"already unavailable", fmt.Errorf("%w: gate", runtime.ErrUnavailable), true, ""},
		{"grpc unavailable", status.Error(codes.Unavailable, "connection refused"), true, ""},
		{"grpc unavailable inside", fmt.Errorf("cannot create task: %w", status.Error(codes.Unavailable, "closing")), true, ""},
		{"native unavailable", fmt.Errorf("cannot create task: %w", errdefs.ErrUnavailable), true, ""},
		{"grpc deadline", status.Error(codes.DeadlineExceeded, "context deadline exceeded"), true, ""},
		{"deadline", fmt.Errorf("cannot create container: %w", context.DeadlineExceeded), true, ""},
		{"canceled", fmt.Errorf("cannot create container: %w", context.Canceled), true, ""},
		{"shim gone", status.Error(codes.Unknown, "ttrpc: closed"), true, ""},
		{"runc", errors.New("cannot start task: runc create failed:\n\tunable to start:\n  exec: \"x\"\n"), false, `cannot start task: runc create failed: unable to start: exec: "x"`},
		{"already there", fmt.Errorf("cannot create container: %w", errdefs.ErrAlreadyExists), false, "cannot create container: already exists"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := startError(tt.err)
			if u := errors.Is(got, runtime.ErrUnavailable); u != tt.unavailable && tt.reason == "" {
				t.Errorf("%v: unavailable = %v, want %v", got, u, tt.unavailable)
			}
			var se *runtime.StartError
			if isStart := errors.As(got, &se); isStart != (tt.reason != "") {
				t.Fatalf("%v is a start error: %v, want %v", got, isStart, !isStart)
			}
			if se == nil {
				if !errors.Is(got, tt.err) {
					t.Errorf("%v does not hold its cause", got)
				}
				return
			}
			if !strings.HasPrefix(se.Reason, tt.reason) || strings.ContainsAny(se.Reason, "\n\t") {
				t.Errorf("reason = %q, want one line that begins with %q", se.Reason, tt.reason)
			}
			if tt.reason == mine.Reason && se != mine {
				t.Errorf("a start error became %+v, want it unchanged", se)
			}
			if se != mine && !errors.Is(got, tt.err) {
				t.Errorf("%v does not hold its cause", got)
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "plain": "plain", "a\nb\r\n\n  c\t": "a b c", "ä\u00a0ö": "ä ö",
	} {
		if got := oneLine(errors.New(in)); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", in, got, want)
		}
	}
}
