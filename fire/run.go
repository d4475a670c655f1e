package fire

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dewrun/dew/fire/check"
	"github.com/dewrun/dew/fire/faults"
	"github.com/dewrun/dew/fire/load"
	"github.com/dewrun/dew/fire/world"
)

// Options says how one run goes.
type Options struct {
	Seed  uint64
	Steps []Step
	Apps  int
	Dir   string        // an empty folder with a short path
	Bin   string        // folder of dewd, dew, dew-init and counter
	Bound time.Duration // for the time from the end of a fault until all invariants hold
	Out   io.Writer     // gets one line per fault
}

// Run runs one schedule. The report is valid even if an invariant does not hold.
func Run(ctx context.Context, o Options) (Report, error) {
	r := &run{Options: o, report: newReport(o)}
	err := r.all(ctx)
	r.report.finish(r)
	if err != nil {
		err = fmt.Errorf("seed %d failed after %d faults: %w", o.Seed, r.done, err)
		r.report.Failure = err.Error()
	}
	return r.report, err
}

// run is the state of a run.
type run struct {
	Options
	report  Report
	done    int // faults
	world   *world.World
	ledger  *load.Ledger
	apps    []load.App
	subject *check.Subject
	workers sync.WaitGroup
}

func (r *run) all(ctx context.Context) (err error) {
	if r.world, err = world.New(r.Dir, r.Bin); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		r.workers.Wait()
		if terr := r.world.TearDown(); err == nil {
			err = terr
		}
	}()
	if err := r.world.Start(ctx); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	for _, s := range r.Steps {
		if err := r.step(ctx, s); err != nil {
			return err
		}
	}
	return r.end(ctx)
}

// begin pushes the apps and starts the load.
func (r *run) begin(ctx context.Context) error {
	r.ledger, r.apps = load.NewLedger(), load.Plan(r.Apps)
	if err := load.Push(ctx, r.world, r.apps); err != nil {
		return err
	}
	var fs []*load.Follower
	for _, a := range r.apps {
		f := load.NewFollower(a, r.ledger)
		fs = append(fs, f)
		r.workers.Go(func() { f.Follow(ctx, r.world) })
		r.workers.Go(func() { load.Requests(ctx, r.world, r.ledger, a.Name) })
	}
	r.workers.Go(func() { check.Watch(ctx, r.world, r.ledger) })
	r.subject = check.NewSubject(r.world, r.ledger, r.apps, fs)
	took, err := check.Settle(ctx, r.subject, r.Bound)
	fmt.Fprintf(r.Out, "seed %d: %d apps with %d instances, settled after %s\n", r.Seed, len(r.apps), len(load.Slots(r.apps)), took.Round(time.Millisecond))
	return err
}

// step injects one fault, ends it, and waits until all invariants hold.
func (r *run) step(ctx context.Context, s Step) error {
	f, err := faults.ByName(s.Fault)
	if err != nil {
		return err
	}
	if err := sleep(ctx, s.Pause); err != nil {
		return err
	}
	env := &faults.Env{World: r.world, Ledger: r.ledger, Slots: load.Slots(r.apps)}
	heal, err := f.Inject(ctx, env, s.Draw)
	if err != nil {
		return fmt.Errorf("cannot inject %q: %w", s.Fault, err)
	}
	if heal != nil {
		err = sleep(ctx, s.Draw.Hold)
		if herr := heal(); herr != nil || err != nil {
			return fmt.Errorf("cannot end %q: %w", s.Fault, herr)
		}
	}
	took, err := check.Settle(ctx, r.subject, r.Bound)
	r.done++
	r.report.add(s.Fault, took)
	fmt.Fprintf(r.Out, "seed %d fault %3d: %-36s settled after %s; dewd started %d times\n", r.Seed, r.done, s.Fault, took.Round(time.Millisecond), r.world.Starts())
	if err != nil {
		return fmt.Errorf("fault %q: %w", s.Fault, err)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end checks the stored logs from their first line, deletes all apps and looks for what
// is left of them.
func (r *run) end(ctx context.Context) error {
	if err := check.StoredLogs(ctx, r.subject, r.Bound); err != nil {
		return err
	}
	if err := check.Deleted(ctx, r.subject, r.Bound); err != nil {
		return err
	}
	if err := r.world.TearDown(); err != nil {
		return err
	}
	return check.NothingLeft(r.subject)
}
