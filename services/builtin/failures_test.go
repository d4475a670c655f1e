//go:build integration

package builtin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services"
)

const brokenEngines = "99999999-2222-4333-8444-000000000000"

// nothing checks that a failed instance left no folder, server or address.
func (w *world) nothing(guid string) {
	w.t.Helper()
	if _, err := os.Stat(w.broker.home(guid)); !errors.Is(err, os.ErrNotExist) {
		w.t.Errorf("the folder of the data: %v", err)
	}
	if _, err := w.sup.Server(guid); !errors.Is(err, runtime.ErrNoServer) {
		w.t.Errorf("the server: %v", err)
	}
	if left := w.leases(); len(left) != 0 {
		w.t.Errorf("addresses that are still taken: %v", left)
	}
}

// If a server is not installed and no stack is available, the error says what to
// install.
func TestNotInstalled(t *testing.T) {
	w := newWorld(t)
	w.machine = "-"
	w.boot()
	p := w.ask(request(services.Create, brokenEngines, "postgres", smallPlan, ""))
	if p.State != services.Failed || !strings.Contains(p.Description, "apt install postgresql") {
		t.Errorf("creation = %+v", p)
	}
	w.nothing(brokenEngines)
	w.succeed(request(services.Delete, brokenEngines, "postgres", smallPlan, ""))
}

// The server runs in a stack that is created on demand, and users see its progress.
func TestStackOnDemand(t *testing.T) {
	w := newWorld(t)
	w.machine = "-"
	begun, made := make(chan []string, 1), make(chan struct{})
	w.stacks = func(ctx context.Context, p Programs, progress func(string)) (string, error) {
		progress("unpacking redis-server")
		begun <- p.Packages
		select {
		case <-made:
			return "host", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	w.boot()
	p, err := w.broker.Instance(w.ctx(), request(services.Create, brokenEngines, "redis", smallPlan, ""))
	if err != nil || p.State != services.InProgress {
		t.Fatalf("creation = %+v, %v", p, err)
	}
	if got := <-begun; len(got) != 1 || got[0] != "redis-server" {
		t.Errorf("packages = %v", got)
	}
	w.eventually("the progress is shown", brokenEngines, func() error {
		p, err := w.broker.LastOperation(w.ctx(), services.LastOperationRequest{Instance: brokenEngines})
		if err == nil && p.Description != "creating: unpacking redis-server" {
			err = fmt.Errorf("it is %+v", p)
		}
		return err
	})
	close(made)
	w.succeed(request(services.Create, brokenEngines, "redis", smallPlan, "")) // a repeated request continues
	w.succeed(request(services.Delete, brokenEngines, "redis", smallPlan, ""))
	w.nothing(brokenEngines)
}

// A disk that fills up during a creation leaves nothing behind.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.root, "services")
	w.must(os.MkdirAll(dir, 0o700))
	w.must(unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m,mode=700"))
	t.Cleanup(func() { w.must(unix.Unmount(dir, unix.MNT_DETACH)) })
	w.boot()
	p := w.ask(request(services.Create, brokenEngines, "postgres", smallPlan, ""))
	if p.State != services.Failed || !strings.Contains(p.Description, "No space left on device") || !strings.Contains(p.Description, "MB are free") {
		t.Errorf("creation = %+v\n%s", p, w.log(brokenEngines))
	}
	w.nothing(brokenEngines)
	w.leave()
	w.reserve = 1 << 30
	w.boot()
	_, err := w.broker.Instance(w.ctx(), request(services.Create, "another", "postgres", smallPlan, ""))
	if e, ok := errors.AsType[*services.BrokerError](err); !ok || e.Status != 507 || !strings.Contains(e.Description, "24 MB are free") {
		t.Errorf("creation on a full disk = %v", err)
	}
}

// The daemon exits during a creation and during a deletion. The next one continues, and
// reports the correct result.
func TestInterruptedCreate(t *testing.T) {
	w := newWorld(t)
	w.boot()
	_, err := w.broker.Instance(w.ctx(), request(services.Create, brokenEngines, "redis", smallPlan, ""))
	w.must(err)
	for range 4 {
		w.leave()
		w.boot()
	}
	w.succeed(request(services.Create, brokenEngines, "redis", smallPlan, ""))
	p, err := w.broker.Binding(w.ctx(), services.BindingRequest{Action: services.Create, Binding: "b", Instance: brokenEngines})
	if err != nil || p.Binding == nil {
		t.Fatalf("binding = %+v, %v", p, err)
	}
	_, err = w.broker.Instance(w.ctx(), request(services.Delete, brokenEngines, "redis", smallPlan, ""))
	w.must(err)
	for range 3 {
		w.leave()
		w.boot()
	}
	w.succeed(request(services.Delete, brokenEngines, "redis", smallPlan, ""))
	w.nothing(brokenEngines)
}

// A deletion does not wait until a creation completes.
func TestDeletedWhileCreated(t *testing.T) {
	w := newWorld(t)
	w.boot()
	_, err := w.broker.Instance(w.ctx(), request(services.Create, brokenEngines, "postgres", smallPlan, ""))
	w.must(err)
	w.eventually("its folder is there", brokenEngines, func() error { _, err := os.Stat(w.broker.storeDir(brokenEngines)); return err })
	w.succeed(request(services.Delete, brokenEngines, "postgres", smallPlan, ""))
	w.nothing(brokenEngines)
	if sts := w.sup.Instances(brokenEngines); len(sts) != 0 {
		t.Errorf("instances = %+v", sts)
	}
}

// A database that has used up the disk of its plan rejects new data but can be read.
// With a larger plan it accepts data again.
func TestDiskQuotaExceeded(t *testing.T) {
	for _, c := range engineTests[:2] {
		t.Run(c.engine, func(t *testing.T) {
			e := mustEngine(c.engine)
			small := e.plans[smallPlan]
			t.Cleanup(func() { e.plans[smallPlan] = small })
			tight := small
			tight.diskMB = 1 // smaller than an empty database
			e.plans[smallPlan] = tight
			w := newWorld(t)
			w.measure = 100 * time.Millisecond
			w.boot()
			guid := guidOf(c)
			w.succeed(request(services.Create, guid, c.engine, smallPlan, c.parameters))
			a := w.bind(c, "binding-a")
			w.eventually("it is full", guid, func() error {
				if _, err := w.try(c, a, "CREATE TABLE t (n int)"); err == nil {
					return errors.New("it takes data")
				}
				return nil
			})
			w.eventually("that is said", guid, func() error {
				if log := w.log(guid); !strings.Contains(log, "the service accepts no more data") {
					return errors.New(log)
				}
				return nil
			})
			w.want(c, a, "SELECT 1", "1")
			b := w.bind(c, "binding-b")
			if out, err := w.try(c, b, "CREATE TABLE u (n int)"); err == nil {
				t.Errorf("a new binding goes around it: %s", out)
			}
			w.succeed(request(services.Update, guid, c.engine, largePlan, ""))
			w.eventually("it takes data", guid, func() error {
				_, err := w.try(c, b, "CREATE TABLE IF NOT EXISTS v (n int)")
				return err
			})
		})
	}
}
