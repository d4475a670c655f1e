package containerd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/images"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/containerd/session"
)

// Crashed has the limits for the stored files of crashed instances.
type Crashed struct {
	Dir     string // folder of their records (empty: nothing is stored)
	Bytes   int64  // size of all files together (0: no more are stored)
	Reserve int64  // free bytes below which the oldest are deleted
}

var (
	_ runtime.CrashKeeper       = (*Engine)(nil)
	_ runtime.KeepableContainer = (*container)(nil)
)

// keepLimit is how long a restart can wait until the files are stored.
const keepLimit = 10 * time.Second

// crashedStore stores crashed instances. It has the writable layer of each as a
// committed snapshot, of which sessions get copies, and a record file. The file
// contains environments, so only root can read it.
type crashedStore struct {
	e      *Engine
	limits Crashed
	ctx    context.Context // done when the engine is closed
	cancel context.CancelFunc
	work   sync.WaitGroup
	order  sync.Mutex // held during a trim

	mu   sync.Mutex // guards the fields below
	kept map[runtime.InstanceID]*crashedInstance
}

// crashedInstance is one crashed instance. Fields that are not in its file are guarded
// by crashedStore.mu.
type crashedInstance struct {
	runtime.CrashFiles
	Memory    int64            `json:"memory"`
	Mounts    []stack.Mount    `json:"mounts"`
	Processes []crashedProcess `json:"processes"`

	removing bool // it is being removed: no new sessions
	starting int  // sessions that have no container yet
	sessions map[*crashSession]bool
}

// crashedProcess has the settings that one process was started with.
type crashedProcess struct {
	Name string `json:"name"` // name of the sidecar, empty for main
	session.Context
}

func crashedKey(id runtime.InstanceID) string { return crashedPrefix + string(id) }

const (
	crashedPrefix = names.Prefix + "crashed-"
	crashedLabel  = names.LabelPrefix + "crashed"
)

// newCrashedStore reads the records of an earlier daemon.
func newCrashedStore(ctx context.Context, e *Engine, limits Crashed) (*crashedStore, error) {
	st := &crashedStore{e: e, limits: limits, kept: map[runtime.InstanceID]*crashedInstance{}}
	st.ctx, st.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if limits.Dir == "" {
		return st, nil
	}
	if err := os.MkdirAll(limits.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the folder of crashed instances: %w", err)
	}
	entries, err := os.ReadDir(limits.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list crashed instances: %w", err)
	}
	for _, d := range entries {
		ci := &crashedInstance{sessions: map[*crashSession]bool{}}
		data, err := os.ReadFile(filepath.Join(limits.Dir, d.Name()))
		if err == nil {
			err = json.Unmarshal(data, ci)
		}
		if err != nil || d.Name() != string(ci.Instance)+".json" || !ci.Instance.Valid() {
			// It is incomplete, or not from dew: the sweep removes its files.
			st.e.log.Warn("cannot read the record of a crashed instance", "file", d.Name(), "err", err)
			continue
		}
		st.kept[ci.Instance] = ci
	}
	return st, nil
}

// close waits for background work.
func (st *crashedStore) close() {
	st.mu.Lock()
	st.cancel()
	st.mu.Unlock()
	st.work.Wait()
}

func (st *crashedStore) file(id runtime.InstanceID) string {
	return filepath.Join(st.limits.Dir, string(id)+".json")
}

// KeepFiles makes Delete store the files.
func (c *container) KeepFiles(crashed time.Time) { c.crashed.Store(&crashed) }

// keepFiles stores the files of a crashed instance. A failure does not delay the next
// instance.
func (st *crashedStore) keepFiles(ctx context.Context, c *container) {
	at := c.crashed.Load()
	if l := st.limits; at == nil || l.Dir == "" || l.Bytes <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keepLimit)
	defer cancel()
	if err := st.keep(ctx, c, *at); err != nil {
		st.e.log.Warn("cannot store the files of a crashed instance", "instance", c.spec.Instance, "err", err)
	}
}

// keep makes a snapshot of the writable layer after all processes have exited. This
// replaces the removal of the layer, so that a crash takes no longer than before.
func (st *crashedStore) keep(ctx context.Context, c *container, at time.Time) error {
	id := c.spec.Instance
	if st.has(id) { // an earlier attempt to delete it reached this point
		return nil
	}
	ci, err := st.describe(ctx, c, at)
	if err != nil {
		return err
	}
	if err := st.e.killAll(ctx, id); err != nil {
		return err
	}
	err = st.e.conn.UntilDeleted(ctx, func(ctx context.Context) error {
		_, err := st.e.conn.Tasks.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: c.id})
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot delete task: %w", err)
	}
	sn := st.e.images.Snapshotter()
	label := snapshots.WithLabels(map[string]string{images.GCRoot: "crashed", crashedLabel: string(id)})
	err = st.e.conn.UntilDeleted(ctx, func(ctx context.Context) error { return sn.Commit(ctx, crashedKey(id), c.id, label) })
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("cannot commit snapshot: %w", err)
	}
	u, err := sn.Usage(ctx, crashedKey(id)) // not found: the layer was already gone
	if err != nil {
		return fmt.Errorf("cannot measure snapshot: %w", err)
	}
	ci.Size = u.Size
	data, err := json.Marshal(ci)
	if err != nil {
		return fmt.Errorf("cannot encode the record of a crashed instance: %w", err)
	}
	if err := runfile.Write(st.file(id), string(data), 0o600); err != nil {
		return errors.Join(err, sn.Remove(ctx, crashedKey(id)))
	}
	st.mu.Lock()
	st.kept[id] = ci
	st.mu.Unlock()
	st.tidyUp()
	return nil
}

func (st *crashedStore) has(id runtime.InstanceID) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.kept[id] != nil
}

// describe collects the data for later sessions. It reads the mounts of the stack from
// the container itself, even if another daemon created it.
func (st *crashedStore) describe(ctx context.Context, c *container, at time.Time) (*crashedInstance, error) {
	s := c.spec
	ci := &crashedInstance{
		CrashFiles: runtime.CrashFiles{Instance: s.Instance, Slot: s.Slot, App: s.App, Type: s.Type, CrashedAt: at},
		Memory:     s.Memory, sessions: map[*crashSession]bool{},
	}
	for _, p := range c.procs {
		given, err := session.ReadContext(c.dir, p.Exec)
		if err != nil {
			return nil, err
		}
		ci.Processes = append(ci.Processes, crashedProcess{Name: p.Name, Context: given})
	}
	ctx, cancel := context.WithTimeout(ctx, connection.CallTimeout)
	defer cancel()
	record, err := st.e.conn.Client.ContainerService().Get(ctx, c.id)
	if err != nil {
		return nil, fmt.Errorf("cannot read container: %w", err)
	}
	var oci specs.Spec
	if err := typeurl.UnmarshalTo(record.Spec, &oci); err != nil {
		return nil, fmt.Errorf("cannot decode OCI spec: %w", err)
	}
	ci.Mounts = ocispec.StackMounts(oci.Mounts)
	return ci, nil
}

// CrashFiles lists the stored files, newest first.
func (e *Engine) CrashFiles() []runtime.CrashFiles {
	e.crashed.mu.Lock()
	defer e.crashed.mu.Unlock()
	var out []runtime.CrashFiles
	for _, ci := range e.crashed.sorted() {
		out = append(out, ci.CrashFiles)
	}
	return out
}

// sorted returns the instances that are not being removed, newest first.
func (st *crashedStore) sorted() []*crashedInstance {
	all := slices.DeleteFunc(slices.Collect(maps.Values(st.kept)), func(ci *crashedInstance) bool { return ci.removing })
	slices.SortFunc(all, func(a, ci *crashedInstance) int {
		return cmp.Or(ci.CrashedAt.Compare(a.CrashedAt), cmp.Compare(a.Instance, ci.Instance))
	})
	return all
}

// tidyUp trims in the background: a restart does not wait for it.
func (st *crashedStore) tidyUp() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ctx.Err() == nil {
		st.work.Go(func() { st.trim(st.ctx) })
	}
}

// trim removes the oldest instances until the limits are met.
func (st *crashedStore) trim(ctx context.Context) {
	st.order.Lock()
	defer st.order.Unlock()
	pressed := free(st.limits.Dir) < st.limits.Reserve
	for {
		st.mu.Lock()
		ci := excess(st.sorted(), st.limits, pressed)
		if ci != nil {
			ci.removing = true
		}
		st.mu.Unlock()
		if ci == nil {
			return
		}
		if err := st.remove(ctx, ci); err != nil {
			if ctx.Err() == nil {
				st.e.log.Warn("cannot remove the files of a crashed instance; dewd tries again", "instance", ci.Instance, "err", err)
			}
			return
		}
		pressed = false // containerd frees the space later: remove one at a time
		st.e.log.Info("removed the files of a crashed instance", "app", ci.App, "instance", ci.Instance, "bytes", ci.Size)
	}
}

// excess returns the next instance to remove from all, which is sorted newest first, or
// nil for none. If the disk is nearly full, it returns the oldest in any case. An
// instance with a session stays until the session is closed.
func excess(all []*crashedInstance, limits Crashed, pressed bool) *crashedInstance {
	var out *crashedInstance
	var total int64
	apps := map[string]int{}
	for _, ci := range all {
		if apps[ci.App]++; limits.Bytes <= 0 || ci.Size > limits.Bytes { // too large on its own: it does not displace others
			apps[ci.App]--
			if ci.unused() {
				out = ci
			}
			continue
		}
		total += ci.Size
		if (apps[ci.App] > runtime.KeptPerApp || total > limits.Bytes || pressed) && ci.unused() {
			out = ci
		}
	}
	return out
}

func (ci *crashedInstance) unused() bool { return ci.starting == 0 && len(ci.sessions) == 0 }

// free returns the free space of the folder's disk. If it cannot be read, it returns a
// large number.
func free(dir string) int64 {
	const enough = 1 << 62
	var st unix.Statfs_t
	if dir == "" || unix.Statfs(dir, &st) != nil {
		return enough
	}
	return int64(st.Bavail) * st.Bsize
}

// remove removes an instance that has no session and is not being removed already.
func (st *crashedStore) remove(ctx context.Context, ci *crashedInstance) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	// Delete the file last: without it there would be no second attempt.
	err := st.e.disks.Remove(string(ci.Instance))
	if err == nil {
		err = st.e.conn.UntilDeleted(ctx, func(ctx context.Context) error {
			return st.e.images.Snapshotter().Remove(ctx, crashedKey(ci.Instance))
		})
	}
	if err == nil {
		if err = os.Remove(st.file(ci.Instance)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err != nil {
		ci.removing = false
		return fmt.Errorf("cannot remove crashed instance %s: %w", ci.Instance, err)
	}
	delete(st.kept, ci.Instance)
	return nil
}

// DropCrashFiles removes the stored files of a process and closes the sessions on them.
func (e *Engine) DropCrashFiles(ctx context.Context, process string) error {
	st := e.crashed
	st.order.Lock()
	defer st.order.Unlock()
	var removed []*crashedInstance
	var sessionsToClose []*crashSession
	st.mu.Lock()
	for _, ci := range st.sorted() {
		if ci.Slot.Process != process {
			continue
		}
		ci.removing = true
		removed = append(removed, ci)
		sessionsToClose = slices.AppendSeq(sessionsToClose, maps.Keys(ci.sessions))
	}
	st.mu.Unlock()
	var errs error
	for _, cs := range sessionsToClose {
		errs = errors.Join(errs, cs.container.Delete(ctx))
	}
	for _, ci := range removed {
		errs = errors.Join(errs, st.remove(ctx, ci))
	}
	return errs
}

// sweep removes files without a snapshot, and snapshots without a file. It leaves the
// instances in keep alone, because their files are possibly still being stored.
func (st *crashedStore) sweep(ctx context.Context, keep map[runtime.InstanceID]bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	sn := st.e.images.Snapshotter()
	found := map[runtime.InstanceID]bool{}
	err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if id, ok := strings.CutPrefix(info.Name, crashedPrefix); ok {
			found[runtime.InstanceID(id)] = true
		}
		return nil
	})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot list snapshots: %w", err)
	}
	st.mu.Lock()
	maps.DeleteFunc(st.kept, func(id runtime.InstanceID, _ *crashedInstance) bool { return !found[id] })
	known := maps.Clone(st.kept)
	st.mu.Unlock()
	var errs error
	for id := range found {
		if known[id] != nil || keep[id] {
			continue
		}
		st.e.log.Info("swept the files of a crashed instance", "instance", id)
		if err := sn.Remove(ctx, crashedKey(id)); err != nil && !errdefs.IsNotFound(err) {
			errs = errors.Join(errs, fmt.Errorf("cannot remove snapshot %s: %w", crashedKey(id), err))
		}
	}
	if st.limits.Dir == "" {
		return errs
	}
	entries, err := os.ReadDir(st.limits.Dir)
	if err != nil {
		return errors.Join(errs, fmt.Errorf("cannot list crashed instances: %w", err))
	}
	for _, d := range entries {
		id := runtime.InstanceID(strings.TrimSuffix(d.Name(), ".json"))
		if known[id] == nil {
			errs = errors.Join(errs, os.Remove(filepath.Join(st.limits.Dir, d.Name())))
		}
	}
	return errs
}

// clear forgets all instances. containerd's garbage collection deletes their snapshots.
func (st *crashedStore) clear() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	clear(st.kept)
	if st.limits.Dir == "" {
		return nil
	}
	return os.RemoveAll(st.limits.Dir)
}
