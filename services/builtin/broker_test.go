package builtin

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services"
)

const guid = "11111111-2222-4333-8444-555555555555"

func req(a services.Action, engine, plan, parameters string) services.InstanceRequest {
	return services.InstanceRequest{
		Action: a, Instance: guid, Offering: offeringID(engine), Plan: planID(engine, plan),
		Parameters: []byte(parameters), Context: services.Context{InstanceName: "db"},
	}
}

// ask sends a request and waits until nothing more happens for an hour.
func ask(t *testing.T, b *Broker, r services.InstanceRequest) services.Progress {
	t.Helper()
	p, err := b.Instance(t.Context(), r)
	if err != nil {
		t.Fatalf("%s = %v", r.Action, err)
	}
	if p.State == services.InProgress {
		time.Sleep(time.Hour)
		synctest.Wait()
		p, err = b.LastOperation(t.Context(), services.LastOperationRequest{Action: r.Action, Instance: r.Instance, Operation: p.Operation})
		if err != nil {
			t.Fatalf("last of %s = %v", r.Action, err)
		}
	}
	return p
}

func inBubble(t *testing.T, change func(c *Config), test func(t *testing.T, b *Broker, h *fakeHost)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, h := newBroker(t, change)
		stop := start(t, b)
		defer stop()
		synctest.Wait()
		test(t, b, h)
	})
}

func TestCreateBindDelete(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, b *Broker, h *fakeHost) {
				if p := ask(t, b, req(services.Create, e.name, smallPlan, "")); p.State != services.Succeeded {
					t.Fatalf("create = %+v", p)
				}
				v := h.servers[guid]
				if v.MemoryMB != e.plans[smallPlan].memoryMB || v.Stack != "some" || v.Source != "SERVICE/"+strings.ToUpper(e.name) || v.KillDelay < 30*time.Second {
					t.Errorf("server = %+v", v)
				}
				if p := ask(t, b, req(services.Create, e.name, smallPlan, "")); p.State != services.Succeeded || len(h.puts) != 1 {
					t.Errorf("create again = %+v, %d servers", p, len(h.puts))
				}
				bind := services.BindingRequest{Action: services.Create, Binding: "b", Instance: guid}
				p, err := b.Binding(t.Context(), bind)
				if err != nil || p.Binding == nil || !strings.Contains(string(p.Binding.Credentials), v.Address.String()) {
					t.Fatalf("bind = %+v, %v", p, err)
				}
				if got, err := b.FetchBinding(t.Context(), bind); err != nil || string(got.Credentials) != string(p.Binding.Credentials) {
					t.Errorf("fetch = %s, %v", got.Credentials, err)
				}
				bind.Action = services.Delete
				if p, err := b.Binding(t.Context(), bind); err != nil || p.State != services.Succeeded || p.Gone {
					t.Errorf("unbind = %+v, %v", p, err)
				}
				if p := ask(t, b, req(services.Delete, e.name, smallPlan, "")); p.State != services.Succeeded {
					t.Errorf("delete = %+v", p)
				}
				nothingLeft(t, b, h)
			})
		})
	}
}

func nothingLeft(t *testing.T, b *Broker, h *fakeHost) {
	t.Helper()
	if _, err := os.Stat(b.home(guid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder: %v", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.servers) != 0 || len(h.leased) != 0 {
		t.Errorf("servers = %v, addresses = %v", h.servers, h.leased)
	}
}

// A creation that fails reports the reason and leaves nothing. It can be requested
// again.
func TestCreateFails(t *testing.T) {
	for name, tt := range map[string]struct {
		config func(c *Config)
		host   func(h *fakeHost)
		want   string
	}{
		"no stack": {
			config: func(c *Config) {
				c.Stacks = func(context.Context, Programs, func(string)) (string, error) { return "", errTest }
			}, want: "cannot get Redis: no luck",
		},
		"not installed": {config: func(c *Config) { c.Stacks = nil }, want: "apt install redis-server"},
		"crashes":       {host: func(h *fakeHost) { h.broken = func(runtime.Server) string { return "Exited with status 1" } }, want: "Exited with status 1"},
		"no login": {
			host: func(h *fakeHost) { h.answer = func(string, string) (string, int) { return "WRONGPASS\n", 0 } },
			want: "not ready after 5m0s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tt.config, func(t *testing.T, b *Broker, h *fakeHost) {
				if tt.host != nil {
					tt.host(h)
				}
				p := ask(t, b, req(services.Create, "redis", smallPlan, ""))
				if p.State != services.Failed || !strings.Contains(p.Description, tt.want) {
					t.Errorf("create = %+v, want %q", p, tt.want)
				}
				nothingLeft(t, b, h)
				if _, err := b.Binding(t.Context(), services.BindingRequest{Action: services.Create, Binding: "b", Instance: guid}); err == nil {
					t.Error("what failed can be bound")
				}
				h.mu.Lock()
				h.broken, h.answer = nil, nil
				h.mu.Unlock()
				if tt.config == nil {
					if p := ask(t, b, req(services.Create, "redis", smallPlan, "")); p.State != services.Succeeded {
						t.Errorf("create once more = %+v", p)
					}
				}
				ask(t, b, req(services.Delete, "redis", smallPlan, ""))
				nothingLeft(t, b, h)
			})
		})
	}
}

func TestRefused(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *Broker, h *fakeHost) {
		if p := ask(t, b, req(services.Create, "postgres", smallPlan, `{"database":"shop"}`)); p.State != services.Succeeded {
			t.Fatalf("create = %+v", p)
		}
		evil := req(services.Create, "redis", smallPlan, "")
		evil.Instance = "../../etc"
		odd := req(services.Create, "redis", smallPlan, "")
		odd.Plan = "gold"
		for name, tt := range map[string]struct {
			r      services.InstanceRequest
			status int
		}{
			"a path for a guid": {evil, 400}, "no such plan": {odd, 400}, "another action": {req("explode", "redis", smallPlan, ""), 400},
			"another one with the guid": {req(services.Create, "redis", smallPlan, ""), 409},
			"another shape":             {req(services.Create, "postgres", largePlan, `{"database":"shop"}`), 409},
			"another database":          {req(services.Update, "postgres", smallPlan, `{"database":"other"}`), 400},
			"unknown key":               {req(services.Update, "postgres", smallPlan, `{"speed":1}`), 400},
		} {
			_, err := b.Instance(t.Context(), tt.r)
			if e, ok := errors.AsType[*services.BrokerError](err); !ok || e.Status != tt.status || e.Orphan {
				t.Errorf("%s = %v", name, err)
			}
		}
		for name, r := range map[string]services.BindingRequest{
			"a route":     {Action: services.Create, Binding: "b", Instance: guid, Route: "x.example.org"},
			"parameters":  {Action: services.Create, Binding: "b", Instance: guid, Parameters: []byte(`{"a":1}`)},
			"no instance": {Action: services.Create, Binding: "b", Instance: "none"},
			"no guid":     {Action: services.Create, Instance: guid},
			"an update":   {Action: services.Update, Binding: "b", Instance: guid},
		} {
			_, err := b.Binding(t.Context(), r)
			if _, ok := errors.AsType[*services.BrokerError](err); !ok {
				t.Errorf("binding with %s = %v", name, err)
			}
		}
		if p, err := b.Instance(t.Context(), req(services.Update, "postgres", smallPlan, "")); err != nil || p.State != services.Succeeded || len(h.puts) != 1 {
			t.Errorf("an update that changes nothing = %+v, %v", p, err)
		}
	})
}

// If the server does not start with the new plan, the old plan is restored.
func TestUpdateGoesBack(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *Broker, h *fakeHost) {
		ask(t, b, req(services.Create, "postgres", smallPlan, ""))
		small := h.servers[guid].MemoryMB
		h.mu.Lock()
		h.broken = func(v runtime.Server) string {
			if v.MemoryMB != small {
				return "too large for this machine"
			}
			return ""
		}
		h.mu.Unlock()
		p := ask(t, b, req(services.Update, "postgres", largePlan, ""))
		if p.State != services.Failed || !strings.Contains(p.Description, "the service instance keeps the old plan: too large for this machine") {
			t.Errorf("update = %+v", p)
		}
		if v := h.servers[guid]; v.MemoryMB != small {
			t.Errorf("server = %+v", v)
		}
		h.mu.Lock()
		h.broken = nil
		h.mu.Unlock()
		if p := ask(t, b, req(services.Update, "postgres", largePlan, "")); p.State != services.Succeeded || h.servers[guid].MemoryMB == small {
			t.Errorf("update once more = %+v", p)
		}
		versions := map[string]bool{}
		for _, v := range h.puts {
			versions[v.Version] = true
		}
		if len(versions) != 4 { // every start has a new version
			t.Errorf("versions = %v", versions)
		}
	})
}

// Redis refuses a plan that is too small for its data.
func TestUpdateFits(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *Broker, h *fakeHost) {
		ask(t, b, req(services.Create, "redis", largePlan, ""))
		h.mu.Lock()
		h.answer = func(_, input string) (string, int) {
			if strings.HasPrefix(input, "INFO") {
				return "used_memory:200000000\r\n", 0
			}
			return "PONG\n", 0
		}
		h.mu.Unlock()
		p := ask(t, b, req(services.Update, "redis", smallPlan, ""))
		if p.State != services.Failed || !strings.Contains(p.Description, "has space for 80 MB, but 190 MB are used") || len(h.puts) != 1 {
			t.Errorf("update = %+v", p)
		}
	})
}

// A deletion does not wait for a creation that never completes. Other operations are
// refused during the creation.
func TestDeleteSupersedes(t *testing.T) {
	begun := make(chan struct{}, 10)
	slow := func(c *Config) {
		c.Stacks = func(ctx context.Context, _ Programs, progress func(string)) (string, error) {
			progress("downloading")
			begun <- struct{}{}
			<-ctx.Done()
			return "", ctx.Err()
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b, h := newBroker(t, slow)
		defer start(t, b)()
		synctest.Wait()
		p, err := b.Instance(t.Context(), req(services.Create, "redis", smallPlan, ""))
		if err != nil || p.State != services.InProgress {
			t.Fatalf("create = %+v, %v", p, err)
		}
		synctest.Wait()
		p, err = b.LastOperation(t.Context(), services.LastOperationRequest{Instance: guid})
		if err != nil || p.State != services.InProgress || p.Description != "creating: downloading" {
			t.Errorf("last = %+v, %v", p, err)
		}
		_, err = b.Instance(t.Context(), req(services.Update, "redis", largePlan, ""))
		if e, ok := errors.AsType[*services.BrokerError](err); !ok || e.Code != "ConcurrencyError" {
			t.Errorf("update meanwhile = %v", err)
		}
		if p := ask(t, b, req(services.Delete, "redis", smallPlan, "")); p.State != services.Succeeded {
			t.Errorf("delete = %+v", p)
		}
		nothingLeft(t, b, h)
		if len(begun) != 1 {
			t.Errorf("it was begun %d times", len(begun))
		}
	})
}

// The next daemon continues the operation that was in progress when the daemon exited.
func TestOperationContinuesAfterRestart(t *testing.T) {
	for _, action := range []services.Action{services.Create, services.Update, services.Delete} {
		t.Run(string(action), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, h := newBroker(t, nil)
				if action != services.Create {
					stop := start(t, b)
					synctest.Wait()
					ask(t, b, req(services.Create, "postgres", smallPlan, ""))
					stop()
				}
				// No worker runs, as if the daemon had been killed right after the
				// response.
				r := req(action, "postgres", largePlan, "")
				p, err := b.Instance(t.Context(), r)
				if err != nil || p.State != services.InProgress {
					t.Fatalf("%s = %+v, %v", action, p, err)
				}
				next, err := New(b.c)
				if err != nil {
					t.Fatal(err)
				}
				defer start(t, next)()
				time.Sleep(time.Hour)
				p, err = next.LastOperation(t.Context(), services.LastOperationRequest{Action: action, Instance: guid})
				if err != nil || p.State != services.Succeeded {
					t.Fatalf("%s = %+v, %v", action, p, err)
				}
				if action == services.Delete {
					nothingLeft(t, next, h)
				} else if h.servers[guid].MemoryMB != postgres.plans[largePlan].memoryMB {
					t.Errorf("server = %+v", h.servers[guid])
				}
			})
		})
	}
}

// The broker waits until the host has found the servers of the previous daemon.
// Otherwise it would delete the data of a running server.
func TestWaitsForTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h := newBroker(t, nil)
		stop := start(t, b)
		synctest.Wait()
		ask(t, b, req(services.Create, "redis", smallPlan, ""))
		stop()
		h.settled = make(chan struct{})
		next, err := New(b.c)
		if err != nil {
			t.Fatal(err)
		}
		defer start(t, next)()
		if p := ask(t, next, req(services.Delete, "redis", smallPlan, "")); p.State != services.InProgress {
			t.Errorf("delete before the host is ready = %+v", p)
		}
		if _, err := os.Stat(next.home(guid)); err != nil {
			t.Errorf("the data before the host is ready: %v", err)
		}
		close(h.settled)
		time.Sleep(time.Hour)
		nothingLeft(t, next, h)
	})
}

// If a server does not stop, the broker waits for it and retries the deletion.
func TestDeleteTriesAgain(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *Broker, h *fakeHost) {
		ask(t, b, req(services.Create, "redis", smallPlan, ""))
		h.mu.Lock()
		h.stuck = true
		h.mu.Unlock()
		if p := ask(t, b, req(services.Delete, "redis", smallPlan, "")); p.State != services.InProgress {
			t.Errorf("delete = %+v", p)
		}
		if _, err := os.Stat(b.home(guid)); err != nil {
			t.Errorf("the data went before the server: %v", err)
		}
		h.mu.Lock()
		h.stuck = false
		h.mu.Unlock()
		if p := ask(t, b, req(services.Delete, "redis", smallPlan, "")); p.State != services.Succeeded {
			t.Errorf("delete once more = %+v", p)
		}
		nothingLeft(t, b, h)
	})
}

// A binding is recorded before its user is created, so that a failed bind can be
// undone.
func TestBindFails(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *Broker, h *fakeHost) {
		ask(t, b, req(services.Create, "postgres", smallPlan, ""))
		h.mu.Lock()
		h.answer = func(_, input string) (string, int) {
			if strings.Contains(input, "PASSWORD") {
				return "ERROR: no luck\n", 3
			}
			return "ready\n", 0
		}
		h.mu.Unlock()
		r := services.BindingRequest{Action: services.Create, Binding: "b", Instance: guid}
		_, err := b.Binding(t.Context(), r)
		if err == nil || !strings.Contains(err.Error(), "ERROR: no luck") {
			t.Errorf("bind = %v", err)
		}
		if _, ok := errors.AsType[*services.BrokerError](err); ok {
			t.Errorf("nobody takes back what it may have made: %v", err)
		}
		r.Action = services.Delete
		if p, err := b.Binding(t.Context(), r); err != nil || p.Gone {
			t.Errorf("unbind = %+v, %v", p, err)
		}
		if !slices.ContainsFunc(h.inputs, func(s string) bool { return strings.Contains(s, "DROP ROLE "+userOf("b")) }) {
			t.Errorf("asked = %q", h.inputs)
		}
	})
}
