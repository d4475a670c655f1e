package supervisor

import (
	"sync"
	"sync/atomic"
)

// orders has the requests to a slot. None of its methods blocks: the goroutine of the
// slot reads the channels.
type orders struct {
	stop           chan struct{} // closed by Stop
	stopped        sync.Once
	drainOnStop    atomic.Bool   // active requests can finish before the stop
	drainOnRestart atomic.Bool   // active requests can finish before the requested restart
	restart        chan struct{} // buffer of 1
	recheck        chan struct{} // buffer of 1: the desired state changed
}

// Stop stops the slot and its instance. It does not wait for them.
func (o *orders) Stop() {
	o.drainOnStop.Store(false)
	o.requestStop()
}

func (o *orders) requestStop() { o.stopped.Do(func() { close(o.stop) }) }

// Restart replaces the instance by one in the desired state and forgets earlier
// crashes. It does not wait.
func (o *orders) Restart() { post(o.restart) }

// Recheck makes the slot check whether its instance is out of date. It is if it differs
// from the desired state, or is older than the last request to start or restart. It
// does not wait.
func (o *orders) Recheck() { post(o.recheck) }

// post sends a message unless an unread one is already waiting.
func post(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Retire is Stop for a slot that other slots replace. Active requests can finish before
// its instance is signalled. Stop ends that wait.
func (o *orders) Retire() {
	o.drainOnStop.Store(true)
	o.requestStop()
}

// RestartGently is Restart for one slot while others serve requests. Active requests
// can finish before its instance is signalled.
func (o *orders) RestartGently() {
	o.drainOnRestart.Store(true)
	post(o.restart)
}

// mustDrain reports whether active requests can finish before the instance is stopped.
// A stop of the whole app does not wait for them.
func (o *orders) mustDrain() bool {
	return o.drainOnStop.Load() || o.drainOnRestart.Load() && !o.stopping()
}

// stopping reports whether Stop was called.
func (o *orders) stopping() bool {
	select {
	case <-o.stop:
		return true
	default:
		return false
	}
}
