package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/kubernetes/link"
)

// Crashed has the limits for the stored files of crashed instances.
type Crashed struct {
	Dir   string // folder of the files (empty: nothing is stored)
	Bytes int64  // size of all files together (0: nothing is stored)
}

// keepLimit is how long a restart can wait until the files are stored.
const keepLimit = 30 * time.Second

// crashedStore stores the files of crashed instances in the volume of dewd.
type crashedStore struct {
	e      *Engine
	limits Crashed

	mu   sync.Mutex // guards the fields below
	kept map[runtime.InstanceID]*crashedInstance
}

// crashedInstance is one crashed instance. Its file contains environments, so only dewd
// can read it.
type crashedInstance struct {
	runtime.CrashFiles
	Memory   int64    `json:"memory"`
	Settings settings `json:"settings"`

	sessions map[*crashSession]bool // guarded by crashedStore.mu
}

func newCrashedStore(e *Engine, limits Crashed) (*crashedStore, error) {
	st := &crashedStore{e: e, limits: limits, kept: map[runtime.InstanceID]*crashedInstance{}}
	if limits.Dir == "" {
		return st, nil
	}
	if err := os.MkdirAll(limits.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the folder of crashed instances: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(limits.Dir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		ci := &crashedInstance{sessions: map[*crashSession]bool{}}
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, ci)
		}
		if err != nil || file != st.file(ci.Instance, ".json") || !ci.Instance.Valid() {
			e.log.Warn("cannot read the record of a crashed instance", "file", file, "err", err)
			continue
		}
		st.kept[ci.Instance] = ci
	}
	return st, nil
}

func (st *crashedStore) file(id runtime.InstanceID, suffix string) string {
	return filepath.Join(st.limits.Dir, string(id)+suffix)
}

// keepFiles stores the files of a crashed instance. A failure does not delay the next
// instance.
func (st *crashedStore) keepFiles(ctx context.Context, c *container) {
	at := c.crashed.Load()
	if at == nil || st.limits.Dir == "" || st.limits.Bytes <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keepLimit)
	defer cancel()
	if err := st.keep(ctx, c, *at); err != nil {
		st.e.log.Warn("cannot store the files of a crashed instance", "instance", c.spec.Instance, "err", err)
	}
}

func (st *crashedStore) keep(ctx context.Context, c *container, at time.Time) error {
	s := c.spec
	given, err := st.e.readSettings(s.Instance)
	if err != nil {
		return err
	}
	size, err := st.fetch(ctx, c)
	if err != nil {
		return err
	}
	ci := &crashedInstance{
		CrashFiles: runtime.CrashFiles{Instance: s.Instance, Slot: s.Slot, App: s.App, Type: s.Type, CrashedAt: at, Size: size},
		Memory:     s.Memory, Settings: given, sessions: map[*crashSession]bool{},
	}
	b, err := json.Marshal(ci)
	if err != nil {
		return err
	}
	if err := runfile.Write(st.file(s.Instance, ".json"), string(b), 0o600); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.kept[s.Instance] = ci
	st.trim()
	return nil
}

// fetch stores the files of a Pod as a compressed tar, and returns its size.
func (st *crashedStore) fetch(ctx context.Context, c *container) (int64, error) {
	agent, err := c.agent(ctx)
	if err != nil {
		return 0, err
	}
	r, err := agent.Fetch(ctx, link.PathFiles+"?exec="+runtime.MainExec)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	file := st.file(c.spec.Instance, ".tar.gz")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err == nil {
		var n int64
		if n, err = io.Copy(z, io.LimitReader(r, st.limits.Bytes+1)); err == nil && n > st.limits.Bytes {
			err = fmt.Errorf("they have more than %dM", st.limits.Bytes>>20)
		}
		err = errors.Join(err, z.Close())
	}
	fi, serr := f.Stat()
	if err = errors.Join(err, serr, f.Close()); err != nil {
		return 0, errors.Join(err, os.Remove(file))
	}
	return fi.Size(), nil
}

// sorted returns all instances, newest first. The caller holds st.mu.
func (st *crashedStore) sorted() []*crashedInstance {
	return slices.SortedFunc(maps.Values(st.kept), func(a, b *crashedInstance) int {
		return cmp.Or(b.CrashedAt.Compare(a.CrashedAt), cmp.Compare(a.Instance, b.Instance))
	})
}

// trim removes the oldest instances until the limits are met. The caller holds st.mu.
func (st *crashedStore) trim() {
	var total int64
	apps := map[string]int{}
	for _, ci := range st.sorted() {
		apps[ci.App]++
		total += ci.Size
		if (apps[ci.App] > runtime.KeptPerApp || total > st.limits.Bytes) && len(ci.sessions) == 0 {
			if err := st.remove(ci); err != nil {
				st.e.log.Warn("cannot remove the files of a crashed instance", "instance", ci.Instance, "err", err)
			}
		}
	}
}

// remove removes an instance. The caller holds st.mu.
func (st *crashedStore) remove(ci *crashedInstance) error {
	delete(st.kept, ci.Instance)
	var errs error
	for _, suffix := range []string{".tar.gz", ".json"} {
		if err := os.Remove(st.file(ci.Instance, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// sweep removes files that belong to no record.
func (st *crashedStore) sweep() error {
	if st.limits.Dir == "" {
		return nil
	}
	entries, err := os.ReadDir(st.limits.Dir)
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	var errs error
	for _, d := range entries {
		id, _, _ := strings.Cut(d.Name(), ".")
		if st.kept[runtime.InstanceID(id)] == nil && st.e.find(runtime.InstanceID(id)) == nil {
			errs = errors.Join(errs, os.Remove(filepath.Join(st.limits.Dir, d.Name())))
		}
	}
	return errs
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

// DropCrashFiles removes the stored files of a process and closes the sessions on them.
func (e *Engine) DropCrashFiles(ctx context.Context, process string) error {
	st := e.crashed
	var sessions []*crashSession
	var errs error
	st.mu.Lock()
	for _, ci := range st.sorted() {
		if ci.Slot.Process == process {
			sessions = slices.AppendSeq(sessions, maps.Keys(ci.sessions))
			errs = errors.Join(errs, st.remove(ci))
		}
	}
	st.mu.Unlock()
	for _, s := range sessions {
		errs = errors.Join(errs, s.c.Delete(ctx))
	}
	return errs
}

// crashSession is a session in a Pod of its own, with a copy of the files of a crashed
// instance.
type crashSession struct {
	*session
	ci   *crashedInstance
	once sync.Once
}

// noAddress is the address of a Pod that nothing connects to.
var noAddress = netip.MustParsePrefix("127.0.0.1/8")

// ExecCrashFiles opens a session on a copy of the files of a crashed instance.
func (e *Engine) ExecCrashFiles(ctx context.Context, id runtime.InstanceID, sidecar string, spec runtime.ExecSpec) (runtime.Session, error) {
	st := e.crashed
	st.mu.Lock()
	ci := st.kept[id]
	st.mu.Unlock()
	if ci == nil {
		return nil, fmt.Errorf("cannot open a session: files of crashed instance %s: %w", id, runtime.ErrNoInstance)
	}
	i := slices.IndexFunc(ci.Settings.Processes, func(p processSettings) bool { return p.Name == sidecar })
	if i < 0 {
		return nil, fmt.Errorf("cannot open a session: sidecar %q of crashed instance %s: %w", sidecar, id, runtime.ErrNoInstance)
	}
	given := ci.Settings.Processes[i]
	s := runtime.Spec{
		Kind: runtime.KindInstance, Instance: runtime.NewInstanceID(), Slot: ci.Slot, App: ci.App, Type: ci.Type, Address: noAddress,
		Memory: ci.Memory, Stack: stack.Stack{Name: crashedStack, ID: ci.Settings.Image, Shell: ci.Settings.Shell},
		Processes: []runtime.ProcessSpec{{Exec: runtime.MainExec, Source: runtime.ProcessSource(ci.Type, ""), Dir: given.Dir, Env: given.Env}},
	}
	c, err := e.create(ctx, s, kindCrashFiles, func(c starting, ctx context.Context) error { return c.restore(ctx, id) })
	if err != nil {
		return nil, fmt.Errorf("cannot open a session on the files of a crashed instance: %w", err)
	}
	ses, err := c.openSession(ctx, c.procs[0], spec)
	if err != nil {
		return nil, errors.Join(err, c.Delete(ctx))
	}
	out := &crashSession{session: ses, ci: ci}
	st.mu.Lock()
	ci.sessions[out] = true
	st.mu.Unlock()
	return out, nil
}

// crashedStack is the name of the stack of a crashed instance. Its ID is the image.
const crashedStack = "crashed"

// stackImage returns the image of a stack.
func (e *Engine) stackImage(s stack.Stack) (string, error) {
	if s.Name == crashedStack {
		return s.ID, nil
	}
	return e.cfg.StackImage(s)
}

// restore sends the stored files of an instance to the Pod.
func (c starting) restore(ctx context.Context, id runtime.InstanceID) error {
	agent, err := c.firstLink(ctx)
	if err != nil {
		return err
	}
	f, err := os.Open(c.e.crashed.file(id, ".tar.gz"))
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	return agent.Send(ctx, link.PathTree+"?dir=/&exec="+runtime.MainExec, z)
}

// Close ends the session and removes its Pod.
func (s *crashSession) Close() error {
	err := s.session.Close()
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.c.e.ctx), callTimeout)
		defer cancel()
		if s.c.ctx.Err() == nil { // not yet deleted
			err = errors.Join(err, s.c.Delete(ctx))
		}
		st := s.c.e.crashed
		st.mu.Lock()
		defer st.mu.Unlock()
		delete(s.ci.sessions, s)
		st.trim()
	})
	return err
}
