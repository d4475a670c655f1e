package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

const (
	jobAge      = 24 * time.Hour // maximum age of finished jobs
	jobSweep    = time.Hour
	jobsAtATime = 8
)

// Jobs stores jobs and runs them.
//
//	Start ─▶ bucket (PROCESSING) ─wake─▶ Run ─▶ JobFunc ─▶ bucket (COMPLETE or FAILED)
type Jobs struct {
	bucket   store.Bucket[app.Job]
	log      *slog.Logger
	wake     chan struct{} // capacity 1: there are possibly jobs to run
	mu       sync.Mutex
	handlers map[string]app.JobFunc // guarded by mu
}

// NewJobs returns the jobs that are stored in db.
func NewJobs(db *store.DB, log *slog.Logger) *Jobs {
	return &Jobs{
		bucket:   store.In(db, "jobs", store.Index("state", func(j app.Job) string { return string(j.State) })),
		log:      log,
		wake:     make(chan struct{}, 1),
		handlers: map[string]app.JobFunc{},
	}
}

// Handle sets the function that runs the jobs of an operation. Call it before Run.
func (js *Jobs) Handle(operation string, fn func(ctx context.Context, j app.Job) (warnings []string, err error)) {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.handlers[operation] = fn
}

// Start stores a job without an actor. Run executes it, even if only the next daemon
// does.
func (js *Jobs) Start(operation string, args any) (app.Job, error) {
	return js.StartFor(app.Actor{}, operation, args)
}

// StartFor is Start for a job on behalf of an actor.
func (js *Jobs) StartFor(by app.Actor, operation string, args any) (app.Job, error) {
	if js.handler(operation) == nil {
		return app.Job{}, fmt.Errorf("cannot start job: operation %q has no handler", operation)
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return app.Job{}, fmt.Errorf("cannot encode the arguments of job %s: %w", operation, err)
	}
	j := app.Job{GUID: uuid.NewString(), Operation: operation, State: app.JobProcessing, Args: raw, By: by, CreatedAt: app.Now()}
	j.UpdatedAt = j.CreatedAt
	if err := js.bucket.Put(j.GUID, j); err != nil {
		return app.Job{}, fmt.Errorf("cannot store job %s: %w", operation, err)
	}
	js.nudge()
	return j, nil
}

// Get returns the job with guid.
func (js *Jobs) Get(guid string) (app.Job, error) { return get(js.bucket, "job", guid) }

// Run executes jobs until ctx is done, starting with those that an earlier daemon left.
// It deletes finished jobs after a day. It returns when no function is running.
func (js *Jobs) Run(ctx context.Context) error {
	running := map[string]bool{}
	ended := make(chan string)
	sweep := time.NewTicker(jobSweep)
	defer sweep.Stop()
	defer func() {
		for range running {
			<-ended
		}
	}()
	// Cancel before that wait, even if the store stops the loop: functions possibly
	// wait only for ctx.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := js.sweep(); err != nil {
		return err
	}
	js.nudge()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			if err := js.sweep(); err != nil {
				return err
			}
		case guid := <-ended:
			delete(running, guid)
			js.nudge()
		case <-js.wake:
			if err := js.begin(ctx, running, ended); err != nil {
				return err
			}
		}
	}
}

// begin starts waiting jobs, the oldest first, up to the number that can run at a time.
func (js *Jobs) begin(ctx context.Context, running map[string]bool, ended chan<- string) error {
	waiting, err := js.bucket.By("state", string(app.JobProcessing))
	if err != nil {
		return fmt.Errorf("cannot list jobs: %w", err)
	}
	slices.SortFunc(waiting, func(a, b app.Job) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.GUID, b.GUID))
	})
	for _, j := range waiting {
		if len(running) >= jobsAtATime || ctx.Err() != nil {
			return nil
		}
		if running[j.GUID] {
			continue
		}
		running[j.GUID] = true
		go func() {
			js.do(ctx, j)
			ended <- j.GUID
		}()
	}
	return nil
}

// do runs one job and stores its result. A function that stops because the daemon stops
// has not failed: the next daemon runs its job again.
func (js *Jobs) do(ctx context.Context, j app.Job) {
	warnings, err := js.call(ctx, j)
	if err != nil && ctx.Err() != nil {
		js.log.Info("job is not finished; dewd continues it after the next start", "job", j.GUID, "operation", j.Operation, "err", err)
		return
	}
	// The arguments are no longer needed, and a manifest contains secrets.
	j.State, j.Warnings, j.Args, j.UpdatedAt = app.JobComplete, warnings, nil, app.Now()
	if err != nil {
		j.State, j.Errors = app.JobFailed, jobErrors(err)
		js.log.Info("job failed", "job", j.GUID, "operation", j.Operation, "err", err)
	}
	if err := js.bucket.Put(j.GUID, j); err != nil {
		js.log.Error("cannot store the result of a job; dewd runs the job again after the next start", "job", j.GUID, "operation", j.Operation, "err", err)
	}
}

// call runs the function of a job. If it panics, only this job fails.
func (js *Jobs) call(ctx context.Context, j app.Job) (warnings []string, err error) {
	fn := js.handler(j.Operation)
	if fn == nil {
		return nil, fmt.Errorf("cannot run job %s: this version of dewd does not support operation %q", j.GUID, j.Operation)
	}
	defer func() {
		if v := recover(); v != nil {
			js.log.Error("job panicked", "job", j.GUID, "operation", j.Operation, "err", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("cannot run job %s: internal error in dewd; the log of dewd has the details", j.GUID)
		}
	}()
	return fn(ctx, j)
}

func (js *Jobs) handler(operation string) app.JobFunc {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.handlers[operation]
}

func (js *Jobs) nudge() {
	select {
	case js.wake <- struct{}{}:
	default: // Run is already woken
	}
}

// sweep deletes jobs that finished long ago.
func (js *Jobs) sweep() error {
	all, err := js.bucket.All()
	if err != nil {
		return fmt.Errorf("cannot list jobs: %w", err)
	}
	for _, j := range all {
		if j.State == app.JobProcessing || time.Since(j.UpdatedAt) < jobAge {
			continue
		}
		if err := js.bucket.Delete(j.GUID); err != nil {
			return fmt.Errorf("cannot delete job %s: %w", j.GUID, err)
		}
	}
	return nil
}

// jobErrors returns the errors that a client reads: one for every wrong key.
func jobErrors(err error) []app.JobError {
	if one, ok := errors.AsType[*app.JobError](err); ok {
		return []app.JobError{*one}
	}
	var out []app.JobError
	for _, p := range app.ManifestProblems(err) {
		out = append(out, app.JobError{Code: 10008, Title: "CF-UnprocessableEntity", Detail: p.Error()})
	}
	for _, p := range app.Problems(err) {
		out = append(out, app.JobError{Code: 10008, Title: "CF-UnprocessableEntity", Detail: p.Error()})
	}
	if len(out) > 0 {
		return out
	}
	if errors.Is(err, app.ErrNotFound) {
		return []app.JobError{{Code: 10010, Title: "CF-ResourceNotFound", Detail: err.Error()}}
	}
	return []app.JobError{{Code: 10001, Title: "CF-UnknownError", Detail: err.Error()}}
}
