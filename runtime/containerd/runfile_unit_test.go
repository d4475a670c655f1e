package containerd_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/testkit"
)

// self stands for a launcher that runs.
var self = runfile.Process{PID: os.Getpid(), Born: process.BornAt(os.Getpid())}

func newFIFO(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "main.gate")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// began is the time of a start.
var began = time.Unix(1763160000, 0)

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
	if err := runfile.OpenGate(ctx, path, self, began); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || string(r.data) != "2025-11-14 22:40:00 +0000\n" {
		t.Errorf("the launcher read %q, %v, want the time of the start and the end", r.data, r.err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the gate is still there: %v", err)
	}
	if err := runfile.OpenGate(ctx, path, self, began); err != nil {
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
	err := runfile.OpenGate(ctx, path, self, began)
	if !errors.Is(err, runtime.ErrUnavailable) || !errors.Is(err, unix.ENXIO) || !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want unavailable, because of no reader, canceled", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the closed gate is gone: %v", err)
	}
}

// If the launcher was killed, nothing ever opens its gate.
func TestOpenGateOfEndedLauncher(t *testing.T) {
	t.Parallel()
	err := runfile.OpenGate(t.Context(), newFIFO(t), runfile.Process{PID: self.PID, Born: self.Born + 1}, began)
	if !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), "the process ended") {
		t.Errorf("error = %v, want unavailable, because the process ended", err)
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
		if err := runfile.Write(path, step.data, step.mode); err != nil {
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
	if err := runfile.Write(filepath.Join(dir, "absent", "file"), "", 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into no folder: %v, want %v", err, fs.ErrNotExist)
	}
}
