package supervisor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/policy"
	"github.com/dewrun/dew/runtime/runtimetest"
	"github.com/dewrun/dew/runtime/supervisor"
	"github.com/dewrun/dew/store"
)

// world is a machine with one app, a fake engine and a daemon that can be stopped and
// started again. It uses virtual time.
type world struct {
	memory   int64 // of the machine; 0 means no placement check
	t        *testing.T
	db       *store.DB
	registry *registry.Registry
	droplets *droplet.Droplets
	fake     *runtimetest.Fake
	logs     *memLogs
	slog     *syncBuffer
	policy   policy.Policy
	spares   int
	subnet   string
	onChange func(runtime.Status)
	onReady  func()
	busy     func(runtime.InstanceID) bool

	sup          *supervisor.Supervisor
	stopDaemon   func() // stops the daemon and waits for it
	signalDaemon func() // stops the daemon without waiting

	bindings func(app string) (droplet.Bindings, error)
}

// inWorld runs fn in a synctest bubble, in virtual time, with a world whose daemon is
// not running yet.
func inWorld(t *testing.T, fn func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		droplets, err := droplet.NewDroplets(db, filepath.Join(t.TempDir(), "images"))
		if err != nil {
			t.Fatal(err)
		}
		w := &world{
			t: t, db: db, droplets: droplets, registry: registry.New(db), fake: runtimetest.NewFake(),
			logs: &memLogs{}, slog: &syncBuffer{}, subnet: "10.201.0.0/20",
		}
		w.registry.Listen(func(process string) {
			if w.sup != nil {
				w.sup.Sync(process)
			}
		})
		fn(w)
		if w.stopDaemon != nil {
			w.stopDaemon()
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// daemon starts a daemon. It stops a running one first.
func (w *world) daemon() {
	w.t.Helper()
	if w.stopDaemon != nil {
		w.stopDaemon()
		w.fake = w.fake.NextDaemon()
	}
	sup, err := supervisor.New(w.config())
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	w.sup, w.signalDaemon = sup, cancel
	w.stopDaemon = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	go func() { done <- sup.Run(ctx) }()
	synctest.Wait()
}

func (w *world) config() supervisor.Config {
	return supervisor.Config{
		Memory: w.memory,
		Engine: w.fake, Registry: w.registry, Droplets: w.droplets,
		Stacks: func(name string) (stack.Stack, error) {
			if name != "" && name != "host" {
				return stack.Stack{}, fmt.Errorf("there is no stack '%s'", name)
			}
			return stack.Stack{Name: "host"}, nil
		},
		Logs: w.logs, DB: w.db, Cell: "cell-1", Subnet: netip.MustParsePrefix(w.subnet),
		PublicURL: "http://127.0.0.1:8484", Policy: w.policy, Spares: w.spares,
		Logger:   slog.New(slog.NewTextHandler(w.slog, nil)),
		OnChange: w.onChange, Ready: w.onReady, Busy: w.busy, Bindings: w.bindings, Events: registry.NewEvents(w.db),
	}
}

// push creates and starts an app "shop" with sidecars. It returns the guid of its web
// process.
func (w *world) push(command string, sidecars ...string) string {
	w.t.Helper()
	a, err := w.registry.PutApp(app.App{Name: "shop", Space: "dev", State: app.Stopped})
	w.must(err)
	w.change(a.GUID, func(p *app.Process) { p.Command, p.MemoryMB = command, 256 })
	for i, c := range sidecars {
		_, err := w.registry.PutSidecar(app.Sidecar{
			App: a.GUID, Name: "config server " + string(rune('a'+i)), Command: c,
			ProcessTypes: []string{app.Web}, MemoryMB: 32, Origin: app.OriginUser,
		})
		w.must(err)
	}
	w.state(a.GUID, app.Started)
	return a.GUID
}

func (w *world) state(guid string, s app.State) {
	w.t.Helper()
	_, err := w.registry.UpdateApp(guid, func(a *app.App) error {
		a.State = s
		return nil
	})
	w.must(err)
	synctest.Wait()
}

func (w *world) change(process string, fn func(p *app.Process)) {
	w.t.Helper()
	_, err := w.registry.UpdateProcess(process, func(p *app.Process) error {
		fn(p)
		return nil
	})
	w.must(err)
	synctest.Wait()
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// pass advances virtual time and waits until all goroutines are blocked.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// status returns the status of the only slot of the process.
func (w *world) status(process string) runtime.Status {
	w.t.Helper()
	all := w.sup.Instances(process)
	if len(all) != 1 {
		w.t.Fatalf("process has %d slots, want 1", len(all))
	}
	return all[0]
}

func (w *world) wantState(process string, want runtime.State) runtime.Status {
	w.t.Helper()
	st := w.status(process)
	if st.State != want {
		w.t.Errorf("state = %s (%s), want %s", st.State, st.Details, want)
	}
	return st
}

// records returns the exit records of slot 0.
func (w *world) records(process string) []runtime.ExitRecord {
	w.t.Helper()
	rs, err := w.sup.Exits().Slot(runtime.SlotID{Process: process})
	w.must(err)
	return rs
}

// record returns the only exit record of slot 0.
func (w *world) record(process string) runtime.ExitRecord {
	w.t.Helper()
	rs := w.records(process)
	if len(rs) != 1 {
		w.t.Fatalf("%d exit records, want 1", len(rs))
	}
	return rs[0]
}

func (w *world) wantRecords(process string, want int) {
	w.t.Helper()
	if got := len(w.records(process)); got != want {
		w.t.Errorf("%d exit records, want %d", got, want)
	}
	if got := len(w.logs.matching("App instance exited")); got != want {
		w.t.Errorf("%d record lines, want %d", got, want)
	}
}

func (w *world) wantStarts(want int) {
	w.t.Helper()
	if got := len(w.fake.Containers()); got != want {
		w.t.Errorf("%d instances started, want %d", got, want)
	}
}

// wantNothing checks that no instance and no address is left.
func (w *world) wantNothing() {
	w.t.Helper()
	if got := len(w.fake.Present()); got != 0 {
		w.t.Errorf("%d instances are left, want none", got)
	}
	w.wantLeases(0)
}

func (w *world) wantLeases(want int) {
	w.t.Helper()
	got, err := w.sup.Leases()
	w.must(err)
	if got != want {
		w.t.Errorf("%d addresses are taken, want %d", got, want)
	}
}

// memLogs is an AppLogs in memory that numbers lines as the real one does.
type memLogs struct {
	mu      sync.Mutex
	seq     uint64
	batches [][]logstream.Envelope
	refuse  func(es []logstream.Envelope) error
}

func (l *memLogs) Append(_ string, es ...logstream.Envelope) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		if err := l.refuse(es); err != nil {
			return err
		}
	}
	for i := range es {
		l.seq++
		es[i].Seq, es[i].Time = l.seq, time.Now()
	}
	l.batches = append(l.batches, slices.Clone(es))
	return nil
}

func (l *memLogs) Contains(_ context.Context, _ string, f logstream.Filter) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(slices.Concat(l.batches...), f.Matches), nil
}

func (l *memLogs) NewestOf(_ context.Context, _ string, n int, f logstream.Filter) ([]logstream.Envelope, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.DeleteFunc(slices.Concat(l.batches...), func(e logstream.Envelope) bool { return !f.Matches(e) })
	return all[max(0, len(all)-n):], nil
}

func (l *memLogs) Last(string) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq, nil
}

// lines returns all lines as a reader sees them.
func (l *memLogs) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, b := range l.batches {
		for _, e := range b {
			stream := map[logstream.Stream]string{logstream.Out: "OUT", logstream.Err: "ERR"}[e.Stream]
			out = append(out, fmt.Sprintf("[%s/%d] %s %s", e.Source.Type, e.Source.Index, stream, e.Text))
		}
	}
	return out
}

func (l *memLogs) matching(text string) []string {
	return slices.DeleteFunc(l.lines(), func(s string) bool { return !strings.Contains(s, text) })
}

// batchOf returns the batch with the first line that contains text.
func (l *memLogs) batchOf(text string) []logstream.Envelope {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		if slices.ContainsFunc(b, func(e logstream.Envelope) bool { return strings.Contains(string(e.Text), text) }) {
			return b
		}
	}
	return nil
}

// syncBuffer is a buffer for slog that is safe for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

var errBoom = errors.New("boom")
