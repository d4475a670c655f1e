package network

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dewrun/dew/runtime"
)

// someInstance is the instance id in the golden files.
const someInstance runtime.InstanceID = "0a1b2c3d-0000-4000-8000-abcd"

// soon is the limit for waits for other threads and processes. Only a hang reaches it.
const soon = time.Minute

func writeTestFile(t testing.TB, path, data string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func touch(t testing.TB, dir string, files ...string) {
	t.Helper()
	for _, f := range files {
		writeTestFile(t, filepath.Join(dir, f), "")
	}
}
