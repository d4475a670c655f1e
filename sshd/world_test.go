package sshd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/runtimetest"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

const (
	appGUID    = "aaaaaaaa-0000-4000-8000-000000000001"
	workerGUID = "aaaaaaaa-0000-4000-8000-000000000002"
)

// world is a server for one app with a running instance of each process.
type world struct {
	t          *testing.T
	s          *Server
	fake       *runtimetest.Fake
	containers map[string]runtime.Container // by process
	addr       string
	stop       func()
	served     chan error

	mu       sync.Mutex // guards the fields below
	codes    map[string]auth.Principal
	denied   error
	accesses []Access
	lines    []string
	ended    bool   // the instances have stopped
	attached string // the task whose session was opened last

	registry *registry.Registry
	logText  testkit.Buffer
}

func newWorld(t *testing.T, limits Limits) *world {
	t.Helper()
	db := testkit.Open(store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{NoSync: true}))(t)
	reg := registry.New(db)
	w := &world{registry: reg, t: t, fake: runtimetest.NewFake(), containers: map[string]runtime.Container{}, codes: map[string]auth.Principal{}, served: make(chan error, 1)}
	_, err := reg.PutApp(app.App{GUID: appGUID, Name: "shop", Space: "dev", State: app.Started})
	if err == nil {
		_, err = reg.PutProcess(app.Process{GUID: workerGUID, App: appGUID, Type: "worker", Instances: 1, MemoryMB: 64})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.start(appGUID, "web")
	w.start(workerGUID, "worker")
	w.s, err = New(Config{
		HostKey: filepath.Join(t.TempDir(), "keys", "ssh_host_ed25519"), Registry: reg, Instances: w,
		Redeem: w.redeem, Allow: w.allow, Append: w.append, Record: w.record, Limits: limits,
		Logger: slog.New(slog.NewTextHandler(&w.logText, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.serve()
	return w
}

func (w *world) start(process, kind string) {
	w.t.Helper()
	container, err := w.fake.Start(w.t.Context(), runtime.Spec{
		Kind: runtime.KindInstance, Instance: runtime.NewInstanceID(), Slot: runtime.SlotID{Process: process}, App: appGUID, Type: kind,
		Processes: []runtime.ProcessSpec{
			{Exec: runtime.MainExec, Command: "sleep 1000"},
			{Exec: runtime.SidecarExec(0), Name: "config server", Command: "sleep 1000"},
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.containers[process] = container
}

func (w *world) serve() {
	w.t.Helper()
	l := testkit.Listen(w.t)
	w.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	go func() { w.served <- w.s.Serve(ctx, l) }()
	var once sync.Once
	w.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-w.served; err != nil {
				w.t.Errorf("Serve = %v", err)
			}
		})
	}
	w.t.Cleanup(w.stop)
}

// The world also implements Instances.

func (w *world) Exec(ctx context.Context, t runtime.ExecTarget, spec runtime.ExecSpec) (runtime.Session, error) {
	container := w.containers[t.Process]
	for _, p := range container.Spec().Processes {
		if p.Name == t.Sidecar {
			return container.Exec(ctx, p.Exec, spec)
		}
	}
	return nil, runtime.ErrNoInstance
}

func (w *world) Instances(process string) []runtime.Status {
	container := w.containers[process]
	w.mu.Lock()
	defer w.mu.Unlock()
	if container == nil || w.ended {
		return nil
	}
	return []runtime.Status{
		{Slot: runtime.SlotID{Process: process, Index: 0}, State: runtime.Running, Instance: container.Spec().Instance},
		{Slot: runtime.SlotID{Process: process, Index: 1}, State: runtime.Crashed},
	}
}

// Dial returns a connection that sends the dialled address and then echoes.
func (w *world) Dial(_ context.Context, _ runtime.InstanceID, network, address string) (net.Conn, error) {
	if ap, err := netip.ParseAddrPort(address); err == nil && ap.Port() == 1 {
		return nil, errors.New("connection refused")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		defer l.Close()
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, network+" "+address+"\n")
		_, _ = io.Copy(c, c)
	}()
	return net.Dial("tcp", l.Addr().String())
}

func (w *world) redeem(code string) (auth.Principal, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.codes[code]
	delete(w.codes, code)
	if !ok {
		return p, auth.ErrBadCode
	}
	return p, nil
}

func (w *world) code(code string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.codes[code] = auth.Principal{ID: "u1", Name: "ann", IsUser: true}
	return code
}

func (w *world) allow(auth.Principal, app.App) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.denied
}

func (w *world) deny(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.denied = err
}

func (w *world) append(_ string, es ...logstream.Envelope) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range es {
		w.lines = append(w.lines, e.Source.Type+"/"+itoa(e.Source.Index)+" "+string(e.Text))
	}
	return nil
}

func (w *world) record(a Access) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accesses = append(w.accesses, a)
}

// login connects as a client. The banner is the server's message before the login.
func (w *world) login(user, code string) (_ *ssh.Client, banner string, err error) {
	c, err := ssh.Dial("tcp", w.addr, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.Password(code)}, Timeout: testkit.Patience,
		HostKeyCallback: ssh.FixedHostKey(w.s.signer.PublicKey()),
		BannerCallback:  func(m string) error { banner += m; return nil },
	})
	return c, banner, err
}

// client logs in as a client, which must succeed.
func (w *world) client(user string) *ssh.Client {
	w.t.Helper()
	c, banner, err := w.login(user, w.code("good"))
	if err != nil {
		w.t.Fatalf("login as %s: %v (%s)", user, err, banner)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) session(c *ssh.Client) *ssh.Session {
	w.t.Helper()
	ses, err := c.NewSession()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = ses.Close() })
	return ses
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	if testkit.Until(testkit.True(ok)) != nil {
		w.t.Fatalf("the condition was not met in time: %s\nthe server said:\n%s", what, &w.logText)
	}
}

// sessions returns the number of processes in the instances.
func (w *world) sessions() int {
	n := 0
	for _, c := range w.fake.Containers() {
		n += c.Sessions()
	}
	return n
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func has(text string, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
