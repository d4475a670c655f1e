package route

import (
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/runtime"
)

// traffic counts the requests of one instance. All endpoints of the instance share it,
// because the instance gets a new endpoint when it is ready again.
type traffic struct {
	instance runtime.InstanceID
	requests atomic.Uint64
	nanos    atomic.Int64 // sum of the times to the header of the response
}

// add counts one response.
func (t *traffic) add(took time.Duration) {
	t.requests.Add(1)
	t.nanos.Add(int64(took))
}

// trafficOf returns the counters of the instance in a slot. The caller holds r.mu.
func (r *Router) trafficOf(st runtime.Status) *traffic {
	t := r.traffic[st.Slot]
	if t == nil || t.instance != st.Instance {
		t = &traffic{instance: st.Instance}
		r.traffic[st.Slot] = t
	}
	return t
}

// forgetTraffic drops the counters of an instance that has ended according to st. The
// caller holds r.mu.
func (r *Router) forgetTraffic(st runtime.Status) {
	if t := r.traffic[st.Slot]; t != nil && (t.instance != st.Instance || st.State == runtime.Down) {
		delete(r.traffic, st.Slot)
	}
}

// Traffic returns the number of requests that each instance answered, and their times.
// Instances that never were ready are missing.
func (r *Router) Traffic() map[runtime.InstanceID]runtime.Traffic {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[runtime.InstanceID]runtime.Traffic, len(r.traffic))
	for _, t := range r.traffic {
		out[t.instance] = runtime.Traffic{Requests: t.requests.Load(), Time: time.Duration(t.nanos.Load())}
	}
	return out
}
