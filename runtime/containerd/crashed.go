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

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/runtime"
)

// Crashed bounds what is kept of crashed instances.
type Crashed struct {
	Dir     string // of what is known of them; empty: nothing is kept
	Bytes   int64  // of all files together; 0: no more are kept
	Reserve int64  // free bytes below which the oldest go
}

var (
	_ runtime.Keeper   = (*Engine)(nil)
	_ runtime.Keepable = (*task)(nil)
)

// keepLimit is how long a restart may wait for the keeping of files.
const keepLimit = 10 * time.Second

// morgue keeps crashed instances: the writable layer of each as a committed
// snapshot, of which sessions get copies, and a file that tells the rest. The file
// holds environments, so nobody but root may read it.
type morgue struct {
	e      *Engine
	limits Crashed
	ctx    context.Context // ends with the engine
	cancel context.CancelFunc
	work   sync.WaitGroup
	order  sync.Mutex // held by whoever trims

	mu   sync.Mutex // guards the fields below
	kept map[runtime.InstanceID]*remnant
}

// remnant is one of them. What is not in its file is guarded by morgue.mu.
type remnant struct {
	runtime.Remains
	Memory    int64            `json:"memory"`
	Mounts    []droplet.Mount  `json:"mounts"`
	Processes []remnantProcess `json:"processes"`

	leaving bool // it is being removed: nobody may enter
	making  int  // visits that have no container yet
	visits  map[*visit]bool
}

// remnantProcess is what one process was started with.
type remnantProcess struct {
	Name string `json:"name"` // of the sidecar; empty for main
	surroundings
}

func crashedKey(id runtime.InstanceID) string { return crashedPrefix + string(id) }

const (
	crashedPrefix = containerPrefix + "crashed-"
	crashedLabel  = labelPrefix + "crashed"
)

// newMorgue reads what an earlier daemon kept.
func newMorgue(ctx context.Context, e *Engine, limits Crashed) (*morgue, error) {
	m := &morgue{e: e, limits: limits, kept: map[runtime.InstanceID]*remnant{}}
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if limits.Dir == "" {
		return m, nil
	}
	if err := os.MkdirAll(limits.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder of crashed instances: %w", err)
	}
	entries, err := os.ReadDir(limits.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list crashed instances: %w", err)
	}
	for _, d := range entries {
		b := &remnant{visits: map[*visit]bool{}}
		data, err := os.ReadFile(filepath.Join(limits.Dir, d.Name()))
		if err == nil {
			err = json.Unmarshal(data, b)
		}
		if err != nil || d.Name() != string(b.Instance)+".json" || !b.Instance.Valid() {
			// Half written, or nothing of ours: the sweep removes its files.
			m.e.log.Warn("cannot read what is kept of a crashed instance", "file", d.Name(), "err", err)
			continue
		}
		m.kept[b.Instance] = b
	}
	return m, nil
}

// close waits for what is done beside.
func (m *morgue) close() {
	m.mu.Lock()
	m.cancel()
	m.mu.Unlock()
	m.work.Wait()
}

func (m *morgue) file(id runtime.InstanceID) string {
	return filepath.Join(m.limits.Dir, string(id)+".json")
}

// Keep makes Delete keep the files.
func (t *task) Keep(crashed time.Time) { t.crashed.Store(&crashed) }

// setAside keeps the files of an instance that crashed. That it could not is no
// reason for the next instance to wait.
func (t *task) setAside(ctx context.Context) {
	at := t.crashed.Load()
	if l := t.e.morgue.limits; at == nil || l.Dir == "" || l.Bytes <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keepLimit)
	defer cancel()
	if err := t.e.morgue.keep(ctx, t, *at); err != nil {
		t.e.log.Warn("cannot keep the files of a crashed instance", "instance", t.spec.Instance, "err", err)
	}
}

// keep makes a snapshot of the writable layer once nothing runs on it. It comes in
// the place of its removal, so that a crash costs no more than before.
func (m *morgue) keep(ctx context.Context, t *task, at time.Time) error {
	id := t.spec.Instance
	if m.has(id) { // an earlier try to delete it got this far
		return nil
	}
	b, err := m.describe(ctx, t, at)
	if err != nil {
		return err
	}
	if err := m.e.killAll(ctx, id); err != nil {
		return err
	}
	err = m.e.until(ctx, func(ctx context.Context) error {
		_, err := m.e.tasks.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: t.id})
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot delete task: %w", err)
	}
	sn := m.e.images.snapshotter()
	label := snapshots.WithLabels(map[string]string{gcRoot: "crashed", crashedLabel: string(id)})
	err = m.e.until(ctx, func(ctx context.Context) error { return sn.Commit(ctx, crashedKey(id), t.id, label) })
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("cannot commit snapshot: %w", err)
	}
	u, err := sn.Usage(ctx, crashedKey(id)) // not there: the layer was gone before
	if err != nil {
		return fmt.Errorf("cannot measure snapshot: %w", err)
	}
	b.Size = u.Size
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("cannot encode what is kept: %w", err)
	}
	if err := writeFile(m.file(id), string(data), 0o600); err != nil {
		return errors.Join(err, sn.Remove(ctx, crashedKey(id)))
	}
	m.mu.Lock()
	m.kept[id] = b
	m.mu.Unlock()
	m.tidyUp()
	return nil
}

func (m *morgue) has(id runtime.InstanceID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept[id] != nil
}

// describe gathers what a session will have to know. The container itself knows
// the mounts of its stack, also where another daemon made it.
func (m *morgue) describe(ctx context.Context, t *task, at time.Time) (*remnant, error) {
	s := t.spec
	b := &remnant{
		Remains: runtime.Remains{Instance: s.Instance, Slot: s.Slot, App: s.App, Type: s.Type, CrashedAt: at},
		Memory:  s.Memory, visits: map[*visit]bool{},
	}
	for _, p := range t.procs {
		given, err := t.given(p)
		if err != nil {
			return nil, err
		}
		b.Processes = append(b.Processes, remnantProcess{Name: p.Name, surroundings: given})
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := m.e.client.ContainerService().Get(ctx, t.id)
	if err != nil {
		return nil, fmt.Errorf("cannot read container: %w", err)
	}
	var oci specs.Spec
	if err := typeurl.UnmarshalTo(c.Spec, &oci); err != nil {
		return nil, fmt.Errorf("cannot decode OCI spec: %w", err)
	}
	b.Mounts = stackMounts(oci.Mounts)
	return b, nil
}

// stackMounts are those of a container that its stack asked for.
func stackMounts(all []specs.Mount) []droplet.Mount {
	system := map[string]bool{}
	for _, m := range systemMounts() {
		system[m.Destination] = true
	}
	var out []droplet.Mount
	for _, m := range all {
		if !system[m.Destination] && !ownMount(m.Destination) {
			out = append(out, droplet.Mount{Path: m.Destination, Type: m.Type, Source: m.Source, Options: m.Options})
		}
	}
	return out
}

// Remains lists what is kept, newest first.
func (e *Engine) Remains() []runtime.Remains {
	e.morgue.mu.Lock()
	defer e.morgue.mu.Unlock()
	var out []runtime.Remains
	for _, b := range e.morgue.sorted() {
		out = append(out, b.Remains)
	}
	return out
}

// sorted are those that nobody removes, newest first.
func (m *morgue) sorted() []*remnant {
	bs := slices.DeleteFunc(slices.Collect(maps.Values(m.kept)), func(b *remnant) bool { return b.leaving })
	slices.SortFunc(bs, func(a, b *remnant) int {
		return cmp.Or(b.CrashedAt.Compare(a.CrashedAt), cmp.Compare(a.Instance, b.Instance))
	})
	return bs
}

// tidyUp trims beside: a restart does not wait for it.
func (m *morgue) tidyUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() == nil {
		m.work.Go(func() { m.trim(m.ctx) })
	}
}

// trim removes what is beyond the bounds, the oldest first.
func (m *morgue) trim(ctx context.Context) {
	m.order.Lock()
	defer m.order.Unlock()
	pressed := free(m.limits.Dir) < m.limits.Reserve
	for {
		m.mu.Lock()
		b := excess(m.sorted(), m.limits, pressed)
		if b != nil {
			b.leaving = true
		}
		m.mu.Unlock()
		if b == nil {
			return
		}
		if err := m.remove(ctx, b); err != nil {
			if ctx.Err() == nil {
				m.e.log.Warn("cannot remove what is kept of a crashed instance yet", "instance", b.Instance, "err", err)
			}
			return
		}
		pressed = false // containerd frees the room later: one at a time
		m.e.log.Info("removed what was kept of a crashed instance", "app", b.App, "instance", b.Instance, "bytes", b.Size)
	}
}

// excess is the next to be removed of those that are kept, newest first; nil:
// none. When the disk is pressed the oldest goes in any case. One that somebody is
// in stays until they leave.
func excess(bs []*remnant, limits Crashed, pressed bool) *remnant {
	var out *remnant
	var total int64
	apps := map[string]int{}
	for _, b := range bs {
		if apps[b.App]++; limits.Bytes <= 0 || b.Size > limits.Bytes { // alone too much: it takes nobody along
			apps[b.App]--
			if b.empty() {
				out = b
			}
			continue
		}
		total += b.Size
		if (apps[b.App] > runtime.KeptPerApp || total > limits.Bytes || pressed) && b.empty() {
			out = b
		}
	}
	return out
}

func (b *remnant) empty() bool { return b.making == 0 && len(b.visits) == 0 }

// free tells how much room there is where the folder is; where it cannot be told
// there is enough.
func free(dir string) int64 {
	const enough = 1 << 62
	var st unix.Statfs_t
	if dir == "" || unix.Statfs(dir, &st) != nil {
		return enough
	}
	return int64(st.Bavail) * st.Bsize
}

// remove removes one that nobody is in, and that nobody else removes.
func (m *morgue) remove(ctx context.Context, b *remnant) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	// The file is the last: without it nobody would try again.
	err := m.e.until(ctx, func(ctx context.Context) error {
		return m.e.images.snapshotter().Remove(ctx, crashedKey(b.Instance))
	})
	if err == nil {
		if err = os.Remove(m.file(b.Instance)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		b.leaving = false
		return fmt.Errorf("cannot remove crashed instance %s: %w", b.Instance, err)
	}
	delete(m.kept, b.Instance)
	return nil
}

// DropRemains removes what is kept of a process, and ends the sessions there.
func (e *Engine) DropRemains(ctx context.Context, process string) error {
	m := e.morgue
	m.order.Lock()
	defer m.order.Unlock()
	var doomed []*remnant
	var visits []*visit
	m.mu.Lock()
	for _, b := range m.sorted() {
		if b.Slot.Process != process {
			continue
		}
		b.leaving = true
		doomed = append(doomed, b)
		visits = slices.AppendSeq(visits, maps.Keys(b.visits))
	}
	m.mu.Unlock()
	var errs error
	for _, v := range visits {
		errs = errors.Join(errs, v.t.Delete(ctx))
	}
	for _, b := range doomed {
		errs = errors.Join(errs, m.remove(ctx, b))
	}
	return errs
}

// sweep removes files without a snapshot, and snapshots without a file. Those of
// kept instances are still being put together.
func (m *morgue) sweep(ctx context.Context, keep map[runtime.InstanceID]bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	sn := m.e.images.snapshotter()
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
	m.mu.Lock()
	maps.DeleteFunc(m.kept, func(id runtime.InstanceID, _ *remnant) bool { return !found[id] })
	known := maps.Clone(m.kept)
	m.mu.Unlock()
	var errs error
	for id := range found {
		if known[id] != nil || keep[id] {
			continue
		}
		m.e.log.Info("swept what was kept of a crashed instance", "instance", id)
		if err := sn.Remove(ctx, crashedKey(id)); err != nil && !errdefs.IsNotFound(err) {
			errs = errors.Join(errs, fmt.Errorf("cannot remove snapshot %s: %w", crashedKey(id), err))
		}
	}
	if m.limits.Dir == "" {
		return errs
	}
	entries, err := os.ReadDir(m.limits.Dir)
	if err != nil {
		return errors.Join(errs, fmt.Errorf("cannot list crashed instances: %w", err))
	}
	for _, d := range entries {
		id := runtime.InstanceID(strings.TrimSuffix(d.Name(), ".json"))
		if known[id] == nil {
			errs = errors.Join(errs, os.Remove(filepath.Join(m.limits.Dir, d.Name())))
		}
	}
	return errs
}

// clear forgets all of them, whose snapshots are collected.
func (m *morgue) clear() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.kept)
	if m.limits.Dir == "" {
		return nil
	}
	return os.RemoveAll(m.limits.Dir)
}
