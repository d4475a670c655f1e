package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
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
			got := (&Engine{}).startError(tt.err)
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

func newFIFO(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "main.gate")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The reader can open the gate after the writer: that is not an error.
func TestOpenGate(t *testing.T) {
	t.Parallel()
	path := newFIFO(t)
	type read struct {
		data []byte
		err  error
	}
	done := make(chan read, 1)
	time.AfterFunc(2*time.Millisecond, func() {
		f, err := os.Open(path)
		if err != nil {
			done <- read{nil, err}
			return
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		done <- read{data, err}
	})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if err := openGate(ctx, path); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || string(r.data) != "\n" {
		t.Errorf("the launcher read %q, %v, want one newline and the end", r.data, r.err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the gate is still there: %v", err)
	}
	if err := openGate(ctx, path); err != nil {
		t.Errorf("a gate that was opened before: %v", err)
	}
}

// A gate without a reader does not mean that the app is at fault: the start is tried
// again.
func TestOpenGateWithoutReader(t *testing.T) {
	t.Parallel()
	path := newFIFO(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := openGate(ctx, path)
	if !errors.Is(err, runtime.ErrUnavailable) || !errors.Is(err, unix.ENXIO) || !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want unavailable, because of no reader, canceled", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the closed gate is gone: %v", err)
	}
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, step := range []struct {
		data string
		mode fs.FileMode
	}{{"long first text", 0o600}, {"short", 0o666}} { // 0666: independent of the umask
		if err := writeFile(path, step.data, step.mode); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil || string(b) != step.data {
			t.Errorf("file = %q, %v, want %q", b, err, step.data)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != step.mode {
			t.Errorf("mode = %v, %v, want %v", st.Mode(), err, step.mode)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("folder holds %v, %v, want one file", entries, err)
	}
	if err := writeFile(filepath.Join(dir, "absent", "file"), "", 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into no folder: %v, want %v", err, fs.ErrNotExist)
	}
}

func TestResolvConf(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "",
		"nameserver 127.0.0.53\nsearch example\n":                                                "search example\n",
		"# by hand\nnameserver 10.0.0.1\nnameserver 127.0.0.1\n nameserver\t::1 \noptions edns0": "# by hand\nnameserver 10.0.0.1\noptions edns0",
		"nameserver 2001:db8::1\nnameserver 12.7.0.1\n":                                          "nameserver 2001:db8::1\nnameserver 12.7.0.1\n",
		"nameserver\n": "nameserver\n",
	} {
		if got := resolvConf(testkit.WriteFile(t, filepath.Join(t.TempDir(), "resolv.conf"), in)); got != want {
			t.Errorf("resolvConf of %q = %q, want %q", in, got, want)
		}
	}
	dir := t.TempDir()
	absent := filepath.Join(dir, "absent")
	local := testkit.WriteFile(t, filepath.Join(dir, "local"), "nameserver 127.0.0.53\nsearch local\n")
	reachable := testkit.WriteFile(t, filepath.Join(dir, "real"), "nameserver 10.0.0.1\nsearch real\n")
	for _, tt := range []struct {
		paths []string
		want  string
	}{
		{[]string{local, reachable}, "nameserver 10.0.0.1\nsearch real\n"},
		{[]string{reachable, local}, "nameserver 10.0.0.1\nsearch real\n"},
		{[]string{local, absent}, "search local\n"},
		{[]string{absent, reachable}, "nameserver 10.0.0.1\nsearch real\n"},
	} {
		if got := resolvConf(tt.paths...); got != tt.want {
			t.Errorf("resolvConf of %q = %q, want %q", tt.paths, got, tt.want)
		}
	}
	if got := resolvConf(absent); got != "" {
		t.Errorf("without a file = %q, want nothing", got)
	}
}
