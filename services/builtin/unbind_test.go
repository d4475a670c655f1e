package builtin

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services"
)

// A binding or instance can be deleted even if its server does not run. When the server
// runs again, the user of the binding is dropped.
func TestUnbindFromABrokenServer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *Broker, h *fakeHost) {
		ask(t, b, req(services.Create, "postgres", smallPlan, ""))
		r := services.BindingRequest{Action: services.Create, Binding: "b", Instance: guid}
		if _, err := b.Binding(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		breaks := func(why string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.broken = func(runtime.Server) string { return why }
		}
		dropped := func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return slices.ContainsFunc(h.inputs, func(s string) bool { return strings.Contains(s, "DROP ROLE "+userOf("b")) })
		}
		breaks("its data is broken")
		r.Action = services.Delete
		if p, err := b.Binding(t.Context(), r); err != nil || p.State != services.Succeeded {
			t.Fatalf("unbind = %+v, %v", p, err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if rec, err := b.get(guid); err != nil || len(rec.Bindings) > 0 || !slices.Equal(rec.Stale, []string{"b"}) || dropped() {
			t.Errorf("record = %+v, %v, dropped: %t", rec, err, dropped())
		}
		breaks("")
		time.Sleep(time.Hour)
		synctest.Wait()
		if rec, err := b.get(guid); err != nil || len(rec.Stale) > 0 || !dropped() {
			t.Errorf("record = %+v, %v, dropped: %t", rec, err, dropped())
		}
		ask(t, b, req(services.Delete, "postgres", smallPlan, ""))
		nothingLeft(t, b, h)
	})
}

// A deletion waits for operations that use the files of the instance, such as a
// restore, which would start its server again.
func TestDeleteWaitsForTheFiles(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *Broker, h *fakeHost) {
		ask(t, b, req(services.Create, "redis", smallPlan, ""))
		_, unlock, err := b.lockReady(t.Context(), guid)
		if err != nil {
			t.Fatal(err)
		}
		if p := ask(t, b, req(services.Delete, "redis", smallPlan, "")); p.State != services.InProgress || len(b.c.Host.Instances(guid)) != 1 {
			t.Errorf("deletion = %+v", p)
		}
		unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		nothingLeft(t, b, h)
	})
}
