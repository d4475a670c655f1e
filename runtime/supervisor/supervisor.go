package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/address"
	"github.com/dewrun/dew/runtime/plan"
	"github.com/dewrun/dew/runtime/policy"
	"github.com/dewrun/dew/runtime/supervisor/async"
	"github.com/dewrun/dew/runtime/supervisor/next"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/verdict"
)

// AppLogs stores the lines of apps. It can set the sequence numbers of the given lines.
type AppLogs interface {
	Append(app string, es ...logstream.Envelope) error
	// Contains reports whether an app's log has a line that matches f.
	Contains(ctx context.Context, app string, f logstream.Filter) (bool, error)
	// NewestOf returns the last n lines of an app that match f.
	NewestOf(ctx context.Context, app string, n int, f logstream.Filter) ([]logstream.Envelope, error)
	// Last returns the number of an app's newest line, or 0 if it has none.
	Last(app string) (uint64, error)
}

// Config has the settings and dependencies of a Supervisor.
type Config struct {
	Engine    runtime.Engine
	Registry  *registry.Registry
	Droplets  *droplet.Droplets
	Stacks    func(name string) (stack.Stack, error) // by name (empty: the default)
	Logs      AppLogs
	DB        *store.DB
	Cell      string       // id of this machine
	Subnet    netip.Prefix // subnet of the instances (its first address is the bridge's)
	PublicURL string       // URL of the API, as apps see it
	Memory    int64        // bytes of this machine; an instance with a higher limit is not started (0: any is)
	Policy    policy.Policy
	Spares    int // how many instances can be prepared while the ones before them run
	Logger    *slog.Logger
	// Bindings returns the services that an app is bound to now, for instances that
	// start. If it is nil, instances see the services that their droplet was staged
	// with.
	Bindings func(app string) (droplet.Bindings, error)
	// Events stores audit events of instances that have no other record. It can be nil.
	Events *registry.Events
	// Ready is called once, when everything that an earlier daemon left is taken over and
	// serves requests, or a second later. It has its own goroutine, and can be nil.
	Ready func()
	// OnChange is called for every change of a slot, in order per slot, on the slot's
	// own goroutine: it must be quick. It can be nil.
	OnChange func(runtime.Status)
	// Busy reports whether an instance that no route leads to any more has active
	// requests. If it is nil, that is unknown, and the supervisor does not wait for
	// them.
	Busy func(id runtime.InstanceID) bool
	// Gone is called when a deleted process has no slot left, on the supervisor's own
	// goroutine: it must be quick. It can be nil.
	Gone func(process string)
}

// Supervisor manages the wanted slots of every process.
type Supervisor struct {
	c         Config
	policy    policy.Policy
	exits     *runtime.ExitLog
	addresses *address.Pool
	servers   *runtime.ServerStore
	planner   *plan.Planner
	next      *next.Maker
	tasks     *taskRunner
	changed   async.GUIDs   // processes to sync
	settled   chan struct{} // closed when everything that an earlier daemon left is taken over or removed
	running   sync.WaitGroup

	slotSet
	counters
	signals   runtime.SentSignals
	unadopted unadoptedSet // instances that could not be taken over yet

	deployments *deployments
}

// New creates a Supervisor. It does nothing before Run.
func New(c Config) (*Supervisor, error) {
	for name, missing := range map[string]bool{
		"Engine": c.Engine == nil, "Registry": c.Registry == nil, "Droplets": c.Droplets == nil,
		"Stacks": c.Stacks == nil, "Logs": c.Logs == nil, "DB": c.DB == nil, "Logger": c.Logger == nil,
	} {
		if missing {
			return nil, fmt.Errorf("cannot create a supervisor without %s", name)
		}
	}
	addresses, err := address.NewPool(c.DB, c.Subnet)
	if err != nil {
		return nil, err
	}
	policy := c.Policy.WithDefaults()
	servers := runtime.NewServerStore(c.DB)
	s := &Supervisor{
		c:         c,
		policy:    policy,
		exits:     runtime.NewExitLog(c.DB, policy.CrashRecords),
		addresses: addresses,
		servers:   servers,
		planner: plan.New(plan.Config{
			Registry: c.Registry, Droplets: c.Droplets, Stacks: c.Stacks, Bindings: c.Bindings,
			Servers: servers, Subnet: addresses.Subnet(), Cell: c.Cell, PublicURL: c.PublicURL, Memory: c.Memory,
		}),
		changed:   async.NewGUIDs(),
		settled:   make(chan struct{}),
		slotSet:   slotSet{slots: map[runtime.SlotID]*Slot{}},
		counters:  counters{stats: runtime.Stats{Crashes: map[runtime.Cause]uint64{}, Verdicts: map[verdict.Class]uint64{}, Restarts: map[runtime.Cause]uint64{}, Checks: map[runtime.Outcome]uint64{}}},
		unadopted: unadoptedSet{byID: map[runtime.InstanceID]runtime.Unadopted{}},
	}
	s.deployments = &deployments{
		registry: c.Registry, exits: s.exits, policy: policy, log: c.Logger, slots: s.of, sync: s.Sync,
		states: map[string]app.DeploymentState{},
	}
	s.next = next.New(next.Config{
		Engine: c.Engine, Planner: s.planner, Addresses: addresses, StartLimit: policy.StartLimit, Spares: c.Spares,
	})
	s.tasks = newTaskRunner(s)
	return s, nil
}

// Run takes over everything that an earlier daemon left, then runs the desired state
// until ctx is done. The instances keep running for the next daemon. It returns an
// error only if it could not start.
func (s *Supervisor) Run(ctx context.Context) error {
	defer s.running.Wait()
	containers, err := s.adopt(ctx)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	if err := s.settle(ctx, containers); err != nil {
		return err
	}
	if containers, err = s.resumeTasks(ctx, containers); err != nil {
		return err
	}
	s.assignSlots(ctx, containers)
	close(s.settled)
	if err := s.syncAll(); err != nil {
		return err
	}
	s.running.Go(func() { s.retryUnadopted(ctx) })
	adopted := s.all()
	s.running.Go(func() { serveAgain(ctx, s, adopted) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed.Wake:
			for _, process := range s.changed.Take() {
				s.reconcile(ctx, process)
			}
		}
	}
}

// serveAgain calls Ready when requests reach the adopted instances again. It waits only a
// moment for an instance that is still starting or not ready.
func serveAgain(ctx context.Context, s *Supervisor, adopted []*Slot) {
	limit, cancel := context.WithTimeout(ctx, servingLimit)
	defer cancel()
	for _, sl := range adopted {
		for sl.undecided() && slices.Contains(s.all(), sl) && wait(limit, pollInterval) {
		}
	}
	if ctx.Err() == nil && s.c.Ready != nil {
		s.c.Ready()
	}
}

// servingLimit is far longer than it takes to adopt an instance that was healthy before.
const servingLimit = time.Second

// Sync brings the process to its desired state in the background. It never blocks, and
// can be called with any guid at any time.
func (s *Supervisor) Sync(process string) {
	s.changed.Add(process)
}

// Settled returns a channel that is closed when everything that an earlier daemon left
// is taken over. Before that, an instance that is missing in Instances can still exist.
func (s *Supervisor) Settled() <-chan struct{} { return s.settled }

// Restart replaces all instances of the process by new ones and forgets their crashes.
// It is not needed for instances whose version is outdated, see app.Process.Keeps.
func (s *Supervisor) Restart(process string) {
	for _, sl := range s.of(process) {
		sl.Restart()
	}
}

// Instances returns a copy of the status of the slots of a process, sorted by
// generation and index. The guid can be that of one generation, see app.GenerationGUID.
func (s *Supervisor) Instances(process string) []runtime.Status {
	var out []runtime.Status
	for _, sl := range s.of(process) {
		out = append(out, sl.Status())
	}
	return out
}

// Apps returns the guids of all servers, and of the apps that have a task or a slot,
// even one that is stopping.
func (s *Supervisor) Apps() map[string]bool {
	out := map[string]bool{}
	vs, err := s.Servers()
	if err != nil { // running servers are among the slots
		s.c.Logger.Error("cannot list the servers", "err", err)
	}
	for _, v := range vs {
		out[v.GUID] = true
	}
	s.tasks.apps(out)
	for _, sl := range s.all() {
		out[sl.Status().App] = true
	}
	return out
}

// Exits returns the exit records.
func (s *Supervisor) Exits() *runtime.ExitLog { return s.exits }

// adopt requests the existing containers from the engine, and tries again until it
// answers.
func (s *Supervisor) adopt(ctx context.Context) ([]runtime.Container, error) {
	for n := 1; ; n++ {
		containers, err := s.c.Engine.Adopt(ctx)
		if some := (*runtime.AdoptError)(nil); errors.As(err, &some) {
			s.addUnadopted(some.Left)
			return containers, nil
		}
		switch {
		case err == nil:
			return containers, nil
		case ctx.Err() != nil:
			return nil, nil
		case !errors.Is(err, runtime.ErrUnavailable):
			return nil, fmt.Errorf("cannot adopt instances: %w", err)
		}
		s.c.Logger.Warn("cannot adopt instances, trying again", "err", err)
		if !wait(ctx, s.policy.Retry(n)) {
			return nil, nil
		}
	}
}

// settle removes everything that belongs to no adopted container. It must run before
// any slot starts, because a sweep would remove a new instance as a stray one.
func (s *Supervisor) settle(ctx context.Context, containers []runtime.Container) error {
	keep := make(map[runtime.InstanceID]bool, len(containers))
	addresses := make(map[runtime.InstanceID]netip.Addr, len(containers))
	for _, c := range containers {
		spec := c.Spec()
		keep[spec.Instance] = true
		addresses[spec.Instance] = spec.Address.Addr()
	}
	for _, u := range s.unadopted.all() {
		keep[u.Instance], addresses[u.Instance] = true, u.Address
	}
	if err := s.c.Engine.Sweep(ctx, keep); err != nil && ctx.Err() == nil {
		// Leftovers do no harm, and the next daemon tries again.
		s.c.Logger.Error("cannot remove the resources of old instances", "err", err)
	}
	return s.addresses.Settle(addresses)
}

// assignSlots gives every container to a slot. The newest one of a slot is kept running;
// older ones get slots that only stop them.
func (s *Supervisor) assignSlots(ctx context.Context, containers []runtime.Container) {
	sorted := slices.Clone(containers)
	slices.SortStableFunc(sorted, func(a, b runtime.Container) int { return b.Spec().StartedAt.Compare(a.Spec().StartedAt) })
	for _, c := range sorted {
		spec := c.Spec()
		sl := newSlot(s, spec.Slot, c)
		s.c.Logger.Info("instance adopted", "app", spec.App, "process", spec.Slot.Process, "instance", spec.Instance)
		if !s.add(sl, &s.unadopted) {
			s.c.Logger.Warn("a newer instance exists; stopping the older one", "process", spec.Slot.Process,
				"index", spec.Slot.Index, "instance", spec.Instance)
			sl.stray = true
			sl.Stop()
		}
		if w, err := s.wanted(spec.Slot.Process); err == nil && !w.has(spec.Slot) {
			sl.Stop()
		}
		s.begin(ctx, sl)
	}
}

// syncAll marks every process that is desired, or that has exit records.
func (s *Supervisor) syncAll() error {
	apps, err := s.c.Registry.Apps()
	if err != nil {
		return fmt.Errorf("cannot read the apps: %w", err)
	}
	for _, a := range apps {
		ps, err := s.c.Registry.Processes(a.GUID)
		if err != nil {
			return fmt.Errorf("cannot read the processes of %s: %w", a.Name, err)
		}
		for _, p := range ps {
			s.Sync(p.GUID)
		}
	}
	servers, err := s.Servers()
	if err != nil {
		return err
	}
	for _, v := range servers {
		s.Sync(v.GUID)
	}
	gone, err := s.exits.Processes()
	if err != nil {
		return err
	}
	for _, process := range gone {
		s.Sync(process)
	}
	for _, files := range s.AllCrashed() {
		s.Sync(files.Slot.Process)
	}
	return nil
}

// wantedSlots is the number of slots that a process should have.
type wantedSlots struct {
	process    string
	known      bool        // the process exists
	counts     map[int]int // by generation
	desired    app.Process // zero for a server
	deployment *app.Deployment
}

func (w wantedSlots) has(id runtime.SlotID) bool {
	return id.Process == w.process && id.Index < w.counts[id.Generation]
}

// some reports whether any slot is wanted.
func (w wantedSlots) some() bool {
	for _, n := range w.counts {
		if n > 0 {
			return true
		}
	}
	return false
}

// wanted reads how many slots the process should have. It is none if the process does
// not exist or its app is stopped.
func (s *Supervisor) wanted(process string) (wantedSlots, error) {
	w := wantedSlots{process: process}
	found, err := s.c.Registry.Wanted(process)
	if errors.Is(err, app.ErrNotFound) {
		return w.ofServer(s.servers)
	}
	if err != nil {
		return w, fmt.Errorf("cannot read process %s: %w", process, err)
	}
	w.known, w.counts, w.desired, w.deployment = true, found.Counts, found.Process, found.Deployment
	return w, nil
}

// reconcile starts missing slots and stops surplus ones.
func (s *Supervisor) reconcile(ctx context.Context, process string) {
	w, err := s.wanted(process)
	if err != nil {
		s.c.Logger.Error("cannot bring a process to its desired state, trying again", "process", process, "err", err)
		time.AfterFunc(s.policy.FirstRetry, func() { s.Sync(process) })
		return
	}
	have := s.of(process)
	for _, sl := range have {
		switch {
		case w.has(sl.id):
			sl.Recheck()
		case w.some():
			sl.Retire()
		default:
			sl.Stop()
		}
	}
	for generation, n := range w.counts {
		for i := range n {
			sl := newSlot(s, runtime.SlotID{Process: process, Generation: generation, Index: i}, nil)
			if s.add(sl, &s.unadopted) {
				s.begin(ctx, sl)
			}
		}
	}
	s.deployments.advance(w)
	if !w.known && len(have) == 0 {
		if err := s.exits.Remove(process); err != nil {
			s.c.Logger.Error("cannot remove exit records", "process", process, "err", err)
		}
		s.dropCrashed(ctx, process)
		if s.c.Gone != nil {
			s.c.Gone(process)
		}
	}
}

// begin runs the slot until it is down, or ctx is done.
func (s *Supervisor) begin(ctx context.Context, sl *Slot) {
	s.running.Go(func() {
		sl.Run(ctx)
		if ctx.Err() != nil {
			return // its last status stays visible
		}
		s.remove(sl)
		s.Sync(sl.id.Process)
	})
}

// Stats returns a copy of the counts.
func (s *Supervisor) Stats() runtime.Stats {
	st := s.counters.Stats()
	st.Spares = s.next.Spares()
	return st
}

// counters has the counts of a Supervisor.
type counters struct {
	mu    sync.Mutex
	stats runtime.Stats // guarded by mu
}

// Stats returns a copy of the counts.
func (c *counters) Stats() runtime.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.stats
	st.Crashes, st.Verdicts, st.Restarts, st.Checks = maps.Clone(st.Crashes), maps.Clone(st.Verdicts), maps.Clone(st.Restarts), maps.Clone(st.Checks)
	return st
}

func (c *counters) count(add func(st *runtime.Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.stats)
}
