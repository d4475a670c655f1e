package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/fire/load"
	"github.com/dewrun/dew/fire/world"
)

// Subject is what the invariants are checked on.
type Subject struct {
	World     *world.World
	Ledger    *load.Ledger
	Apps      []load.App
	Followers []*load.Follower
	Peers     *load.Peers // nil without peers
	Churn     *load.Churn // nil if no app comes and goes

	baseline map[int]world.Sample // first measurement of each dewd, by its start
	samples  []world.Sample
	began    time.Time
}

// NewSubject returns a subject without measurements.
func NewSubject(w *world.World, l *load.Ledger, apps []load.App, fs []*load.Follower) *Subject {
	return &Subject{World: w, Ledger: l, Apps: apps, Followers: fs, baseline: map[int]world.Sample{}, began: time.Now()}
}

// Samples returns the measurements so far.
func (s *Subject) Samples() []world.Sample { return s.samples }

// Invariant is one row. Check is repeated until it returns nil or the bound is over. An
// error of a Final invariant cannot become nil by waiting.
type Invariant struct {
	Name  string
	Final bool
	Check func(ctx context.Context, s *Subject) error
}

// Settled returns the invariants that hold after each fault, in the order of checking.
func Settled() []Invariant {
	return []Invariant{
		{"dewd exits only when it is killed", true, daemonLives},
		{"desired state is actual state", false, desiredIsActual},
		{"no resource is left over", false, noLeftovers},
		{"the firewall has its rules", false, firewallWhole},
		{"every exit has one record", false, exitsRecorded},
		{"no healthy instance is killed", true, nobodyElseEnded},
		{"no line is missing between others, and none is double", true, linesInOrder},
		{"every printed line is in the log", false, linesStored},
		{"every acknowledged write is stored", false, writesStored},
		{"every line reaches the log drain", false, linesDrained},
		{"one running instance per slot", true, ledgerClean},
		{"files and goroutines of dewd are bounded", false, bounded},
	}
}

// Settle waits until all invariants hold. It returns how long the slowest one took, and
// an error with its name for each that does not hold within the bound.
func Settle(ctx context.Context, s *Subject, bound time.Duration) (took time.Duration, err error) {
	if s.Churn != nil {
		defer s.Churn.Pause()()
	}
	began := time.Now()
	for _, i := range Settled() {
		limit := max(bound-time.Since(began), time.Second)
		if i.Final {
			limit = 0
		}
		if err := world.Until(ctx, limit, func() error { return i.Check(ctx, s) }); err != nil {
			return time.Since(began), fmt.Errorf("%s: %w", i.Name, err)
		}
	}
	return time.Since(began), nil
}

// daemonLives fails after an exit of dewd that no fault explains, and if dewd reported a
// panic or a data race.
func daemonLives(_ context.Context, s *Subject) error {
	if list := s.World.Unexpected(); len(list) > 0 {
		return fmt.Errorf("%s\n%s", strings.Join(list, "\n"), s.World.LogTail())
	}
	return s.World.Faulty()
}

// ledgerClean fails if a violation was seen while the load ran.
func ledgerClean(_ context.Context, s *Subject) error {
	if list := s.Ledger.Problems(); len(list) > 0 {
		return errors.New(strings.Join(list, "\n"))
	}
	return nil
}

// desiredIsActual compares the desired instances with those that dewd reports and those
// that run, and sends a request to every instance.
func desiredIsActual(ctx context.Context, s *Subject) error {
	var got []world.Slot
	running := map[world.Slot]string{}
	for _, in := range s.World.Running() {
		s.Ledger.See(in)
		got = append(got, in.Slot)
		running[in.Slot] = in.ID
	}
	apps, err := s.desired(ctx)
	if err != nil {
		return err
	}
	if want := load.Slots(apps); !slices.Equal(got, want) {
		return fmt.Errorf("running instances = %v, want %v", got, want)
	}
	for _, a := range apps {
		stats, err := s.World.Client.Processes().Stats(ctx, a.Process)
		if err != nil {
			return err
		}
		for _, st := range stats {
			slot := world.Slot{App: a.Name, Index: st.Index}
			if st.State != "RUNNING" || st.InstanceGUID != running[slot] {
				return fmt.Errorf("dewd reports %s as %s with instance %q, and %q runs", slot, st.State, st.InstanceGUID, running[slot])
			}
			if err := connected(ctx, s.World.Names.Bridge, st.InternalIP); err != nil {
				return fmt.Errorf("instance %s of %s is not connected to the bridge: %w", st.InstanceGUID, slot, err)
			}
		}
		if err := answered(ctx, s, a); err != nil {
			return err
		}
	}
	return nil
}

// desired returns the apps that should run. An operation of the churn that failed can
// have left its app stopped.
func (s *Subject) desired(ctx context.Context) ([]load.App, error) {
	if s.Churn == nil {
		return s.Apps, nil
	}
	a, err := s.World.Client.Apps().ByName(ctx, s.Churn.App.Name)
	if err != nil || a.State == "STARTED" {
		return s.Apps, err
	}
	return s.Apps[:len(s.Apps)-1], nil
}

// connected opens a connection to an instance through the bridge. The router does not use
// the bridge. Without a bridge, the machine would send the packets elsewhere.
func connected(ctx context.Context, bridge, address string) error {
	const limit = 2 * time.Second
	d := net.Dialer{Timeout: limit, Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), bridge) })
		return errors.Join(err, cerr)
	}}
	c, err := d.DialContext(ctx, "tcp4", net.JoinHostPort(address, "8080"))
	if err == nil {
		err = c.Close()
	}
	return err
}

// answered sends requests to an app until each of its instances has answered.
func answered(ctx context.Context, s *Subject, a load.App) error {
	const most = 20
	seen := map[int]bool{}
	for range most {
		index, err := load.Request(ctx, s.World, s.Ledger, a.Name)
		if err != nil {
			return fmt.Errorf("a request to %s fails: %w", a.Name, err)
		}
		if seen[index] = true; len(seen) == a.Instances {
			return nil
		}
	}
	return fmt.Errorf("only the instances %v of %s answer", seen, a.Name)
}

// noLeftovers compares the resources on the machine with the number of instances.
func noLeftovers(ctx context.Context, s *Subject) error {
	apps, err := s.desired(ctx)
	if err != nil {
		return err
	}
	spares, err := world.Spares(ctx, s.World)
	if err != nil {
		return err
	}
	if spares > len(apps) {
		return fmt.Errorf("%d spare instances, and %d apps", spares, len(apps))
	}
	want := len(load.Slots(apps)) + spares
	var wrong []string
	for name, n := range s.World.Resources() {
		if n != want {
			wrong = append(wrong, fmt.Sprintf("%s = %d, want %d", name, n, want))
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// firewallWhole fails if a table of dewd is missing.
func firewallWhole(_ context.Context, s *Subject) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return err
	}
	for _, name := range []string{s.World.Names.Table, s.World.Names.Table + "-policies"} {
		if !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == name }) {
			return fmt.Errorf("table %s is missing", name)
		}
	}
	return nil
}

// linesInOrder fails if a line has the wrong number.
func linesInOrder(_ context.Context, s *Subject) error {
	var errs []error
	for _, f := range s.Followers {
		for _, p := range f.Problems() {
			errs = append(errs, errors.New(p))
		}
	}
	return errors.Join(errs...)
}

// linesStored fails if a line is missing that a process reported.
func linesStored(_ context.Context, s *Subject) error {
	var errs []error
	printed := s.Ledger.Printed()
	for _, f := range s.Followers {
		errs = append(errs, f.Missing(printed))
	}
	return errors.Join(errs...)
}

// How many more files and goroutines dewd can have than after its start.
const moreFDs, moreGoroutines = 150, 300

// bounded measures dewd, and compares with the first measurement of the same process.
func bounded(ctx context.Context, s *Subject) error {
	now, err := s.World.Measure(ctx)
	if err != nil {
		return err
	}
	now.Seconds = time.Since(s.began).Seconds()
	base, known := s.baseline[s.World.Starts()]
	if !known {
		s.baseline[s.World.Starts()], base = now, now
	}
	if now.FDs > base.FDs+moreFDs || now.Goroutines > base.Goroutines+moreGoroutines {
		return fmt.Errorf("dewd has %.0f open files and %.0f goroutines, after its start %.0f and %.0f", now.FDs, now.Goroutines, base.FDs, base.Goroutines)
	}
	s.samples = append(s.samples, now)
	return nil
}
