package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/store"
)

// Host runs servers. It is implemented by supervisor.Supervisor.
type Host interface {
	Settled() <-chan struct{}
	PutServer(v runtime.Server) error
	DropServer(guid string) error
	ReserveAddress(guid string) (netip.Addr, error)
	ReleaseAddress(guid string) error
	Instances(guid string) []runtime.Status
	Exec(ctx context.Context, t runtime.ExecTarget, s runtime.ExecSpec) (runtime.Session, error)
	Signal(ctx context.Context, process string, index int, sidecar string, sent runtime.SentSignal) error
}

// Config configures a Broker.
type Config struct {
	DB     *store.DB
	Host   Host
	Dir    string // for the data; created if missing
	UID    int    // of the app user
	GID    int
	Logger *slog.Logger
	// Volumes has the data of servers that run in a cluster. If nil, they run on this
	// machine, and their data is in Dir.
	Volumes Volumes
	// Stacks returns the name of a stack with these programs and reports progress. If
	// nil, only servers that are installed on the machine are available.
	Stacks func(ctx context.Context, p Programs, progress func(string)) (string, error)
	// Unneeded is called when no service instance waits for the stack with these
	// programs any more. It can be nil.
	Unneeded func(p Programs) error
	// Machine is the root of the file system where servers can be installed. Empty
	// means the machine's own root; "-" means nowhere, so a stack is always requested.
	Machine string
	Reserve int64         // bytes of the disk that stay free (0: 1 GiB)
	Start   time.Duration // the time a server has to become ready (0: 5 min)
	Measure time.Duration // between two measurements of the data (0: 30 s)
	// Say writes a line into the log of an instance; nil: no log.
	Say func(instance, line string)
	// LastError returns the newest line that a source printed to stderr in the log of an
	// instance. In a cluster it explains why a server exited. It can be nil.
	LastError func(instance, source string) string
	// Changed is called when the state of an instance changed. It must return quickly,
	// and can be nil.
	Changed func(instance string)
}

// Defaults of Config.
const (
	defaultReserve = 1 << 30
	defaultStart   = 5 * time.Minute
)

// Broker provides databases.
type Broker struct {
	*servers
	*snapshots
	*provisioner

	mu      sync.Mutex         // guards the fields below
	runCtx  context.Context    // the context of Run; nil before
	workers map[string]*worker // by instance
}

// servers are the database servers: their records, files and sessions.
type servers struct {
	c       Config
	records store.Bucket[record]
	running sync.WaitGroup // the goroutines that Run waits for

	mu    sync.Mutex // guards the fields below
	locks map[string]chan struct{}
	stuck map[string]error // by instance: the last error of a step that is being repeated
}

// The parts of the Broker.
type (
	snapshots   struct{ *servers }
	provisioner struct{ *snapshots } // creates, updates and deletes databases
)

// worker runs the operation of one instance.
type worker struct {
	cancel  context.CancelCauseFunc // of the current step
	doing   services.Action         // the current step
	changed bool                    // the record changed during the step
}

var (
	_ services.Broker          = (*Broker)(nil)
	_ services.InstanceFetcher = (*Broker)(nil)
)

// errSuperseded cancels an operation because the desired state changed.
var errSuperseded = errors.New("the desired state has changed")

// New creates the broker. Run does the work that takes time.
func New(c Config) (*Broker, error) {
	if c.DB == nil || c.Host == nil || c.Dir == "" || c.Logger == nil {
		return nil, errors.New("cannot create the built-in service broker without DB, Host, Dir and Logger")
	}
	if err := makeDir(c.Dir); err != nil {
		return nil, err
	}
	c.Reserve = cmp.Or(c.Reserve, defaultReserve)
	c.Start = cmp.Or(c.Start, defaultStart)
	c.Measure = cmp.Or(c.Measure, defaultMeasure)
	s := &servers{
		c: c, records: store.In[record](c.DB, "databases"), locks: map[string]chan struct{}{}, stuck: map[string]error{},
	}
	sn := &snapshots{s}
	return &Broker{servers: s, snapshots: sn, provisioner: &provisioner{sn}, workers: map[string]*worker{}}, nil
}

// Run continues the operations that an earlier daemon left unfinished, and runs the
// requested ones, until ctx is cancelled. The next daemon continues operations that are
// still in progress then.
func (b *Broker) Run(ctx context.Context) error {
	select {
	case <-b.c.Host.Settled(): // before that, a server that still runs would look deleted
	case <-ctx.Done():
		return nil
	}
	// Set the context first and read the records after that. A request in between then
	// gets a worker at once; otherwise it would have none.
	ctx, cancel := context.WithCancel(ctx)
	b.setContext(ctx)
	defer b.running.Wait()
	defer b.setContext(nil) //nolint:staticcheck // no context: no more workers
	defer cancel()
	all, err := b.records.All()
	if err != nil {
		return fmt.Errorf("cannot list the databases: %w", err)
	}
	for _, r := range all {
		if r.Doing != "" {
			b.startWorker(r.GUID)
		}
		b.keepVolumes(ctx, r)
		b.recover(ctx, r)
	}
	b.watchDisks(ctx)
	return nil
}

// Stuck returns an error for each instance whose operation currently fails. The broker
// retries by itself.
func (b *servers) Stuck() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, guid := range slices.Sorted(maps.Keys(b.stuck)) {
		errs = append(errs, fmt.Errorf("cannot continue the operation of service instance %s: %w", guid, b.stuck[guid]))
	}
	return errors.Join(errs...)
}

// recordAttempt records the result of a step that is repeated until it succeeds.
func (b *servers) recordAttempt(guid string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		delete(b.stuck, guid)
		return
	}
	b.stuck[guid] = err
}

func (b *Broker) setContext(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runCtx = ctx
}

// Instance creates, updates or deletes a database. All actions are asynchronous.
func (b *Broker) Instance(_ context.Context, r services.InstanceRequest) (services.Progress, error) {
	if !safeGUID.MatchString(r.Instance) {
		return services.Progress{}, refusal(http.StatusBadRequest, "'%s' is not a valid guid", r.Instance)
	}
	switch r.Action {
	case services.Create:
		return b.requestCreate(r)
	case services.Update:
		return b.requestUpdate(r)
	case services.Delete:
		return b.requestDelete(r)
	}
	return services.Progress{}, refusal(http.StatusBadRequest, "'%s' is not a valid action", r.Action)
}

func (b *Broker) requestCreate(r services.InstanceRequest) (services.Progress, error) {
	e, plan, err := planOf(r.Offering, r.Plan)
	if err != nil {
		return services.Progress{}, err
	}
	p, err := parameters{}.merge(r.Parameters, e.keys)
	if err != nil {
		return services.Progress{}, err
	}
	rec, err := b.get(r.Instance)
	switch {
	case err == nil && (rec.Engine != e.name || rec.Shape != shape{plan, p}):
		return services.Progress{}, refusal(http.StatusConflict, "a different service instance with guid %s already exists", r.Instance)
	case err == nil && rec.Doing == "" && rec.State == services.Failed:
		// A repeated request returns the progress of the first one.
	case err == nil:
		return b.progress(rec), nil
	case !errors.Is(err, services.ErrNotFound):
		return services.Progress{}, err
	}
	if err := b.checkDisk(0); err != nil {
		return services.Progress{}, refusal(http.StatusInsufficientStorage, "%v", err)
	}
	rec = record{
		GUID: r.Instance, Name: cmp.Or(r.Context.InstanceName, r.Instance), Engine: e.name, Shape: shape{plan, p},
		Secret: newSecret(), Doing: services.Create, Step: "creating", CreatedAt: time.Now().UTC(),
	}
	if err := b.records.Put(rec.GUID, rec); err != nil {
		return services.Progress{}, fmt.Errorf("cannot store service instance %s: %w", rec.GUID, err)
	}
	b.startWorker(rec.GUID)
	return b.progress(rec), nil
}

func (b *Broker) requestUpdate(r services.InstanceRequest) (services.Progress, error) {
	rec, err := b.get(r.Instance)
	if err != nil {
		return services.Progress{}, refusal(http.StatusNotFound, "service instance with guid %s does not exist", r.Instance)
	}
	e, ok := engineOf(rec.Engine)
	if !ok {
		return services.Progress{}, fmt.Errorf("cannot update service instance %s: this dewd does not support the service %s", rec.GUID, rec.Engine)
	}
	next := rec.Shape
	if r.Plan != "" {
		if _, next.Plan, err = planOf(offeringID(e.name), r.Plan); err != nil {
			return services.Progress{}, err
		}
	}
	if next.Parameters, err = next.Parameters.merge(r.Parameters, e.keys); err != nil {
		return services.Progress{}, err
	}
	if (record{Shape: next}).database() != rec.database() {
		return services.Progress{}, refusal(http.StatusBadRequest, "parameter '%s' cannot be changed", keyDatabase)
	}
	if rec.Doing == services.Update && rec.Next != nil && *rec.Next == next {
		b.startWorker(rec.GUID)
		return b.progress(rec), nil
	}
	if rec.Doing != "" {
		return services.Progress{}, &services.BrokerError{
			Status: http.StatusUnprocessableEntity, Code: "ConcurrencyError",
			Description: "another operation of this service instance is in progress; try again later",
		}
	}
	if next == rec.Shape {
		return services.Progress{State: services.Succeeded}, nil
	}
	rec, err = b.change(rec.GUID, func(r *record) {
		r.Doing, r.Next, r.Step = services.Update, &next, "updating"
	})
	if err != nil {
		return services.Progress{}, err
	}
	b.startWorker(rec.GUID)
	return b.progress(rec), nil
}

func (b *Broker) requestDelete(r services.InstanceRequest) (services.Progress, error) {
	rec, err := b.change(r.Instance, func(r *record) { r.Doing, r.Step = services.Delete, "deleting" })
	if errors.Is(err, services.ErrNotFound) {
		return services.Progress{State: services.Succeeded, Gone: true}, nil
	}
	if err != nil {
		return services.Progress{}, err
	}
	b.startWorker(rec.GUID)
	return b.progress(rec), nil
}

// progress returns the progress of the record's operation.
func (b *servers) progress(r record) services.Progress {
	if r.Doing != "" {
		return services.Progress{State: services.InProgress, Description: r.Step, Operation: string(r.Doing)}
	}
	return services.Progress{State: r.State, Description: r.Error}
}

// LastOperation returns the progress of the current operation.
func (b *Broker) LastOperation(_ context.Context, r services.LastOperationRequest) (services.Progress, error) {
	rec, err := b.get(r.Instance)
	if errors.Is(err, services.ErrNotFound) {
		if r.Action == services.Delete || r.Operation == string(services.Delete) {
			return services.Progress{State: services.Succeeded, Gone: true}, nil
		}
		return services.Progress{State: services.Failed, Description: "the service instance was deleted"}, nil
	}
	if err != nil {
		return services.Progress{}, err
	}
	if rec.Doing != "" {
		b.startWorker(rec.GUID)
	}
	return b.progress(rec), nil
}

// FetchInstance returns the parameters of an instance.
func (b *Broker) FetchInstance(_ context.Context, r services.InstanceRequest) (services.FetchedInstance, error) {
	rec, err := b.get(r.Instance)
	if err != nil {
		return services.FetchedInstance{}, refusal(http.StatusNotFound, "service instance with guid %s does not exist", r.Instance)
	}
	p, err := json.Marshal(rec.Shape.Parameters)
	if err != nil {
		return services.FetchedInstance{}, fmt.Errorf("cannot encode parameters: %w", err)
	}
	return services.FetchedInstance{Parameters: p}, nil
}

// get reads a record, or returns services.ErrNotFound.
func (b *servers) get(guid string) (record, error) {
	r, err := b.records.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return r, fmt.Errorf("database %s: %w", guid, services.ErrNotFound)
	}
	if err != nil {
		return r, fmt.Errorf("cannot read database %s: %w", guid, err)
	}
	return r, nil
}

// change changes a record.
func (b *servers) change(guid string, fn func(r *record)) (record, error) {
	r, err := b.records.Update(guid, func(r *record) error { fn(r); return nil })
	if errors.Is(err, store.ErrNotFound) {
		return r, fmt.Errorf("database %s: %w", guid, services.ErrNotFound)
	}
	if err != nil {
		return r, fmt.Errorf("cannot store database %s: %w", guid, err)
	}
	return r, nil
}

// lock locks the users and files of an instance. It returns the unlock function.
func (b *servers) lock(ctx context.Context, guid string) (func(), error) {
	b.mu.Lock()
	l := b.locks[guid]
	if l == nil {
		l = make(chan struct{}, 1)
		b.locks[guid] = l
	}
	b.mu.Unlock()
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Instances returns the guids of all databases, for the cleanup of their logs.
func (b *Broker) Instances() ([]string, error) {
	all, err := b.records.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list the databases: %w", err)
	}
	var out []string
	for _, r := range all {
		out = append(out, r.GUID)
	}
	return slices.Clip(out), nil
}
