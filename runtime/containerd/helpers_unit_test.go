package containerd

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup"
)

// someInstance is the instance id in the golden files.
const someInstance runtime.InstanceID = "0a1b2c3d-0000-4000-8000-abcd"

func contents(t testing.TB, dir string, files ...string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		got[f] = string(b)
	}
	return got
}

// checkFiles compares control files with the expected content.
func checkFiles(t testing.TB, dir string, want map[string]string) {
	t.Helper()
	var names []string
	for f := range want {
		names = append(names, f)
	}
	if diff := cmp.Diff(contents(t, dir, names...), want); diff != "" {
		t.Errorf("%s (-got +want):\n%s", filepath.Base(dir), diff)
	}
}

func signalOf(err error) syscall.Signal {
	var ee *exec.ExitError
	if !errors.As(err, &ee) {
		return 0
	}
	return ee.Sys().(syscall.WaitStatus).Signal()
}

func fakeV2(t testing.TB) *cgroup.Hierarchies {
	root := t.TempDir()
	return &cgroup.Hierarchies{Parent: "dew", Unified: root, V1: map[string]string{}, All: []string{root}}
}
