package fire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dewrun/dew/fire/check"
	"github.com/dewrun/dew/fire/faults"
	"github.com/dewrun/dew/fire/load"
	"github.com/dewrun/dew/fire/page"
	"github.com/dewrun/dew/fire/world"
)

// Options says how one run goes.
type Options struct {
	Seed  uint64
	Steps []Step
	Apps  int
	Lines int           // that each process of an app prints per second
	Limit time.Duration // for the faults, from the start of the load on; 0 for none
	Dir   string        // an empty folder with a short path
	Bin   string        // folder of dewd, dew, dew-init and counter
	Bound time.Duration // for the time from the end of a fault until all invariants hold
	Out   io.Writer     // gets one line per fault

	Enough <-chan struct{} // when it is closed, no other fault follows; nil for never
}

// Run runs one schedule. The report is valid even if an invariant does not hold.
func Run(ctx context.Context, o Options) (page.Report, error) {
	began := time.Now()
	r := &run{Options: o, report: page.Report{
		Seed: o.Seed, Apps: o.Apps, Date: began.UTC().Format(time.DateOnly), Faults: map[string]int{}, Checked: map[string]int{},
	}}
	err := r.all(ctx)
	r.report.Seconds = time.Since(began).Seconds()
	r.count()
	if err != nil {
		err = fmt.Errorf("seed %d failed after %d faults: %w", o.Seed, r.done, err)
		r.report.Failure = err.Error()
	}
	return r.report, err
}

// count fills in the numbers at the end of a run.
func (r *run) count() {
	if r.subject == nil {
		return
	}
	r.report.Checked = r.ledger.Counts()
	for _, f := range r.subject.Followers {
		r.report.Checked["lines"] += f.Lines()
		r.report.Checked["exits"] += len(f.Exits())
	}
	r.report.Checked["drained lines"], _, _ = r.peers.Drained()
	r.report.Samples = r.subject.Samples()
}

// run is the state of a run.
type run struct {
	Options
	report  page.Report
	done    int       // faults
	loaded  time.Time // when the load was complete
	world   *world.World
	ledger  *load.Ledger
	peers   *load.Peers
	apps    []load.App // the last one is that of churn
	churn   *load.Churn
	subject *check.Subject
	env     *faults.Env
	workers sync.WaitGroup
}

func (r *run) all(ctx context.Context) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if r.peers, err = load.NewPeers(ctx); err != nil {
		return err
	}
	if r.world, err = world.New(r.Dir, r.Bin, "--smtp", r.peers.Mail.Address(), "--smtp-tls", "none"); err != nil {
		return err
	}
	loads, endLoad := context.WithCancel(ctx)
	defer func() {
		endLoad()
		r.workers.Wait()
		err = errors.Join(err, r.world.TearDown())
	}()
	if err := r.world.Start(ctx); err != nil {
		return err
	}
	if err := r.begin(ctx, loads); err != nil {
		return err
	}
	r.loaded = time.Now()
	for i, s := range r.Steps {
		last := i == len(r.Steps)-1 || r.Limit > 0 && time.Since(r.loaded) > r.Limit
		select {
		case <-r.Enough:
			last = true
		default:
		}
		s.Joint = s.Joint && !last
		if err := r.step(ctx, s); err != nil {
			return err
		}
		if last {
			break
		}
	}
	return r.end(ctx, endLoad)
}

// begin pushes the apps and starts the load, which runs until loads is done.
func (r *run) begin(ctx, loads context.Context) error {
	r.ledger, r.apps = load.NewLedger(), load.Plan(r.Apps, r.Lines)
	if err := load.Push(ctx, r.world, r.apps); err != nil {
		return err
	}
	r.churn = &load.Churn{World: r.world, Ledger: r.ledger, Peers: r.peers, App: r.apps[len(r.apps)-1], Target: r.apps[0]}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	var fs []*load.Follower
	for _, a := range r.apps {
		f := load.NewFollower(a, r.ledger)
		fs = append(fs, f)
		r.workers.Go(func() { f.Follow(loads, r.world) })
		r.workers.Go(func() { load.Requests(loads, r.world, r.ledger, f) })
	}
	for _, a := range r.apps[:min(writers, len(r.apps))] {
		r.workers.Go(func() { load.Writes(loads, r.world, r.ledger, a) })
	}
	r.workers.Go(func() { load.Mails(loads, r.world, r.ledger) })
	r.workers.Go(func() { check.Watch(loads, r.world, r.ledger, r.churn.App.Name) })
	r.subject = check.NewSubject(r.world, r.ledger, r.apps, fs)
	r.subject.Peers = r.peers
	r.env = &faults.Env{World: r.world, Ledger: r.ledger, Slots: load.Slots(r.apps[:len(r.apps)-1]), Peers: r.peers, Pause: r.churn.Pause, Note: r.note}
	took, err := check.Settle(ctx, r.subject, r.Bound)
	fmt.Fprintf(r.Out, "seed %d: %d apps with %d instances, settled after %s\n", r.Seed, len(r.apps), len(load.Slots(r.apps)), took.Round(time.Millisecond))
	r.subject.Churn = r.churn
	r.workers.Go(func() { r.churn.Run(loads) })
	return err
}

// writers is the number of apps whose label the load changes.
const writers = 3

// drain is the name of the service instance with the log drain of the second app.
const drain = "fire-drain"

// prepare registers the peers, and starts the load that needs an org.
func (r *run) prepare(ctx context.Context) error {
	if err := load.CreateMailer(ctx, r.world); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"create-user-provided-service", drain, "-l", "syslog://" + r.peers.Syslog.Address()},
		{"bind-service", r.drained(), drain},
	} {
		if _, err := r.world.Dew(ctx, args...); err != nil {
			return err
		}
	}
	return r.churn.Start(ctx)
}

// drained is the app with the log drain.
func (r *run) drained() string { return r.apps[1].Name }

// step injects one fault, ends it, and waits until all invariants hold.
func (r *run) step(ctx context.Context, s Step) error {
	f, err := faults.ByName(s.Fault)
	if err != nil {
		return err
	}
	if err := sleep(ctx, s.Pause); err != nil {
		return err
	}
	if !f.Anytime {
		if err := r.world.Answers(ctx); err != nil {
			return err
		}
	}
	heal, err := f.Inject(ctx, r.env, s.Draw)
	if err != nil {
		return fmt.Errorf("fault %q: %w", s.Fault, err)
	}
	if heal != nil {
		err = sleep(ctx, s.Draw.Hold)
		if herr := heal(); herr != nil || err != nil {
			return fmt.Errorf("cannot end %q: %w", s.Fault, errors.Join(err, herr))
		}
	}
	r.done++
	if s.Joint {
		r.report.Add(s.Fault, 0)
		fmt.Fprintf(r.Out, "seed %d fault %3d after %4.0f s: %-48s\n", r.Seed, r.done, time.Since(r.loaded).Seconds(), s.Fault)
		return nil
	}
	took, err := check.Settle(ctx, r.subject, r.Bound)
	r.report.Add(s.Fault, took)
	fmt.Fprintf(r.Out, "seed %d fault %3d after %4.0f s: %-48s settled after %s; dewd started %d times\n", r.Seed, r.done, time.Since(r.loaded).Seconds(), s.Fault, took.Round(time.Millisecond), r.world.Starts())
	if err != nil {
		fmt.Fprintf(r.Out, "seed %d: %v\n", r.Seed, err) // the end of the run takes a while
		return fmt.Errorf("fault %q: %w", s.Fault, err)
	}
	r.env.Settled()
	return nil
}

// note notes what dewd has acknowledged, for a copy of its root.
func (r *run) note() faults.Noted {
	values, spaces := r.ledger.Values(), r.ledger.Spaces()
	return func(ctx context.Context, w *world.World) error {
		if err := check.WritesIn(ctx, w, r.subject, values, spaces); err != nil {
			return err
		}
		return check.Runs(ctx, w, r.apps[:len(r.apps)-1], r.Bound)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end checks the promises that take longer and the stored logs from their first line.
// Then it deletes all apps and looks for resources that are left.
func (r *run) end(ctx context.Context, endLoad func()) error {
	pause := r.churn.Pause()
	defer pause()
	for _, check := range []func() error{
		func() error { return check.StoredLogs(ctx, r.subject, r.Bound) },
		func() error { return check.LinesReach(ctx, r.subject, r.drained(), r.Bound) },
		func() error { return check.MailsDelivered(ctx, r.subject, r.Bound) },
		func() error { return r.churn.Finish(ctx, r.Bound) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	endLoad()
	if err := check.Deleted(ctx, r.subject, r.Bound); err != nil {
		return err
	}
	if err := r.world.TearDown(); err != nil {
		return err
	}
	return check.NothingLeft(r.subject)
}
