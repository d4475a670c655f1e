//go:build integration || k8stest

package kubernetes

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/runtimetest"
)

// built is the folder with the programs, empty if no test needed them.
var built string

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built) // in the folder for temporary files
	}
	os.Exit(code)
}

// programs are dew's programs for Pods, built once for all tests.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dew-pod-test-")
	if err != nil {
		return "", err
	}
	built = dir
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir, "../../cmd/dew-pod", "../../cmd/dew-init", "../../cmd/dew-sftp")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the programs: %w\n%s", err, out)
	}
	return dir, nil
})

// world is a cluster with the folders of a daemon, which outlive it.
type world struct {
	testing.TB
	client    kubernetes.Interface
	namespace string
	host      string // where the daemon listens
	image     string
	stack     string
	appDir    string // folder of the app, as the processes see it
	dir       string
	logs      *logstream.Logs
	engine    *Engine
	specs     int
	address   string
	cpu       int64 // limit of each instance
}

// tree is the sha of the droplet of every test.
const tree = "1111111111111111111111111111111111111111111111111111111111111111"

// open starts the next daemon.
func (w *world) open() *Engine {
	w.Helper()
	if err := w.tryOpen(); err != nil {
		w.Fatal(err)
	}
	return w.engine
}

// tryOpen starts the next daemon, and returns why that failed.
func (w *world) tryOpen() error {
	w.Helper()
	w.leave()
	if w.address == "" {
		w.address = net.JoinHostPort(w.host, "0")
	}
	l, err := net.Listen("tcp", w.address)
	if err != nil {
		w.Fatal(err)
	}
	w.address = l.Addr().String() // agents find the next daemon at the same address
	log := slog.New(slog.NewTextHandler(w.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	if w.logs, err = logstream.Open(filepath.Join(w.dir, "logs"), logstream.Options{Logger: log}); err != nil {
		w.Fatal(err)
	}
	e, err := New(w.Context(), Config{
		Client: w.client, Namespace: w.namespace, Name: "dew-test", Dir: filepath.Join(w.dir, "kubernetes"), Listener: l, Address: w.address,
		Image: w.image, StackImage: func(stack.Stack) (string, error) { return w.stack, nil },
		UID: 2000, CPU: w.cpu, Backlog: 4 << 20, Droplet: openTree, Crashed: Crashed{Dir: filepath.Join(w.dir, "crashed"), Bytes: 1 << 30},
		Logs: w.logs, Logger: log, StartLimit: time.Minute, GracePeriod: 10 * time.Second,
	})
	if err != nil {
		return errors.Join(err, l.Close(), w.logs.Close())
	}
	w.engine = e
	return nil
}

// leave stops the daemon. The Pods stay.
func (w *world) leave() {
	w.Helper()
	if w.engine == nil {
		return
	}
	if err := w.engine.Close(); err != nil {
		w.Error(err)
	}
	if err := w.logs.Close(); err != nil {
		w.Error(err)
	}
	w.engine = nil
}

// openTree returns a small droplet.
func openTree(sha string) (io.ReadCloser, error) {
	if sha != tree {
		return nil, fmt.Errorf("droplet %.12s does not exist", sha)
	}
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: "./app/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./app/hello.txt", Typeflag: tar.TypeReg, Mode: 0o644, Size: 6},
	} {
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if h.Size > 0 {
			if _, err := io.WriteString(t, "hello\n"); err != nil {
				return nil, err
			}
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	return io.NopCloser(&b), nil
}

// spec returns a spec for a new slot.
func (w *world) spec() runtime.Spec {
	w.specs++
	return runtime.Spec{
		Kind: runtime.KindInstance, Instance: runtime.NewInstanceID(), Slot: runtime.SlotID{Process: fmt.Sprintf("process-%d", w.specs)},
		App: "5b2e2a52-0000-4000-8000-000000000001", Type: "web", Version: "v1", Cell: "cell-of-the-test", Stack: stack.Stack{Name: "test", Shell: "/bin/sh"}, Image: tree,
		Memory: 128 << 20, Disk: 1 << 30, Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 201, 0, byte(w.specs + 1)}), 24), Ports: []int{8080},
		Processes: []runtime.ProcessSpec{{
			Exec: runtime.MainExec, Source: "APP/PROC/WEB", Dir: w.appDir, Env: []string{"PATH=/bin:/usr/bin"},
		}},
	}
}

// lines returns the lines in the log of an app.
func (w *world) lines(app string) []logstream.Envelope {
	w.Helper()
	l, err := w.logs.App(app)
	if err != nil {
		w.Fatal(err)
	}
	es, err := l.NewestOf(w.Context(), 1<<20, logstream.Filter{})
	if err != nil {
		w.Fatal(err)
	}
	return es
}

func (w *world) suite() runtimetest.SuiteConfig {
	return runtimetest.SuiteConfig{
		Engine: func() runtime.Engine { return w.open() },
		Spec:   w.spec,
		Lines:  w.lines,
	}
}
