package runtime

import (
	"fmt"
	"slices"
)

// nextStates are the legal moves; one that is not here is a bug. Down leads to
// Crashed and Stopping because a daemon that comes back finds slots in the midst
// of a back-off, ended instances, and instances that are no longer desired.
var nextStates = map[State][]State{
	Down:     {Starting, Crashed, Stopping},
	Starting: {Running, Crashed, Stopping, Down},
	Running:  {Crashed, Stopping},
	Crashed:  {Starting, Stopping, Down},
	Stopping: {Down},
}

// mayMove tells whether a slot in state from may go to state to. Staying is no
// move.
func mayMove(from, to State) bool {
	return from == to || slices.Contains(nextStates[from], to)
}

// mustMove panics on an illegal move: the slot's border recovers, so one bug
// costs one slot.
func mustMove(from, to State) {
	if !mayMove(from, to) {
		panic(fmt.Sprintf("illegal move from %s to %s", from, to))
	}
}
