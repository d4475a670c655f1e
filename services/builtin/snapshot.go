package builtin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services"
)

// Snapshot is a copy of the data of an instance as it was at one moment.
type Snapshot struct {
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	Bytes     int64     `json:"bytes"`
}

// KeptSnapshots is how many snapshots an instance may have.
const KeptSnapshots = 10

const (
	copyLimit   = 10 * time.Minute // less than a frozen server waits
	frozenWord  = "frozen"
	newSuffix   = ".new"
	snapshotFmt = "20060102-150405"
)

// Snapshots lists the snapshots of an instance, oldest first.
func (b *Broker) Snapshots(instance string) ([]Snapshot, error) {
	rec, err := b.get(instance)
	if err != nil {
		return nil, err
	}
	return rec.Snapshots, nil
}

// Snapshot copies the data of an instance. The server stands still meanwhile,
// which is short where the file system shares what is equal; its clients only
// wait. The copy is what a power cut at that moment would have left.
func (b *Broker) Snapshot(ctx context.Context, instance string) (Snapshot, error) {
	rec, unlock, err := b.claim(ctx, instance)
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock()
	if len(rec.Snapshots) >= KeptSnapshots {
		return Snapshot{}, refusal(http.StatusUnprocessableEntity, "there are %d snapshots of this service instance: delete one first", len(rec.Snapshots))
	}
	if err := b.up(ctx, rec, upLimit); err != nil {
		return Snapshot{}, err
	}
	bytes, err := treeSize(b.data(rec.GUID))
	if err != nil {
		return Snapshot{}, err
	}
	if err := b.room(bytes); err != nil {
		return Snapshot{}, refusal(http.StatusInsufficientStorage, "%v", err)
	}
	if e, ok := engineOf(rec.Engine); ok && e.checkpoint != "" {
		if _, err := b.statements(ctx, rec, e.checkpoint); err != nil {
			return Snapshot{}, fmt.Errorf("cannot prepare the server for a copy: %w", err)
		}
	}
	s := Snapshot{ID: snapshotID(rec, time.Now()), CreatedAt: time.Now().UTC(), Bytes: bytes}
	if err := b.copyStanding(ctx, rec, filepath.Join(b.copiesDir(rec.GUID), s.ID)); err != nil {
		return Snapshot{}, err
	}
	if _, err := b.change(rec.GUID, func(r *record) { r.Snapshots = append(r.Snapshots, s) }); err != nil {
		return Snapshot{}, err
	}
	return s, nil
}

// snapshotID is the time, and a number where that is taken.
func snapshotID(rec record, now time.Time) string {
	base := now.UTC().Format(snapshotFmt)
	id := base
	for n := 2; slices.ContainsFunc(rec.Snapshots, func(s Snapshot) bool { return s.ID == id }); n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	return id
}

func (b *Broker) data(guid string) string { return filepath.Join(b.storeDir(guid), "data") }

// claim takes an instance with a server for oneself.
func (b *Broker) claim(ctx context.Context, instance string) (record, func(), error) {
	unlock, err := b.lock(ctx, instance)
	if err != nil {
		return record{}, nil, err
	}
	rec, err := b.get(instance)
	if err == nil && (!rec.usable() || rec.Doing != "") {
		err = refusal(http.StatusUnprocessableEntity, "the service instance is not ready: %s", b.progress(rec).Description)
	}
	if err != nil {
		unlock()
		return rec, nil, err
	}
	return rec, unlock, nil
}

// copyStanding copies the data to a new folder while the server stands still.
func (b *Broker) copyStanding(ctx context.Context, rec record, to string) error {
	if err := makeDir(filepath.Dir(to)); err != nil {
		return err
	}
	if _, err := b.change(rec.GUID, func(r *record) { r.Frozen = true }); err != nil {
		return err
	}
	err := b.frozen(ctx, rec.GUID, func(ctx context.Context) error { return copyTree(ctx, b.data(rec.GUID), to) })
	if err != nil {
		err = fmt.Errorf("cannot copy the data: %w", err)
	}
	_, cerr := b.change(rec.GUID, func(r *record) { r.Frozen = false })
	return errors.Join(err, cerr)
}

// frozen runs fn while the server stands still.
func (b *Broker) frozen(ctx context.Context, guid string, fn func(ctx context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, copyLimit)
	defer cancel()
	s, err := b.c.Host.Exec(ctx, runtime.ExecTarget{Process: guid},
		runtime.ExecSpec{Kind: runtime.ExecCommand, Command: scriptCommand("freeze")})
	if err != nil {
		return err
	}
	defer func() {
		// The end of its input lets the server go on; what is left is ended after that.
		thaw, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
		defer cancel()
		ierr := s.Streams().In.Close()
		_, werr := s.Wait(thaw)
		err = errors.Join(err, ierr, werr, s.Close(), b.c.Host.Signal(thaw, guid, 0, "", syscall.SIGCONT))
	}()
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReaderSize(s.Streams().Out, 256).ReadString('\n') // no line is no word
		said <- strings.TrimSpace(line)
	}()
	select {
	case word := <-said:
		if word != frozenWord {
			return errors.New("the server does not stand still")
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return fn(ctx)
}

// copyTree copies a folder whole or not at all, sharing what is equal where the
// file system can.
func copyTree(ctx context.Context, from, to string) error {
	part := to + newSuffix
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("cannot remove an unfinished copy: %w", err)
	}
	out, err := exec.CommandContext(ctx, "cp", "-a", "--reflink=auto", "--", from, part).CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("cannot copy %s: %w: %s", from, err, oneLine(string(out))), os.RemoveAll(part))
	}
	if err := syncFS(part); err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	if err := os.Rename(part, to); err != nil {
		return fmt.Errorf("cannot keep the copy: %w", err)
	}
	return syncFS(filepath.Dir(to))
}

// syncFS makes all that was written to the file system of path durable.
func syncFS(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot sync %s: %w", path, err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("cannot sync %s: %w", path, err)
	}
	return nil
}

// DropSnapshot removes a snapshot.
func (b *Broker) DropSnapshot(ctx context.Context, instance, id string) error {
	rec, unlock, err := b.claim(ctx, instance)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := rec.snapshot(id); err != nil {
		return err
	}
	_, err = b.change(rec.GUID, func(r *record) {
		r.Snapshots = slices.DeleteFunc(r.Snapshots, func(s Snapshot) bool { return s.ID == id })
	})
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(b.copiesDir(rec.GUID), id)); err != nil {
		return fmt.Errorf("cannot remove snapshot %s: %w", id, err)
	}
	return nil
}

func (r record) snapshot(id string) (Snapshot, error) {
	i := slices.IndexFunc(r.Snapshots, func(s Snapshot) bool { return s.ID == id })
	if i < 0 {
		return Snapshot{}, fmt.Errorf("snapshot '%s' of service instance %s: %w", id, r.GUID, services.ErrNotFound)
	}
	return r.Snapshots[i], nil
}

// oldData is what the data is called while a restored copy is tried.
const oldData = "data.old"

// Restore makes the data of an instance what it was at a snapshot. The server is
// stopped meanwhile. All bindings of now work after it; users of others, which the
// snapshot may know, are gone. When it fails the data is as it was before.
func (b *Broker) Restore(ctx context.Context, instance, id string) error {
	rec, unlock, err := b.claim(ctx, instance)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := rec.snapshot(id)
	if err != nil {
		return err
	}
	if err := b.room(s.Bytes); err != nil {
		return refusal(http.StatusInsufficientStorage, "%v", err)
	}
	if rec, err = b.change(rec.GUID, func(r *record) { r.Restoring, r.Version = true, newVersion() }); err != nil {
		return err
	}
	fresh := filepath.Join(b.storeDir(rec.GUID), "data.restored")
	if err := copyTree(ctx, filepath.Join(b.copiesDir(rec.GUID), id), fresh); err != nil {
		return errors.Join(err, b.resume(ctx, rec))
	}
	if err := errors.Join(b.halt(ctx, rec), b.forgetUsers(rec, fresh)); err != nil {
		return errors.Join(err, b.resume(ctx, rec))
	}
	old := filepath.Join(b.storeDir(rec.GUID), oldData)
	if err := errors.Join(os.RemoveAll(old), os.Rename(b.data(rec.GUID), old), os.Rename(fresh, b.data(rec.GUID))); err != nil {
		return errors.Join(fmt.Errorf("cannot put the copy into place: %w", err), b.resume(ctx, rec))
	}
	if err := b.tryRestored(ctx, rec); err != nil {
		return errors.Join(err, b.resume(ctx, rec))
	}
	return b.settle(rec.GUID)
}

// forgetUsers gives restored data of Redis the users of a new server: nobody else
// could list those that are too many.
func (b *Broker) forgetUsers(rec record, data string) error {
	if rec.Engine != redis.name {
		return nil
	}
	root, err := os.OpenRoot(data) // the app user's: nothing outside is written
	if err != nil {
		return fmt.Errorf("cannot open the copy: %w", err)
	}
	defer func() { _ = root.Close() }() // written files are closed by themselves
	if err := root.Remove(usersFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot remove the users of the copy: %w", err)
	}
	f, err := root.OpenFile(usersFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write the users of the copy: %w", err)
	}
	_, err = f.WriteString(redis.files(rec, rec.Shape)[usersFile])
	if err = errors.Join(err, f.Chown(b.c.UID, b.c.GID), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("cannot write the users of the copy: %w", err)
	}
	return nil
}

// tryRestored starts the server on restored data and gives it the users of now.
func (b *Broker) tryRestored(ctx context.Context, rec record) error {
	if err := b.put(rec, rec.Shape); err != nil {
		return err
	}
	if err := b.up(ctx, rec, b.c.Start); err != nil {
		return fmt.Errorf("the server does not start on the restored data: %w", err)
	}
	e, _ := engineOf(rec.Engine)
	text := e.prune(rec) + e.found(rec)
	for _, binding := range rec.Bindings {
		text += e.bind(rec, binding)
	}
	if text == "" {
		return nil
	}
	if _, err := b.statements(ctx, rec, text); err != nil {
		return fmt.Errorf("cannot make the users anew: %w", err)
	}
	return nil
}

// settle makes restored data the only one.
func (b *Broker) settle(guid string) error {
	if _, err := b.change(guid, func(r *record) { r.Restoring = false }); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(b.storeDir(guid), oldData)); err != nil {
		return fmt.Errorf("cannot remove the data from before: %w", err)
	}
	return nil
}

// halt ends the server and leaves everything else.
func (b *Broker) halt(ctx context.Context, rec record) error {
	v, err := b.server(rec, rec.Shape)
	if err != nil {
		return err
	}
	v.Stopped = true
	if err := b.c.Host.PutServer(v); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	return b.gone(ctx, rec.GUID)
}

// resume takes back a restoration that did not come to its end: the data is what
// it was before, and the server runs.
func (b *Broker) resume(ctx context.Context, rec record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	old := filepath.Join(b.storeDir(rec.GUID), oldData)
	if _, err := os.Lstat(old); err == nil {
		if err := b.halt(ctx, rec); err != nil {
			return err
		}
		if err := errors.Join(os.RemoveAll(b.data(rec.GUID)), os.Rename(old, b.data(rec.GUID))); err != nil {
			return fmt.Errorf("cannot put the data from before back: %w", err)
		}
	}
	rec, err := b.change(rec.GUID, func(r *record) { r.Restoring, r.Version = false, newVersion() })
	if err != nil {
		return err
	}
	for _, part := range []string{"data.restored", "data.restored" + newSuffix} {
		if err := os.RemoveAll(filepath.Join(b.storeDir(rec.GUID), part)); err != nil {
			return fmt.Errorf("cannot remove the copy: %w", err)
		}
	}
	return b.put(rec, rec.Shape)
}

// recover takes back what an earlier daemon left in the middle: a server that
// stands still, a restoration, an unfinished copy.
func (b *Broker) recover(ctx context.Context, rec record) {
	if !rec.Frozen && !rec.Restoring {
		return
	}
	b.running.Go(func() {
		unlock, err := b.lock(ctx, rec.GUID)
		if err != nil {
			return // the next daemon tries again
		}
		defer unlock()
		if err := b.takeBack(ctx, rec); err != nil {
			b.c.Logger.Error("cannot take back what was left of a snapshot", "service_instance", rec.GUID, "err", err)
		}
	})
}

func (b *Broker) takeBack(ctx context.Context, rec record) error {
	if rec.Restoring {
		return b.resume(ctx, rec)
	}
	err := b.c.Host.Signal(ctx, rec.GUID, 0, "", syscall.SIGCONT)
	for n := 0; errors.Is(err, runtime.ErrNoInstance) && n < 60 && wait(ctx, lastLook); n++ {
		err = b.c.Host.Signal(ctx, rec.GUID, 0, "", syscall.SIGCONT) // it is adopted soon
	}
	if err != nil && !errors.Is(err, runtime.ErrNoInstance) {
		return err
	}
	entries, err := os.ReadDir(b.copiesDir(rec.GUID))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot list the snapshots: %w", err)
	}
	for _, d := range entries {
		if _, err := rec.snapshot(d.Name()); err == nil {
			continue
		}
		if err := os.RemoveAll(filepath.Join(b.copiesDir(rec.GUID), d.Name())); err != nil {
			return fmt.Errorf("cannot remove an unfinished copy: %w", err)
		}
	}
	_, err = b.change(rec.GUID, func(r *record) { r.Frozen = false })
	return err
}
