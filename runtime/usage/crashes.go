package usage

import (
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/verdict"
)

// Crashes are the recorded crashes of a process.
type Crashes struct {
	Newest *Crash                 // nil if there is none
	Counts map[runtime.SlotID]int // crashes of each slot
}

// Crash is one crash with its explanation.
type Crash struct {
	At       time.Time
	Type     string
	Slot     runtime.SlotID
	Class    verdict.Class
	Sentence string
}

// crashes caches what clients show of the exit records, so that no request reads all
// records of a process.
type crashes struct {
	exits Exits
	log   *slog.Logger

	mu        sync.Mutex // guards the fields below
	processes map[string]*processCrashes
}

// processCrashes are the crashes of the slots of a process.
type processCrashes struct {
	slots map[runtime.SlotID]*slotCrashes
	used  time.Time
}

// slotCrashes are the crashes of a slot.
type slotCrashes struct {
	number uint64 // of the newest record; 0: none
	newest Crash
	peaks  map[string]int64 // by sidecar; empty: the main process
}

func newCrashes(exits Exits, log *slog.Logger) *crashes {
	c := &crashes{exits: exits, log: log, processes: map[string]*processCrashes{}}
	exits.Watch(c.changed)
	return c
}

// changed updates the cache after a change of a record.
func (c *crashes) changed(id runtime.SlotID, number uint64, r *runtime.ExitRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.processes[id.Process]
	if p == nil {
		return // not cached
	}
	if r != nil {
		p.add(*r)
		return
	}
	// Records of a slot are deleted one by one, oldest first, or all at once.
	if sl := p.slots[id]; sl != nil && sl.number == number {
		delete(c.processes, id.Process)
	}
}

func (p *processCrashes) slot(id runtime.SlotID) *slotCrashes {
	sl := p.slots[id]
	if sl == nil {
		sl = &slotCrashes{peaks: map[string]int64{}}
		p.slots[id] = sl
	}
	return sl
}

func (p *processCrashes) add(r runtime.ExitRecord) {
	sl := p.slot(r.Slot)
	for _, e := range append([]runtime.Exit{r.First}, r.Followers...) {
		sl.peaks[e.Name] = max(sl.peaks[e.Name], e.Memory.Peak)
	}
	if r.Number < sl.number {
		return
	}
	v := r.Verdict("")
	sl.number, sl.newest = r.Number, Crash{At: r.CrashedAt, Type: r.Type, Slot: r.Slot, Class: v.Class, Sentence: v.Sentence}
}

// cached returns the crashes of a process, and reads them if needed.
func (c *crashes) cached(process string) (*processCrashes, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.processes[process]
	if p == nil {
		// The lock is held while reading: a record that is added meanwhile is added to
		// the cache after it.
		records, err := c.exits.Process(process)
		if err != nil {
			return nil, err
		}
		p = &processCrashes{slots: map[runtime.SlotID]*slotCrashes{}}
		for _, r := range records {
			p.add(r)
		}
		c.processes[process] = p
	}
	p.used = time.Now()
	return p, nil
}

// of returns the crashes of a process.
func (c *crashes) of(process string) (Crashes, error) {
	p, err := c.cached(process)
	if err != nil {
		return Crashes{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := Crashes{Counts: make(map[runtime.SlotID]int, len(p.slots))}
	for id, sl := range p.slots {
		if sl.number == 0 {
			continue
		}
		out.Counts[id] = int(sl.number)
		if out.Newest == nil || sl.newest.At.After(out.Newest.At) {
			newest := sl.newest
			out.Newest = &newest
		}
	}
	return out, nil
}

// peaks returns the highest memory of earlier instances of a slot, by sidecar.
func (c *crashes) peaks(id runtime.SlotID) map[string]int64 {
	p, err := c.cached(id.Process)
	if err != nil {
		c.log.Debug("cannot read the memory of earlier instances", "process", id.Process, "err", err)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if sl := p.slots[id]; sl != nil {
		return maps.Clone(sl.peaks)
	}
	return nil
}

// raise remembers the peaks of a running instance. An instance that is stopped on
// request leaves no exit record.
func (c *crashes) raise(id runtime.SlotID, parts []Part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.processes[id.Process]
	if p == nil {
		return
	}
	sl := p.slot(id)
	for _, part := range parts {
		sl.peaks[part.Sidecar] = max(sl.peaks[part.Sidecar], part.Peak)
	}
}

// forget drops processes that were not used for an hour.
func (c *crashes) forget(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.processes, func(_ string, p *processCrashes) bool { return now.Sub(p.used) >= kept })
}
