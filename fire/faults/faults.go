package faults

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dewrun/dew/fire/load"
	"github.com/dewrun/dew/fire/world"
)

// Env is what faults can break.
type Env struct {
	World  *world.World
	Ledger *load.Ledger
	Slots  []world.Slot // whose instances faults can end
	Peers  *load.Peers

	// Pause stops the load that uses peers, until the returned function is called.
	Pause func() (resume func())
	// Note notes what dewd has acknowledged by now.
	Note func() Noted

	hit map[world.Slot]bool // slots whose instances faults broke since Settled
}

// Settled says that all instances run again.
func (e *Env) Settled() { e.hit = nil }

// Noted checks that another dewd has what was noted.
type Noted func(ctx context.Context, w *world.World) error

// Draw has the random choices of one fault. They come from the seed.
type Draw struct {
	Target uint64        // which of several
	Byte   uint64        // where to cut a file
	Hold   time.Duration // how long the fault lasts
}

// Inject begins a fault. It returns what ends the fault, which is called after Hold; nil
// if nothing has to be ended.
type Inject func(ctx context.Context, e *Env, d Draw) (heal func() error, err error)

// Fault is one row.
type Fault struct {
	Name   string
	Weight int // how often it is chosen
	Inject Inject
	// Restored reports that dewd must notice the fault in one of its regular checks,
	// which can take 30 seconds.
	Restored bool
	// Alone reports that no other fault follows before the invariants hold.
	Alone bool
	// Anytime reports that the fault can happen while dewd starts.
	Anytime bool
}

// All returns every fault.
func All() []Fault {
	return slices.Concat(kills(), machine(), scarcity(), peers(), copies(), files())
}

// ByName finds a fault.
func ByName(name string) (Fault, error) {
	for _, f := range All() {
		if f.Name == name {
			return f, nil
		}
	}
	return Fault{}, fmt.Errorf("no fault is called %q", name)
}

// targetTimeout is far longer than an instance needs to start.
const targetTimeout = time.Minute

// target returns the running instance of the drawn slot, or of the next slot that no
// fault has hit since all invariants held. The consequence of an earlier fault can be
// that it is just starting.
func (e *Env) target(ctx context.Context, d Draw) (found world.Instance, err error) {
	if len(e.hit) == len(e.Slots) {
		e.hit = nil
	}
	if e.hit == nil {
		e.hit = map[world.Slot]bool{}
	}
	first := int(d.Target % uint64(len(e.Slots)))
	i := slices.IndexFunc(slices.Concat(e.Slots[first:], e.Slots[:first]), func(s world.Slot) bool { return !e.hit[s] })
	slot := e.Slots[(first+i)%len(e.Slots)]
	e.hit[slot] = true
	err = world.Until(ctx, targetTimeout, func() error {
		for _, in := range e.World.Running() {
			if in.Slot == slot {
				e.Ledger.See(in)
				found = in
				return nil
			}
		}
		return fmt.Errorf("no instance of %s runs", slot)
	})
	return found, err
}
