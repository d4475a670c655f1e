package usage

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/store"
)

// fakeContainer is a running instance whose counters grow evenly with time.
type fakeContainer struct {
	runtime.Container
	spec  runtime.Spec
	begun time.Time

	mu    sync.Mutex
	reads int
	disks int
	peak  int64
	block chan struct{} // the disk measurement waits for it; nil: does not wait
}

func (c *fakeContainer) Spec() runtime.Spec { return c.spec }

// Consumption uses half a core, a quarter of it in each process, and prints 100 bytes
// per second.
func (c *fakeContainer) Consumption(_ context.Context, disk bool) (runtime.Consumption, error) {
	c.mu.Lock()
	c.reads++
	block := c.block
	if disk {
		c.disks++
	}
	c.mu.Unlock()
	if disk && block != nil {
		<-block
	}
	up := time.Since(c.begun)
	used := runtime.Consumption{CPU: up / 2, Memory: 30 << 20, Printed: int64(up.Seconds() * 100)}
	if disk {
		used.Disk = 5 << 20
	}
	for i, p := range c.spec.Processes {
		used.Parts = append(used.Parts, runtime.PartUsage{
			Sidecar: p.Name, Limit: p.Memory, Memory: int64(10+10*i) << 20, Cache: 1 << 20, Peak: c.peak,
			CPU: up / 4, Waited: up / 10, PIDs: 3,
		})
	}
	return used, nil
}

func (c *fakeContainer) counts() (reads, disks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads, c.disks
}

// machine is a set of running instances.
type machine struct {
	mu      sync.Mutex
	running []runtime.Container
	traffic map[runtime.InstanceID]runtime.Traffic
	exits   *runtime.ExitLog
}

func newMachine(t testing.TB) *machine {
	db, err := store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &machine{traffic: map[runtime.InstanceID]runtime.Traffic{}, exits: runtime.NewExitLog(db, 0)}
}

// start starts an instance with a sidecar. The functions change it before that.
func (m *machine) start(id runtime.InstanceID, index int, change ...func(*fakeContainer)) *fakeContainer {
	c := &fakeContainer{begun: time.Now(), spec: runtime.Spec{
		Kind: runtime.KindInstance, Instance: id, App: "a", Type: "web", StartedAt: time.Now(),
		Slot:      runtime.SlotID{Process: "p", Index: index},
		Processes: []runtime.ProcessSpec{{Exec: "main", Memory: 64 << 20}, {Exec: "sidecar-0", Name: "agent", Memory: 32 << 20}},
	}}
	for _, fn := range change {
		fn(c)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = append(m.running, c)
	return c
}

func (m *machine) stopAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = nil
}

func (m *machine) serve(id runtime.InstanceID, t runtime.Traffic) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.traffic[id] = t
}

func (m *machine) sampler(t testing.TB) *Sampler {
	s, err := New(Config{
		Running: func() []runtime.Container {
			m.mu.Lock()
			defer m.mu.Unlock()
			return append([]runtime.Container{}, m.running...)
		},
		Traffic: func() map[runtime.InstanceID]runtime.Traffic {
			m.mu.Lock()
			defer m.mu.Unlock()
			out := map[runtime.InstanceID]runtime.Traffic{}
			for id, v := range m.traffic {
				out[id] = v
			}
			return out
		},
		Exits: m.exits, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs fn with a running sampler, in virtual time.
func run(t *testing.T, fn func(m *machine, s *Sampler)) {
	t.Helper()
	m := newMachine(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := m.sampler(t)
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait() // the first sample, without instances
		fn(m, s)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func near(got, want float64) bool { return math.Abs(got-want) < 0.01 }

// The rates are those of the instance, however many clients read and how often.
func TestNow(t *testing.T) {
	run(t, func(m *machine, s *Sampler) {
		m.start("i", 0, func(c *fakeContainer) { c.peak = 50 << 20 })
		time.Sleep(20 * time.Second)
		m.serve("i", runtime.Traffic{Requests: 40, Time: 4 * time.Second})
		for range 3 { // clients that read at different times
			go func() {
				for range 20 {
					time.Sleep(300 * time.Millisecond)
					s.Now(t.Context())
				}
			}()
		}
		time.Sleep(3500 * time.Millisecond)
		m.serve("i", runtime.Traffic{Requests: 60, Time: 5 * time.Second})
		time.Sleep(time.Second)
		u := s.Now(t.Context())["i"]
		if u == nil || !near(u.CPU, 0.5) || u.LogRate != 100 || u.Memory != 30<<20 || u.Disk != 5<<20 {
			t.Fatalf("usage = %+v", u)
		}
		if !near(u.Requests, 20) || u.Latency != 50*time.Millisecond {
			t.Errorf("requests = %v/s, latency = %s, want 20/s and 50ms", u.Requests, u.Latency)
		}
		if len(u.Parts) != 2 || u.Parts[1].Sidecar != "agent" || !near(u.Parts[1].CPU, 0.25) || u.Parts[1].Memory != 20<<20 ||
			u.Parts[1].Peak != 50<<20 || u.Parts[1].PeakEver != 50<<20 || !near(u.Parts[1].Throttled, 0.1) || u.Parts[1].PIDs != 3 {
			t.Errorf("parts = %+v", u.Parts)
		}
		time.Sleep(time.Minute)
		m.stopAll()
		time.Sleep(Interval)
		if got := s.Now(t.Context()); len(got) != 0 {
			t.Errorf("usage of stopped instances = %+v, want none", got)
		}
	})
}

// Without clients the sampler reads every 10 s. Clients share one observation a second.
func TestReadings(t *testing.T) {
	run(t, func(m *machine, s *Sampler) {
		c := m.start("i", 0)
		time.Sleep(100*time.Second + time.Millisecond)
		if reads, disks := c.counts(); reads != 10 || disks != 10 {
			t.Errorf("%d readings, %d of the disk in 100 s, want 10", reads, disks)
		}
		for range 1000 {
			s.Now(t.Context())
			time.Sleep(10 * time.Millisecond)
		}
		reads, disks := c.counts()
		if reads < 18 || reads > 24 || disks != 11 {
			t.Errorf("%d readings, %d of the disk, after 10 s with a client, want about 21 and 11", reads, disks)
		}
		time.Sleep(100 * time.Second)
		if later, _ := c.counts(); later > reads+16 {
			t.Errorf("%d readings after the client left, want about 15", later-reads)
		}
	})
}

// A containerd that does not answer stops no client.
func TestSlowDisk(t *testing.T) {
	run(t, func(m *machine, s *Sampler) {
		block := make(chan struct{})
		m.start("i", 0, func(c *fakeContainer) { c.block = block })
		time.Sleep(30 * time.Second)
		if u := s.Now(t.Context())["i"]; u == nil || !near(u.CPU, 0.5) || u.Disk != 0 {
			t.Errorf("usage = %+v, want it without the disk", u)
		}
		close(block)
		time.Sleep(20 * time.Second)
		if u := s.Now(t.Context())["i"]; u == nil || !near(u.CPU, 0.5) || u.Disk != 5<<20 {
			t.Errorf("usage = %+v, want the disk", u)
		}
	})
}

// The history has one hour, and instances that are gone for less than an hour.
func TestHistory(t *testing.T) {
	run(t, func(m *machine, s *Sampler) {
		m.start("i", 0)
		time.Sleep(2 * time.Hour)
		hs := s.History("a")
		if len(hs) != 1 || len(hs[0].Times) != slots || hs[0].Instance != "i" || len(hs[0].Parts) != 2 {
			t.Fatalf("%d histories: %+v", len(hs), hs)
		}
		h := hs[0]
		for i, at := range h.Times {
			if i > 0 && at != h.Times[i-1]+10 || h.LogRate[i] != 100 || h.Parts[1].CPU[i] != 0.25 || h.Parts[1].Memory[i] != 20<<20 {
				t.Fatalf("sample %d at %d is wrong: %+v", i, at, h)
			}
		}
		m.stopAll()
		m.start("j", 0)
		time.Sleep(59 * time.Minute)
		if hs := s.History("a"); len(hs) != 2 || hs[0].Instance != "i" || hs[1].Instance != "j" {
			t.Errorf("histories = %+v, want both instances", hs)
		}
		time.Sleep(2 * time.Minute)
		if hs := s.History("a"); len(hs) != 1 || hs[0].Instance != "j" {
			t.Errorf("%d histories, want only that of the running instance", len(hs))
		}
		if hs := s.History("other"); len(hs) != 0 {
			t.Errorf("histories of another app = %+v", hs)
		}
	})
}

// A crash loop does not fill the memory.
func TestManyInstances(t *testing.T) {
	run(t, func(m *machine, s *Sampler) {
		for i := range maxGone + 100 {
			m.stopAll()
			m.start(runtime.InstanceID(fmt.Sprint("i-", i)), 0)
			s.sample(t.Context())
		}
		if got := len(s.History("a")); got != maxGone+1 {
			t.Errorf("%d histories, want %d", got, maxGone+1)
		}
	})
}

// The peak over all lives comes from exit records and from earlier instances. A kernel
// without a peak gets the highest observed one.
func TestPeaks(t *testing.T) {
	run(t, func(m *machine, s *Sampler) {
		m.start("i", 0)
		time.Sleep(Interval + time.Second)
		if p := s.Now(t.Context())["i"].Parts; p[0].Peak != 11<<20 || p[1].PeakEver != 21<<20 {
			t.Errorf("parts = %+v, want the observed memory as peak", p)
		}
		slot := runtime.SlotID{Process: "p"}
		r, err := m.exits.Add(runtime.ExitRecord{Slot: slot, Type: "web", CrashedAt: time.Now(), First: runtime.Exit{Exec: "sidecar-0", Name: "agent", Code: 3, Cause: runtime.CauseExited, Memory: runtime.Memory{Peak: 90 << 20}}})
		if err != nil {
			t.Fatal(err)
		}
		m.stopAll()
		m.start("j", 0)
		time.Sleep(3 * time.Second)
		if p := s.Now(t.Context())["j"].Parts; p[1].Peak != 21<<20 || p[1].PeakEver != 90<<20 || p[0].PeakEver != 11<<20 {
			t.Errorf("parts = %+v, want the peak of the exit record", p)
		}
		c, err := s.Crashes("p")
		if err != nil || c.Newest == nil || c.Counts[slot] != 1 || c.Newest.Sentence == "" || c.Newest.Class == "" {
			t.Errorf("crashes = %+v, %v", c, err)
		}
		if _, err := m.exits.Add(r); err != nil {
			t.Fatal(err)
		}
		if c, _ := s.Crashes("p"); c.Counts[slot] != 2 {
			t.Errorf("crashes = %+v, want 2", c)
		}
		if err := m.exits.Remove("p"); err != nil {
			t.Fatal(err)
		}
		if c, _ := s.Crashes("p"); c.Newest != nil || len(c.Counts) != 0 {
			t.Errorf("crashes = %+v, want none after their records were deleted", c)
		}
	})
}

// BenchmarkSample is the cost of one sample of 100 instances with 3 processes each,
// without the reading of the kernel's files.
func BenchmarkSample(b *testing.B) {
	m := newMachine(b)
	for i := range 100 {
		c := m.start(runtime.InstanceID(fmt.Sprint("i-", i)), i)
		c.spec.Processes = append(c.spec.Processes, runtime.ProcessSpec{Exec: "sidecar-1", Name: "b"})
	}
	s := m.sampler(b)
	b.ReportAllocs()
	for b.Loop() {
		s.sample(b.Context())
	}
	se := s.series["i-0"]
	perProcess := 8 * slots
	perInstance := 16*slots + len(se.parts)*perProcess
	b.ReportMetric(float64(perProcess), "bytes/process/hour")
	b.ReportMetric(float64(perInstance), "bytes/instance/hour")
}
