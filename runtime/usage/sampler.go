package usage

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/runtime"
)

// The times of a Sampler.
const (
	// Interval is the time between two samples of the history.
	Interval = 10 * time.Second
	// Fresh is the age up to which clients share the values of one observation.
	Fresh = time.Second
	// watched is how long the Sampler observes every second after a client has read.
	watched = 5 * time.Second
	// kept is how long the samples of an instance that is gone are stored.
	kept = time.Hour
	// slots is the number of samples per instance: one hour.
	slots = int(kept / Interval)
	// maxGone is the number of instances that are gone and whose samples are stored. An
	// app in a crash loop has a new instance every few seconds or minutes.
	maxGone = 1000
)

// Exits has the exit records. *runtime.ExitLog implements it.
type Exits interface {
	Process(process string) ([]runtime.ExitRecord, error)
	Watch(fn func(id runtime.SlotID, number uint64, r *runtime.ExitRecord))
}

// Config configures a Sampler.
type Config struct {
	// Running returns the running instances.
	Running func() []runtime.Container
	// Traffic returns the requests of each instance so far. Nil means unknown.
	Traffic func() map[runtime.InstanceID]runtime.Traffic
	Exits   Exits
	Logger  *slog.Logger
}

// Usage is the current usage of one instance.
type Usage struct {
	App, Type string
	Slot      runtime.SlotID
	CPU       float64 // cores
	Memory    int64   // bytes, without memory that the kernel can reclaim
	Disk      int64   // bytes, at most about 10 s old
	LogRate   int64   // bytes per second
	Entitled  float64 // cores that are guaranteed; 0: unknown
	Requests  float64 // per second
	Latency   time.Duration
	Traffic   runtime.Traffic // total
	Parts     []Part
}

// Part is the current usage of the process of an instance, or of one of its sidecars.
type Part struct {
	runtime.PartUsage
	CPU       float64 // cores
	PeakEver  int64   // bytes, the most of this and of earlier instances of the slot
	Throttled float64 // part of the time without CPU because of a CPU limit, 0 to 1
}

// Sampler observes the running instances. It is safe for concurrent use.
type Sampler struct {
	c       Config
	crashes *crashes
	lastAsk atomic.Int64  // when a client read, in nanoseconds since 1970
	wake    chan struct{} // capacity 1: a client reads

	now atomic.Pointer[observation]

	mu     sync.Mutex // guards the fields below; held during an observation
	series map[runtime.InstanceID]*series
}

// observation has the values of all instances at one time. It never changes.
type observation struct {
	at    time.Time
	usage map[runtime.InstanceID]*Usage
}

// New returns a Sampler. It samples while Run is running.
func New(c Config) (*Sampler, error) {
	if c.Running == nil || c.Exits == nil || c.Logger == nil {
		return nil, fmt.Errorf("cannot create a sampler without Running, Exits and Logger")
	}
	s := &Sampler{c: c, crashes: newCrashes(c.Exits, c.Logger), wake: make(chan struct{}, 1), series: map[runtime.InstanceID]*series{}}
	s.now.Store(&observation{})
	return s, nil
}

// Run samples every 10 s, and every second while clients read, until ctx is done.
func (s *Sampler) Run(ctx context.Context) error {
	s.sample(ctx)
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	var often <-chan time.Time // nil while no client reads
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.sample(ctx)
		case <-s.wake:
			if often == nil {
				often = time.After(Fresh)
			}
		case <-often:
			s.observe(ctx)
			often = nil
			if time.Since(time.Unix(0, s.lastAsk.Load())) < watched {
				often = time.After(Fresh)
			}
		}
	}
}

// Now returns the current usage of all running instances by id. Callers must not change
// it. The values are at most about one second old: the first call after a while
// observes the instances, the next ones wait for nothing.
func (s *Sampler) Now(ctx context.Context) map[runtime.InstanceID]*Usage {
	s.lastAsk.Store(time.Now().UnixNano())
	select {
	case s.wake <- struct{}{}:
	default:
	}
	// A second more: Run observes every second while clients read, and a client must not
	// compete with it.
	if time.Since(s.now.Load().at) > 2*Fresh {
		s.observe(ctx)
	}
	return s.now.Load().usage
}

// Once returns the current usage like Now. It does not make the Sampler observe every
// second, so it is for clients that read rarely.
func (s *Sampler) Once(ctx context.Context) map[runtime.InstanceID]*Usage {
	s.observe(ctx)
	return s.now.Load().usage
}

// observe reads the counters of all instances, unless that happened a moment ago.
func (s *Sampler) observe(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.now.Load().at) >= Fresh {
		s.publish(s.collect(ctx, false), false)
	}
}

// sample adds a sample to the history of every running instance. It holds no lock while
// containerd measures the disks, because containerd can be slow to answer.
func (s *Sampler) sample(ctx context.Context) {
	found := s.collect(ctx, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publish(found, true)
	s.forget(time.Now())
}

// found is a running instance with its counters.
type found struct {
	spec runtime.Spec
	counters
	disk bool // the disk was measured
}

// collect reads the counters of all running instances.
func (s *Sampler) collect(ctx context.Context, disk bool) []found {
	var traffic map[runtime.InstanceID]runtime.Traffic
	if s.c.Traffic != nil {
		traffic = s.c.Traffic()
	}
	running := s.c.Running()
	out := make([]found, 0, len(running))
	for _, in := range running {
		spec := in.Spec()
		used, err := in.Consumption(ctx, disk)
		if err != nil { // the counters of the kernel are correct without the disk
			s.c.Logger.Debug("cannot measure an instance", "instance", spec.Instance, "err", err)
		}
		at := counters{runtime.Reading{At: time.Now(), Consumption: used}, traffic[spec.Instance]}
		out = append(out, found{spec, at, disk && err == nil})
	}
	return out
}

// publish computes the usage of the instances. It adds a sample to the history if
// history is set. The caller holds s.mu.
func (s *Sampler) publish(all []found, history bool) {
	next := &observation{at: time.Now(), usage: make(map[runtime.InstanceID]*Usage, len(all))}
	before := s.now.Load().usage
	for _, se := range s.series {
		se.running = false
	}
	for _, f := range all {
		se, id := s.of(f.spec), f.spec.Instance
		se.running, se.seen = true, next.at
		if f.disk {
			se.disk = f.Disk
		}
		// While the disks were measured, another observation can have read newer
		// counters.
		if u := before[id]; u != nil && f.At.Sub(se.last.At) < Fresh/2 {
			next.usage[id] = u
		} else {
			next.usage[id] = se.add(f.counters, s.crashes.peaks(f.spec.Slot))
			s.crashes.raise(f.spec.Slot, next.usage[id].Parts)
		}
		if history {
			se.record()
		}
	}
	s.now.Store(next)
}

// of returns the series of an instance, and creates it if needed. The caller holds
// s.mu.
func (s *Sampler) of(spec runtime.Spec) *series {
	se := s.series[spec.Instance]
	if se == nil {
		se = newSeries(spec)
		s.series[spec.Instance] = se
	}
	return se
}

// forget drops the samples of instances that are gone for an hour, and the oldest ones
// over the limit. The caller holds s.mu.
func (s *Sampler) forget(now time.Time) {
	var gone int
	for id, se := range s.series {
		switch {
		case se.running:
		case now.Sub(se.seen) >= kept:
			delete(s.series, id)
		default:
			gone++
		}
	}
	for ; gone > maxGone; gone-- {
		var oldest runtime.InstanceID
		for id, se := range s.series {
			if !se.running && (oldest == "" || se.seen.Before(s.series[oldest].seen)) {
				oldest = id
			}
		}
		delete(s.series, oldest)
	}
	s.crashes.forget(now)
}

// History returns the samples of the instances of an app, sorted by process type,
// index and time. It includes instances that stopped in the last hour.
func (s *Sampler) History(app string) []History {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []History
	for id, se := range s.series {
		if se.app == app && len(se.ring) > 0 {
			out = append(out, se.history(id))
		}
	}
	sortHistories(out)
	return out
}

// Crashes returns the recorded crashes of the slots of a process.
func (s *Sampler) Crashes(process string) (Crashes, error) { return s.crashes.of(process) }
