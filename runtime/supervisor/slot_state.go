package supervisor

import (
	"fmt"
	"slices"

	"github.com/dewrun/dew/runtime"
)

// nextStates are the legal moves; one that is not here is a bug. Down leads to
// Crashed and Stopping because a daemon that comes back finds slots in the midst
// of a back-off, ended instances, and instances that are no longer desired.
var nextStates = map[runtime.State][]runtime.State{
	runtime.Down:     {runtime.Starting, runtime.Crashed, runtime.Stopping},
	runtime.Starting: {runtime.Running, runtime.Crashed, runtime.Stopping, runtime.Down},
	runtime.Running:  {runtime.Crashed, runtime.Stopping},
	runtime.Crashed:  {runtime.Starting, runtime.Stopping, runtime.Down},
	runtime.Stopping: {runtime.Down},
}

// mayMove tells whether a slot in state from may go to state to. Staying is no
// move.
func mayMove(from, to runtime.State) bool {
	return from == to || slices.Contains(nextStates[from], to)
}

// mustMove panics on an illegal move: the slot's border recovers, so one bug
// costs one slot.
func mustMove(from, to runtime.State) {
	if !mayMove(from, to) {
		panic(fmt.Sprintf("illegal move from %s to %s", from, to))
	}
}
