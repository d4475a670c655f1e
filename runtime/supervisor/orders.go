package supervisor

import (
	"sync"
	"sync/atomic"
)

// orders are what others ask of a slot. None of its methods waits: the goroutine of the
// slot reads the channels.
type orders struct {
	stop           chan struct{} // closed by Stop
	stopped        sync.Once
	drainOnStop    atomic.Bool   // requests that are under way may end first
	drainOnRestart atomic.Bool   // so may they before the restart that is asked for
	restart        chan struct{} // holds one
	nudge          chan struct{} // holds one: the desired state changed
}

// Stop ends the slot and its instance. It does not wait for them.
func (o *orders) Stop() {
	o.drainOnStop.Store(false)
	o.requestStop()
}

func (o *orders) requestStop() { o.stopped.Do(func() { close(o.stop) }) }

// Restart replaces the instance by one of the desired state and forgets earlier
// crashes. It does not wait.
func (o *orders) Restart() { post(o.restart) }

// Nudge makes the slot check whether its instance is still in the desired state, or
// was started before the last request to start or restart. It does not wait.
func (o *orders) Nudge() { post(o.nudge) }

// post leaves a message for which one that was not read yet will do.
func post(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Retire is Stop for a slot that others stand in for: requests that are under way
// may end before its instance is told to. Stop cuts that short.
func (o *orders) Retire() {
	o.drainOnStop.Store(true)
	o.requestStop()
}

// RestartGently is Restart for one slot among others that serve meanwhile: requests
// that are under way may end before its instance is told to.
func (o *orders) RestartGently() {
	o.drainOnRestart.Store(true)
	post(o.restart)
}

// mustDrain tells whether requests that are under way may end before the instance. A
// stop that leaves nobody to serve does not wait for them.
func (o *orders) mustDrain() bool {
	return o.drainOnStop.Load() || o.drainOnRestart.Load() && !o.stopping()
}

// stopping tells whether Stop was called.
func (o *orders) stopping() bool {
	select {
	case <-o.stop:
		return true
	default:
		return false
	}
}
