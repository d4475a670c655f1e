//go:build integration

package containerd

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bootstrap "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/shim"
)

// A containerd that is killed while it starts a shim leaves a shim without a bundle,
// which only the process list shows. The sweep removes it, but not that of a running
// instance.
func TestLostShimIsSwept(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{name: "shimmy", memory: 64, command: idle})
	st := w.running(p)
	lost := names.Container(runtime.NewInstanceID())
	bundle := filepath.Join(w.run, "bundle")
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(bundle, "log") // containerd reads it
	if err := unix.Mkfifo(log, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(log, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	startShim(t, bundle, w.engine.cfg.Names.Namespace, lost, w.address)
	for said, sc := "", bufio.NewScanner(reader); !strings.Contains(said, "starting signal loop") && sc.Scan(); {
		said = sc.Text()
	}
	if err := os.RemoveAll(bundle); err != nil {
		t.Fatal(err)
	}
	all, err := shim.List(w.engine.cfg.Names.Namespace)
	if err != nil || all[lost] == 0 || all[names.Container(st.Instance)] == 0 || len(all) != 2 {
		t.Fatalf("shims: %v, %v; want the lost one and that of the instance", all, err)
	}
	// containerd can still be starting it: its removal waits.
	id, _ := names.Instance(lost)
	w.engine.removals.addLate(id, "")
	if err := w.engine.removeContainer(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	if all, err := shim.List(w.engine.cfg.Names.Namespace); err != nil || all[lost] == 0 {
		t.Fatalf("shims: %v, %v; want that of the call in progress", all, err)
	}
	w.engine.removals.lateTime = time.Nanosecond
	w.engine.removals.due()
	if err := w.engine.Sweep(t.Context(), map[runtime.InstanceID]bool{st.Instance: true}); err != nil {
		t.Fatal(err)
	}
	w.eventually("only the instance's shim", func() error {
		if all, err = shim.List(w.engine.cfg.Names.Namespace); err != nil || len(all) != 1 || all[names.Container(st.Instance)] == 0 {
			return fmt.Errorf("shims: %v, %w", all, err)
		}
		return nil
	})
	if now := w.running(p); now.Instance != st.Instance {
		t.Error("the instance was replaced")
	}
}

// startShim starts a shim as containerd does. Shims since containerd 2.4 read their
// parameters from standard input.
func startShim(t *testing.T, bundle, namespace, id, address string) {
	t.Helper()
	params, err := proto.Marshal(&bootstrap.BootstrapParams{
		InstanceID: id, Namespace: namespace, LogLevel: bootstrap.LogLevel_LOG_LEVEL_DEBUG, ContainerdGrpcAddress: address, ContainerdTtrpcAddress: address + ".ttrpc",
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, input := range [][]byte{nil, params} {
		start := exec.Command("containerd-shim-runc-v2", "-namespace", namespace, "-id", id, "-address", address, "start")
		start.Dir, start.Stdin = bundle, bytes.NewReader(input)
		if out, err = start.CombinedOutput(); err == nil {
			return
		}
	}
	t.Fatalf("%v: %s", err, out)
}
