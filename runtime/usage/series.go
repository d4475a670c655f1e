package usage

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/runtime"
)

// counters are the counters of an instance at one time.
type counters struct {
	runtime.Reading
	traffic runtime.Traffic
}

// series has the last readings and the samples of one instance.
type series struct {
	app, kind string
	slot      runtime.SlotID
	parts     []seriesPart
	disk      int64
	running   bool
	seen      time.Time // when it ran last

	last   counters // of the newest observation
	base   counters // of the newest sample of the history
	ring   []sample // up to one hour
	oldest int      // index of the oldest sample in a full ring
}

// seriesPart is a process of an instance.
type seriesPart struct {
	sidecar string
	limit   int64
	peak    int64 // the most that was observed, for kernels that do not report it
	values  []partSample
}

// sample is one entry of the history. It is small, because there are 360 of them for
// each instance.
type sample struct {
	at       uint32 // seconds since 1970
	requests float32
	latency  float32 // milliseconds
	logRate  uint32
	disk     uint32 // in units of 4 KiB
}

// partSample is the entry of one process.
type partSample struct {
	pages uint32 // memory in units of 4 KiB
	cpu   float32
}

const pageSize = 4096

// newSeries returns the series of an instance. Its first rates count from its start.
func newSeries(spec runtime.Spec) *series {
	started := counters{Reading: runtime.Reading{At: spec.StartedAt}}
	se := &series{app: spec.App, kind: spec.Type, slot: spec.Slot, last: started, base: started}
	for _, p := range spec.Processes {
		se.parts = append(se.parts, seriesPart{sidecar: p.Name, limit: p.Memory})
	}
	return se
}

// add adds a reading and returns the usage since the previous one.
func (se *series) add(now counters, peaks map[string]int64) *Usage {
	u := se.between(se.last, now)
	for i := range u.Parts {
		p := &u.Parts[i]
		if i < len(se.parts) {
			se.parts[i].peak = max(se.parts[i].peak, p.Memory+p.Cache)
			if p.Peak == 0 {
				p.Peak = se.parts[i].peak
			}
		}
		p.PeakEver = max(p.Peak, peaks[p.Sidecar])
	}
	se.last = now
	return u
}

// between returns the usage between two readings.
func (se *series) between(before, now counters) *Usage {
	whole := now.Since(before.Reading)
	d := now.At.Sub(before.At)
	u := &Usage{
		App: se.app, Type: se.kind, Slot: se.slot,
		CPU: whole.CPU, Memory: whole.Memory, Disk: se.disk, LogRate: whole.LogRate, Entitled: whole.Entitled, Traffic: now.traffic,
	}
	if n := now.traffic.Requests - before.traffic.Requests; d > 0 && now.traffic.Requests > before.traffic.Requests {
		u.Requests = float64(n) / d.Seconds()
		u.Latency = (now.traffic.Time - before.traffic.Time) / time.Duration(n)
	}
	for i, p := range now.Parts {
		var old runtime.PartUsage
		if i < len(before.Parts) {
			old = before.Parts[i]
		}
		u.Parts = append(u.Parts, Part{PartUsage: p, CPU: rate(p.CPU-old.CPU, d), Throttled: min(rate(p.Waited-old.Waited, d), 1)})
	}
	return u
}

// rate returns the part of a time. It is 0 if a counter went backwards.
func rate(used, of time.Duration) float64 {
	if used <= 0 || of <= 0 {
		return 0
	}
	return float64(used) / float64(of)
}

// record adds the usage since the previous sample to the history.
func (se *series) record() {
	u := se.between(se.base, se.last)
	at := sample{
		at: uint32(max(se.last.At.Unix(), 0)), requests: float32(u.Requests),
		latency: float32(u.Latency.Seconds() * 1000), logRate: uint32(min(max(u.LogRate, 0), math.MaxUint32)),
		disk: uint32(min(max(se.disk, 0)/pageSize, math.MaxUint32)),
	}
	se.base = se.last
	full := len(se.ring) == slots
	if full {
		se.ring[se.oldest] = at
	} else {
		se.ring = append(se.ring, at)
	}
	for i := range se.parts {
		var v partSample
		if i < len(u.Parts) {
			v = partSample{pages: uint32(min(u.Parts[i].Memory/pageSize, math.MaxUint32)), cpu: float32(u.Parts[i].CPU)}
		}
		if full {
			se.parts[i].values[se.oldest] = v
		} else {
			se.parts[i].values = append(se.parts[i].values, v)
		}
	}
	if full {
		se.oldest = (se.oldest + 1) % slots
	}
}

// History has the samples of one instance, oldest first. All slices have the same
// length.
type History struct {
	Type      string
	Slot      runtime.SlotID
	Instance  runtime.InstanceID
	Times     []int64 // seconds since 1970
	Requests  []float64
	LatencyMS []float64
	LogRate   []int64
	Disk      []int64 // bytes
	Entitled  float64 // cores that are guaranteed; 0: unknown
	Parts     []PartHistory
}

// PartHistory has the samples of a process.
type PartHistory struct {
	Sidecar string
	Limit   int64
	Memory  []int64
	CPU     []float64
}

func (se *series) history(id runtime.InstanceID) History {
	n := len(se.ring)
	h := History{
		Type: se.kind, Slot: se.slot, Instance: id,
		Times: make([]int64, n), Requests: make([]float64, n), LatencyMS: make([]float64, n), LogRate: make([]int64, n),
		Disk: make([]int64, n), Entitled: se.last.Entitled,
	}
	for i := range n {
		v := se.ring[(se.oldest+i)%n]
		h.Times[i], h.Requests[i], h.LatencyMS[i], h.LogRate[i] = int64(v.at), rounded(v.requests), rounded(v.latency), int64(v.logRate)
		h.Disk[i] = int64(v.disk) * pageSize
	}
	for _, p := range se.parts {
		ph := PartHistory{Sidecar: p.sidecar, Limit: p.limit, Memory: make([]int64, n), CPU: make([]float64, n)}
		for i := range n {
			v := p.values[(se.oldest+i)%n]
			ph.Memory[i], ph.CPU[i] = int64(v.pages)*pageSize, rounded(v.cpu)
		}
		h.Parts = append(h.Parts, ph)
	}
	return h
}

// rounded returns a stored number without the digits that float32 does not have.
func rounded(v float32) float64 { return math.Round(float64(v)*10_000) / 10_000 }

func sortHistories(hs []History) {
	slices.SortFunc(hs, func(a, b History) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), cmp.Compare(a.Slot.Index, b.Slot.Index), cmp.Compare(a.Times[0], b.Times[0]), strings.Compare(string(a.Instance), string(b.Instance)))
	})
}
