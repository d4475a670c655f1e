package supervisor_test

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/address"
	"github.com/dewrun/dew/runtime/runtimetest"
)

const database = "5e5e5e5e-0000-4000-8000-000000000001"

// serve adds or changes a server.
func (w *world) serve(change func(v *runtime.Server)) runtime.Server {
	w.t.Helper()
	addr, err := w.sup.ReserveAddress(database)
	w.must(err)
	v := runtime.Server{
		GUID: database, Name: "db", Source: "SERVICE/POSTGRES", Version: "v1", Command: "sleep 100000", Dir: "/data",
		MemoryMB: 256, Ports: []int{5432}, Address: addr, Env: []string{"PGDATA=/data", "LANG=C"},
		Mounts: []stack.Mount{{Path: "/data", Type: "bind", Source: "/srv/db", Options: []string{"bind", "rw"}}},
		Check:  app.HealthCheck{Type: app.CheckPort}, KillDelay: time.Minute,
	}
	if change != nil {
		change(&v)
	}
	w.must(w.sup.PutServer(v))
	synctest.Wait()
	return v
}

// A server runs like an app's instance, with its own kind and settings.
func TestServerRuns(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.daemon()
		v := w.serve(nil)
		st := w.wantState(database, runtime.Running)
		if st.Address != v.Address || st.App != database || !slices.Equal(st.Ports, v.Ports) {
			t.Errorf("status = %+v", st)
		}
		s := w.fake.Last().Spec()
		if s.Kind != runtime.KindService || len(s.Mounts) != 1 || s.Memory != 256<<20 || s.Address.Addr() != v.Address || s.Address.Bits() != 20 {
			t.Errorf("spec = %+v", s)
		}
		p := s.Processes[0]
		if p.Source != "SERVICE/POSTGRES" || p.Dir != "/data" || !slices.Contains(p.Env, "LANG=C") || !slices.Contains(p.Env, "PGDATA=/data") {
			t.Errorf("process = %+v", p)
		}
		if slices.ContainsFunc(p.Env, func(kv string) bool { return strings.HasPrefix(kv, "VCAP_") }) {
			t.Errorf("a server is no app: %v", p.Env)
		}
		if got, err := w.sup.Server(database); err != nil || got.Name != "db" {
			t.Errorf("server = %+v, %v", got, err)
		}
		if !w.sup.Apps()[database] {
			t.Error("its log is nobody's")
		}
	})
}

// A server that crashes leaves a record under its own name and starts again with the
// same address. The next daemon takes it over, and starts it again after a reboot.
func TestServerStaysItself(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.daemon()
		v := w.serve(nil)
		w.fake.Last().End(main, 137)
		w.pass(time.Second)
		r := w.record(database)
		if r.Description != "SERVICE/POSTGRES: Exited with status 137" {
			t.Errorf("record = %+v", r)
		}
		if st := w.wantState(database, runtime.Running); st.Address != v.Address {
			t.Errorf("address = %s, want %s", st.Address, v.Address)
		}
		w.wantStarts(2)
		before := w.status(database).Instance
		w.daemon()
		if st := w.wantState(database, runtime.Running); st.Instance != before {
			t.Errorf("instance = %s, want %s", st.Instance, before)
		}
		w.wantLeases(1)
		w.stopDaemon()
		w.stopDaemon, w.fake = nil, runtimetest.NewFake() // nothing survives a reboot
		w.daemon()
		if st := w.wantState(database, runtime.Running); st.Instance == before || st.Address != v.Address {
			t.Errorf("status = %+v, want another instance at %s", st, v.Address)
		}
		w.wantStarts(1)
	})
}

// Another version replaces the instance; the same version does not. A stopped server
// keeps its record.
func TestServerChanges(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.daemon()
		w.serve(nil)
		w.serve(nil)
		w.wantStarts(1)
		w.serve(func(v *runtime.Server) { v.Version, v.MemoryMB = "v2", 512 })
		w.wantStarts(2)
		if got := w.fake.Last().Spec().Memory; got != 512<<20 {
			t.Errorf("memory = %d", got)
		}
		w.serve(func(v *runtime.Server) { v.Version, v.Stopped = "v2", true })
		if sts := w.sup.Instances(database); len(sts) != 0 || len(w.fake.Present()) != 0 {
			t.Errorf("it is stopped: %+v", sts)
		}
		if !w.sup.Apps()[database] {
			t.Error("the log of a stopped server is nobody's")
		}
		w.wantLeases(1)
		w.daemon()
		w.wantStarts(2)
		w.serve(func(v *runtime.Server) { v.Version = "v2" })
		w.wantState(database, runtime.Running)
	})
}

// A dropped server gets its kill delay, and leaves only its address, which is released
// last.
func TestServerIsDropped(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.daemon()
		w.serve(nil)
		w.fake.Last().End(main, 1)
		w.pass(time.Second)
		w.fake.Last().IgnoreSignals(main, syscall.SIGTERM)
		w.serve(func(v *runtime.Server) { v.Stopped = true }) // the slot reads the kill delay now
		w.pass(50 * time.Second)
		w.must(w.sup.DropServer(database))
		synctest.Wait()
		if st := w.wantState(database, runtime.Stopping); st.App != database || len(w.fake.Present()) != 1 {
			t.Errorf("status = %+v", st)
		}
		w.pass(11 * time.Second)
		if sts := w.sup.Instances(database); len(sts) != 0 {
			t.Errorf("instances = %+v", sts)
		}
		w.wantLeases(1)
		w.must(w.sup.ReleaseAddress(database))
		w.wantNothing()
		if _, err := w.sup.Server(database); !errors.Is(err, runtime.ErrNoServer) {
			t.Errorf("server = %v", err)
		}
		if rs := w.records(database); len(rs) != 0 {
			t.Errorf("records = %+v", rs)
		}
		w.must(w.sup.DropServer(database))
	})
}

// The next daemon stops a server that was dropped while no daemon ran.
func TestServerDroppedMeanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.daemon()
		w.serve(nil)
		w.stopDaemon()
		w.must(w.sup.DropServer(database))
		w.daemon()
		if len(w.fake.Present()) != 0 || len(w.sup.Instances(database)) != 0 {
			t.Errorf("instances = %+v", w.sup.Instances(database))
		}
	})
}

// A server keeps its address across daemons, and no other server gets it.
func TestServerAddress(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.subnet = "10.201.0.0/29" // six addresses, of which one is the bridge's
		w.daemon()
		first, err := w.sup.ReserveAddress(database)
		w.must(err)
		seen := map[string]bool{first.String(): true}
		for _, other := range []string{"a", "b", "c"} {
			got, err := w.sup.ReserveAddress(other)
			w.must(err)
			if seen[got.String()] {
				t.Errorf("%s is given twice", got)
			}
			seen[got.String()] = true
		}
		w.daemon()
		if again, err := w.sup.ReserveAddress(database); err != nil || again != first {
			t.Errorf("address = %s, %v, want %s", again, err, first)
		}
		p := w.push("sleep 1000")
		synctest.Wait()
		if st := w.wantState(p, runtime.Running); seen[st.Address.String()] {
			t.Errorf("an app has the address %s of a server", st.Address)
		}
		if _, err := w.sup.ReserveAddress("one too many"); !errors.Is(err, address.ErrNoAddress) {
			t.Errorf("the sixth = %v", err)
		}
	})
}

// A server that can never run is refused, or its record says why it does not run.
func TestServerRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.daemon()
		good := w.serve(nil)
		for name, spoil := range map[string]func(v *runtime.Server){
			"no guid": func(v *runtime.Server) { v.GUID = "" }, "no command": func(v *runtime.Server) { v.Command = "" },
			"no version": func(v *runtime.Server) { v.Version = "" }, "no memory": func(v *runtime.Server) { v.MemoryMB = 0 },
			"no address": func(v *runtime.Server) { v.Address = v.Address.Prev().Prev().Prev() },
		} {
			v := good
			spoil(&v)
			if err := w.sup.PutServer(v); err == nil {
				t.Errorf("%s is taken", name)
			}
		}
		w.serve(func(v *runtime.Server) { v.Version, v.Stack = "v2", "gone" })
		st := w.wantState(database, runtime.Crashed)
		if !strings.Contains(st.Details, "SERVICE/POSTGRES: ") || !strings.Contains(st.Details, "there is no stack 'gone'") {
			t.Errorf("details = %q", st.Details)
		}
	})
}
