package route

import (
	"slices"

	"github.com/dewrun/dew/runtime"
)

// Busy reports whether an instance without routes still has requests or connections.
func (r *Router) Busy(id runtime.InstanceID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, going := range r.withdrawn {
		if slices.ContainsFunc(going, func(e *endpoint) bool { return e.instance == id && !e.idle() }) {
			return true
		}
	}
	return false
}
