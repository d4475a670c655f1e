package builtin

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/services"
)

// countedDrops counts the requests to stop a server.
type countedDrops struct {
	Host
	drops atomic.Int32
}

func (h *countedDrops) DropServer(guid string) error {
	h.drops.Add(1)
	return h.Host.DropServer(guid)
}

// Polling a deletion does not start it again.
func TestPolledDeletionGoesOn(t *testing.T) {
	counted := &countedDrops{}
	inBubble(t, func(c *Config) { counted.Host, c.Host = c.Host, counted }, func(t *testing.T, b *Broker, h *fakeHost) {
		ask(t, b, req(services.Create, "redis", smallPlan, ""))
		stuck := func(yes bool) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.stuck = yes
		}
		stuck(true)
		if _, err := b.Instance(t.Context(), req(services.Delete, "redis", smallPlan, "")); err != nil {
			t.Fatal(err)
		}
		for range 20 { // the server stops slowly
			time.Sleep(100 * time.Millisecond)
			p, err := b.LastOperation(t.Context(), services.LastOperationRequest{Action: services.Delete, Instance: guid})
			if err != nil || p.State != services.InProgress {
				t.Fatalf("last = %+v, %v", p, err)
			}
		}
		stuck(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := counted.drops.Load(); n != 1 {
			t.Errorf("the server was to end %d times, want once", n)
		}
		nothingLeft(t, b, h)
	})
}
