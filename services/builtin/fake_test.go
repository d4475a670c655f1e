package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// fakeHost has servers in memory. They run as soon as they are put, unless they are
// broken, and stop when they are dropped.
type fakeHost struct {
	t *testing.T

	mu      sync.Mutex
	servers map[string]runtime.Server
	puts    []runtime.Server
	leased  map[string]netip.Addr
	broken  func(v runtime.Server) string // the reason why it crashes; nil or empty: it runs
	answer  func(command, input string) (out string, code int)
	inputs  []string // the input of sessions
	stuck   bool     // servers do not stop
	signals []syscall.Signal
	settled chan struct{} // closed: the servers of an earlier daemon are known
}

func (h *fakeHost) Settled() <-chan struct{} { return h.settled }

func (h *fakeHost) PutServer(v runtime.Server) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.servers[v.GUID] = v
	h.puts = append(h.puts, v)
	return nil
}

func (h *fakeHost) DropServer(guid string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.servers, guid)
	return nil
}

func (h *fakeHost) ReserveAddress(guid string) (netip.Addr, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.leased[guid]; !ok {
		h.leased[guid] = netip.AddrFrom4([4]byte{10, 9, 0, byte(2 + len(h.leased))})
	}
	return h.leased[guid], nil
}

func (h *fakeHost) ReleaseAddress(guid string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.leased, guid)
	return nil
}

func (h *fakeHost) Instances(guid string) []runtime.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.servers[guid]
	if (!ok || v.Stopped) && !h.stuck {
		return nil
	}
	st := runtime.Status{App: guid, State: runtime.Running, Version: v.Version, Address: v.Address}
	if h.broken != nil && h.broken(v) != "" {
		st.State, st.CrashCount, st.Details = runtime.Crashed, 3, h.broken(v)
	}
	return []runtime.Status{st}
}

func (h *fakeHost) Signal(_ context.Context, _ string, _ int, _ string, sent runtime.SentSignal) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.signals = append(h.signals, syscall.Signal(sent.Number))
	return nil
}

func (h *fakeHost) Exec(_ context.Context, t runtime.ExecTarget, s runtime.ExecSpec) (runtime.Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.servers[t.Process]; !ok {
		return nil, runtime.ErrNoInstance
	}
	ses := &fakeSession{host: h, command: s.Command, done: make(chan struct{})}
	ses.out, ses.outEnd = io.Pipe()
	ses.err, ses.errEnd = io.Pipe()
	return ses, nil
}

// fakeSession responds when its input is closed.
type fakeSession struct {
	host    *fakeHost
	command string
	input   strings.Builder
	once    sync.Once
	code    int
	done    chan struct{}

	out, err       *io.PipeReader
	outEnd, errEnd *io.PipeWriter
}

func (s *fakeSession) Streams() runtime.Streams {
	return runtime.Streams{In: fakeInput{s}, Out: s.out, Err: s.err}
}
func (s *fakeSession) Resize(context.Context, runtime.Size) error { return nil }
func (s *fakeSession) Signal(syscall.Signal) error                { return nil }
func (s *fakeSession) Close() error                               { s.out.Close(); s.err.Close(); return nil }

func (s *fakeSession) Wait(ctx context.Context) (runtime.SessionEnd, error) {
	select {
	case <-s.done:
		return runtime.SessionEnd{Code: s.code}, nil
	case <-ctx.Done():
		return runtime.SessionEnd{}, context.Cause(ctx)
	}
}

// end runs the command after its input is complete.
func (s *fakeSession) end() {
	s.host.mu.Lock()
	s.host.inputs = append(s.host.inputs, s.input.String())
	answer := s.host.answer
	s.host.mu.Unlock()
	out := "ready\n"
	if answer != nil {
		out, s.code = answer(s.command, s.input.String())
	} else if strings.HasPrefix(s.input.String(), "PING") {
		out = "PONG\n"
	} else if strings.HasPrefix(s.input.String(), "ACL") {
		out = "OK\n"
	}
	go func() {
		if s.code != 0 {
			fmt.Fprint(s.errEnd, out)
		} else {
			fmt.Fprint(s.outEnd, out)
		}
		s.outEnd.Close()
		s.errEnd.Close()
	}()
	close(s.done)
}

type fakeInput struct{ s *fakeSession }

func (i fakeInput) Write(b []byte) (int, error) { return i.s.input.Write(b) }
func (i fakeInput) Close() error                { i.s.once.Do(i.s.end); return nil }

// newBroker returns a broker on a fake host. Only Redis is installed on its machine.
func newBroker(t *testing.T, change func(c *Config)) (*Broker, *fakeHost) {
	t.Helper()
	dir := t.TempDir()
	db := testkit.Open(store.Open(filepath.Join(dir, "dew.db"), store.Options{Format: 1}))(t)
	h := &fakeHost{t: t, servers: map[string]runtime.Server{}, leased: map[string]netip.Addr{}, settled: make(chan struct{})}
	close(h.settled)
	c := Config{
		DB: db, Host: h, Dir: filepath.Join(dir, "services"), UID: -1, GID: -1, Logger: slog.New(slog.DiscardHandler), Reserve: 1,
		Machine: "-", Stacks: func(context.Context, Programs, func(string)) (string, error) { return "some", nil },
	}
	if change != nil {
		change(&c)
	}
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b, h
}

// start runs the broker until the test ends or the returned function is called.
func start(t *testing.T, b *Broker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); wg.Wait() }) }
	t.Cleanup(stop)
	return stop
}

var errTest = errors.New("no luck")
