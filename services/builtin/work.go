package builtin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/services"
)

// endLimit is much longer than a server needs for a clean stop.
const endLimit = 5 * time.Minute

// startWorker starts a worker for the record. It cancels a step that the desired state
// no longer needs.
func (b *Broker) startWorker(guid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runCtx == nil || b.runCtx.Err() != nil {
		return // Run starts the remaining work
	}
	if w := b.workers[guid]; w != nil {
		w.changed = true
		b.supersede(guid, w)
		return
	}
	w := &worker{}
	b.workers[guid] = w
	runCtx := b.runCtx
	b.running.Go(func() { b.runWorker(runCtx, guid, w) })
}

// supersede cancels the current step of a worker if the instance must be deleted. No
// other change is possible during an operation. A running deletion continues.
func (b *Broker) supersede(guid string, w *worker) {
	rec, err := b.get(guid)
	if err == nil && rec.Doing == services.Delete && w.doing != services.Delete && w.cancel != nil {
		w.cancel(errSuperseded)
	}
}

// runWorker runs the record's operations until there are none left.
func (b *Broker) runWorker(runCtx context.Context, guid string, w *worker) {
	for n := 1; ; n++ {
		err := b.runOperation(runCtx, guid, w)
		if errors.Is(err, services.ErrNotFound) {
			err = nil
		}
		b.recordAttempt(guid, err)
		switch {
		case runCtx.Err() != nil:
			b.removeWorker(guid)
			return
		case err != nil:
			b.c.Logger.Error("cannot continue a database operation; dewd tries again", "service_instance", guid, "err", err)
			if !wait(runCtx, min(time.Duration(n)*time.Second, time.Minute)) {
				b.removeWorker(guid)
				return
			}
			continue
		}
		if b.stopWorker(guid, w) {
			return
		}
	}
}

func (b *Broker) removeWorker(guid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.workers, guid)
}

// stopWorker stops the worker unless the record changed during the last step.
func (b *Broker) stopWorker(guid string, w *worker) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.changed {
		w.changed = false
		return false
	}
	delete(b.workers, guid)
	return true
}

// runOperation runs one operation and records its result. It returns an error if the
// result could not be recorded, or if a deletion must be retried.
func (b *Broker) runOperation(runCtx context.Context, guid string, w *worker) error {
	ctx, cancel := context.WithCancelCause(runCtx)
	defer cancel(nil)
	rec, err := b.next(guid, w, cancel)
	if err != nil || rec.Doing == "" {
		return err
	}
	b.c.Logger.Info("database operation started", "service_instance", rec.GUID, "engine", rec.Engine, "action", rec.Doing)
	switch rec.Doing {
	case services.Create:
		err = b.create(ctx, rec)
	case services.Update:
		err = b.update(ctx, rec)
	case services.Delete:
		if err = errors.Join(b.remove(ctx, rec.GUID), b.releaseStack(rec)); err != nil {
			return err
		}
		defer b.changed(rec.GUID)
		if err := b.records.Delete(rec.GUID); err != nil {
			return fmt.Errorf("cannot delete the record of database %s: %w", rec.GUID, err)
		}
		return nil
	}
	if runCtx.Err() != nil || errors.Is(context.Cause(ctx), errSuperseded) {
		return nil
	}
	return b.finish(runCtx, rec, err)
}

// next reads the next operation and makes it the current step of the worker. It holds
// the lock for both: otherwise a deletion in between would find no step to cancel. It
// would then wait for a creation that may never complete.
func (b *Broker) next(guid string, w *worker, cancel context.CancelCauseFunc) (record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rec, err := b.get(guid)
	if err == nil {
		w.cancel, w.doing = cancel, rec.Doing
	}
	return rec, err
}

// finish records the result of a creation or an update.
func (b *provisioner) finish(ctx context.Context, rec record, failure error) error {
	if failure != nil {
		b.c.Logger.Warn("database operation failed", "service_instance", rec.GUID, "action", rec.Doing, "err", failure)
	}
	if failure != nil && rec.Doing == services.Create {
		// Remove a partly created instance.
		if err := b.remove(ctx, rec.GUID); err != nil {
			return err
		}
	}
	_, err := b.change(rec.GUID, func(r *record) {
		if r.Doing != rec.Doing {
			return // a deletion was requested
		}
		r.Doing, r.Step, r.State, r.Error = "", "", services.Succeeded, ""
		if failure == nil && r.Next != nil {
			r.Shape = *r.Next
		}
		r.Next = nil
		if failure == nil {
			return
		}
		r.State, r.Error = services.Failed, failure.Error()
		if rec.Doing == services.Create {
			r.Address, r.Service, r.Volume, r.Version, r.Bindings = netip.Addr{}, netip.Addr{}, 0, "", nil
		}
	})
	b.changed(rec.GUID)
	return err
}

// changed reports that the state of an instance changed.
func (b *servers) changed(guid string) {
	if b.c.Changed != nil {
		b.c.Changed(guid)
	}
}

// step records the progress for users.
func (b *servers) step(guid, text string) {
	_, err := b.change(guid, func(r *record) {
		if r.Doing != services.Delete || strings.HasPrefix(text, "deleting") {
			r.Step = text
		}
	})
	if err != nil && !errors.Is(err, services.ErrNotFound) {
		b.c.Logger.Error("cannot store the progress of a database", "service_instance", guid, "err", err)
	}
	b.changed(guid)
}

// create creates the server and its database. It can be repeated.
func (b *provisioner) create(ctx context.Context, rec record) error {
	e, ok := engineOf(rec.Engine)
	if !ok {
		return fmt.Errorf("this dewd does not support the service %s", rec.Engine)
	}
	if err := b.checkDisk(0); err != nil {
		return err
	}
	stack, err := b.findStack(ctx, rec.GUID, e)
	if err != nil {
		return err
	}
	addr, err := b.c.Host.ReserveAddress(rec.GUID)
	if err != nil {
		return err
	}
	rec, err = b.change(rec.GUID, func(r *record) {
		r.Stack, r.Address = stack, addr
		if r.Version == "" {
			r.Version = newVersion()
		}
	})
	if err != nil {
		return err
	}
	b.step(rec.GUID, "creating: initialising the data directory")
	if err := b.putVolume(ctx, rec, rec.Shape); err != nil {
		return err
	}
	if err := b.put(rec, rec.Shape); err != nil {
		return err
	}
	if err := b.watch(ctx, rec, "creating: starting "+e.title); err != nil {
		return err
	}
	if text := e.setupStatements(rec); text != "" {
		b.step(rec.GUID, "creating: creating the database")
		if _, err := b.statements(ctx, rec, text); err != nil {
			return fmt.Errorf("cannot create the database: %w", err)
		}
	}
	return nil
}

// findStack returns the stack with the programs: the machine itself, or a stack that is
// created for them.
func (b *provisioner) findStack(ctx context.Context, guid string, e *engine) (string, error) {
	if b.c.Machine != "-" && e.installedIn("/"+strings.TrimPrefix(b.c.Machine, "/")) {
		return stack.Default, nil
	}
	if b.c.Stacks == nil {
		return "", fmt.Errorf("%s is not installed on this machine; install it (Debian: apt install %s) and try again",
			e.title, strings.Join(e.packages, " "))
	}
	b.step(guid, "creating: getting "+e.title)
	name, err := b.c.Stacks(ctx, e.programs(), func(text string) { b.step(guid, "creating: "+text) })
	if err != nil {
		return "", fmt.Errorf("cannot get %s: %w", e.title, err)
	}
	return name, nil
}

// releaseStack reports that a deleted instance no longer waits for its stack, unless
// another instance does.
func (b *provisioner) releaseStack(rec record) error {
	e, ok := engineOf(rec.Engine)
	if !ok || b.c.Unneeded == nil {
		return nil
	}
	all, err := b.records.All()
	if err != nil {
		return fmt.Errorf("cannot list the databases: %w", err)
	}
	for _, r := range all {
		if r.Engine == rec.Engine && r.Doing == services.Create {
			return nil
		}
	}
	return b.c.Unneeded(e.programs())
}

// put writes the configuration and makes the supervisor run the server.
func (b *servers) put(rec record, s shape) error {
	if err := b.writeFiles(rec, s); err != nil {
		return err
	}
	v, err := b.server(rec, s)
	if err != nil {
		return err
	}
	return b.c.Host.PutServer(v)
}

// watch waits for the server and updates the step when its data exists.
func (b *provisioner) watch(ctx context.Context, rec record, next string) error {
	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for !b.hasData(rec.GUID) {
			if !wait(watchCtx, 4*firstPoll) {
				return
			}
		}
		b.step(rec.GUID, next)
	}()
	err := b.waitReady(ctx, rec, b.c.Start)
	stop()
	<-watched
	return err
}

// update switches the server to its next shape, or back to its old one.
func (b *provisioner) update(ctx context.Context, rec record) error {
	if rec.Next == nil {
		return nil
	}
	next := *rec.Next
	if err := b.checkFits(ctx, rec, next); err != nil {
		return err
	}
	if err := b.putVolume(ctx, rec, next); err != nil {
		return fmt.Errorf("the service instance keeps the old plan: %w", err)
	}
	err := b.applyShape(ctx, rec.GUID, next, "updating: starting with the new plan")
	if err == nil || ctx.Err() != nil {
		return err
	}
	if rollbackErr := b.applyShape(ctx, rec.GUID, rec.Shape, "updating: returning to the old plan"); rollbackErr != nil {
		return fmt.Errorf("%w; and dewd could not return to the old plan: %w", err, rollbackErr)
	}
	return fmt.Errorf("the service instance keeps the old plan: %w", err)
}

// checkFits refuses a shape that is too small for the data.
func (b *provisioner) checkFits(ctx context.Context, rec record, next shape) error {
	room := redisMemory(redis.size(next))
	if rec.Engine != redis.name || room >= redisMemory(redis.size(rec.Shape)) {
		return nil
	}
	if err := b.waitReady(ctx, rec, startTimeout); err != nil {
		return err
	}
	out, err := b.session(ctx, rec.GUID, "INFO memory\n", "client")
	if err != nil {
		return fmt.Errorf("cannot read the memory usage: %w", err)
	}
	if used := usedMemory(out); used > room {
		return fmt.Errorf("plan '%s' has space for %d MB, but %d MB are used; delete some keys first", next.Plan, room>>20, used>>20)
	}
	return nil
}

// usedMemory returns the used memory that Redis reports, or 0.
func usedMemory(info string) int64 {
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			n, err := strconv.ParseInt(text, 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// applyShape replaces the server with one of another shape.
func (b *provisioner) applyShape(ctx context.Context, guid string, s shape, step string) error {
	unlock, err := b.lock(ctx, guid)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := b.change(guid, func(r *record) { r.Version = newVersion() })
	if err != nil {
		return err
	}
	b.step(guid, step)
	if err := b.put(rec, s); err != nil {
		return err
	}
	return b.waitReady(ctx, rec, b.c.Start)
}

// remove stops the server and deletes all of its resources.
func (b *provisioner) remove(ctx context.Context, guid string) error {
	// Otherwise a restore or a copy in progress could create the server or its folder
	// again.
	unlock, err := b.lock(ctx, guid)
	if err != nil {
		return err
	}
	defer unlock()
	b.step(guid, "deleting: stopping the server")
	ctx, cancel := context.WithTimeoutCause(ctx, endLimit, errors.New("the server does not stop"))
	defer cancel()
	if err := b.c.Host.DropServer(guid); err != nil {
		return err
	}
	if err := b.waitStopped(ctx, guid); err != nil {
		return err
	}
	b.step(guid, "deleting: removing the data")
	if err := b.removeVolume(ctx, guid); err != nil {
		return err
	}
	if err := os.RemoveAll(b.home(guid)); err != nil {
		return fmt.Errorf("cannot remove the data of service instance %s: %w", guid, err)
	}
	return b.c.Host.ReleaseAddress(guid)
}
