package builtin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services"
)

// Snapshot is a copy of the data of an instance at one point in time.
type Snapshot struct {
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	Bytes     int64     `json:"bytes"`
}

// MaxSnapshots is the maximum number of snapshots of an instance.
const MaxSnapshots = 10

const (
	copyLimit   = 10 * time.Minute // less than the time a frozen server waits
	frozenWord  = "frozen"
	newSuffix   = ".new"
	snapshotFmt = "20060102-150405"
)

// Snapshots lists the snapshots of an instance, oldest first.
func (b *snapshots) Snapshots(instance string) ([]Snapshot, error) {
	rec, err := b.get(instance)
	if err != nil {
		return nil, err
	}
	return rec.Snapshots, nil
}

// Snapshot copies the data of an instance. The server is frozen during the copy, which
// is short if the file system can share blocks; its clients only wait. The copy has the
// data that a power failure at that moment would leave.
func (b *snapshots) Snapshot(ctx context.Context, instance string) (Snapshot, error) {
	rec, unlock, err := b.lockReady(ctx, instance)
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock()
	if len(rec.Snapshots) >= MaxSnapshots {
		return Snapshot{}, refusal(http.StatusUnprocessableEntity, "this service instance already has %d snapshots; delete one first", len(rec.Snapshots))
	}
	if err := b.waitReady(ctx, rec, startTimeout); err != nil {
		return Snapshot{}, err
	}
	bytes, err := b.sizeToCopy(ctx, rec)
	if err != nil {
		return Snapshot{}, err
	}
	if e, ok := engineOf(rec.Engine); ok && e.checkpoint != "" {
		if _, err := b.statements(ctx, rec, e.checkpoint); err != nil {
			return Snapshot{}, fmt.Errorf("cannot prepare the server for a copy: %w", err)
		}
	}
	s := Snapshot{ID: snapshotID(rec, time.Now()), CreatedAt: time.Now().UTC(), Bytes: bytes}
	if err := b.copyFrozen(ctx, rec, s); err != nil {
		return Snapshot{}, errors.Join(err, b.removeCopy(ctx, rec, s.ID))
	}
	return s, nil
}

// removeCopy removes a copy that is not a snapshot of the record.
func (b *snapshots) removeCopy(ctx context.Context, rec record, id string) error {
	if b.inCluster() {
		return b.keepCopies(ctx, rec)
	}
	return os.RemoveAll(filepath.Join(b.copiesDir(rec.GUID), id))
}

// copyData copies the data of a frozen server.
func (b *snapshots) copyData(ctx context.Context, rec record, id string) error {
	if b.inCluster() {
		_, err := b.session(ctx, rec.GUID, "", "copy", id)
		return err
	}
	if err := makeDir(b.copiesDir(rec.GUID)); err != nil {
		return err
	}
	return copyTree(ctx, b.data(rec.GUID), filepath.Join(b.copiesDir(rec.GUID), id))
}

// snapshotID returns the time, with a number appended if that id exists.
func snapshotID(rec record, now time.Time) string {
	base := now.UTC().Format(snapshotFmt)
	id := base
	for n := 2; slices.ContainsFunc(rec.Snapshots, func(s Snapshot) bool { return s.ID == id }); n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	return id
}

func (b *snapshots) data(guid string) string { return filepath.Join(b.storeDir(guid), "data") }

// lockReady locks an instance that has a server.
func (b *snapshots) lockReady(ctx context.Context, instance string) (record, func(), error) {
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

// copyFrozen copies the data to a new folder while the server is frozen. One commit
// records both the snapshot and the end of the freeze, so that no copy is left without
// a record.
func (b *snapshots) copyFrozen(ctx context.Context, rec record, s Snapshot) error {
	if _, err := b.change(rec.GUID, func(r *record) { r.Frozen = true }); err != nil {
		return err
	}
	err := b.whileFrozen(ctx, rec.GUID, func(ctx context.Context) error { return b.copyData(ctx, rec, s.ID) })
	if err != nil {
		err = fmt.Errorf("cannot copy the data: %w", err)
	}
	_, cerr := b.change(rec.GUID, func(r *record) {
		r.Frozen = false
		if err == nil {
			r.Snapshots = append(r.Snapshots, s)
		}
	})
	return errors.Join(err, cerr)
}

// whileFrozen runs fn while the server is frozen.
func (b *snapshots) whileFrozen(ctx context.Context, guid string, fn func(ctx context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, copyLimit)
	defer cancel()
	s, err := b.c.Host.Exec(ctx, runtime.ExecTarget{Process: guid},
		runtime.ExecSpec{Kind: runtime.ExecCommand, Command: scriptCommand("freeze")})
	if err != nil {
		return err
	}
	defer func() {
		// Closing its input thaws the server. SIGCONT makes sure of that.
		thaw, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
		defer cancel()
		ierr := s.Streams().In.Close()
		_, werr := s.Wait(thaw)
		err = errors.Join(err, ierr, werr, s.Close(), b.c.Host.Signal(thaw, guid, 0, "", runtime.SentSignal{Number: int(syscall.SIGCONT)}))
	}()
	firstLine := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReaderSize(s.Streams().Out, 256).ReadString('\n') // without a line, the word is empty
		firstLine <- strings.TrimSpace(line)
	}()
	select {
	case word := <-firstLine:
		if word != frozenWord {
			return errors.New("cannot freeze the server")
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return fn(ctx)
}

// DropSnapshot removes a snapshot.
func (b *snapshots) DropSnapshot(ctx context.Context, instance, id string) error {
	rec, unlock, err := b.lockReady(ctx, instance)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := rec.snapshot(id); err != nil {
		return err
	}
	if b.inCluster() { // only a running server can remove it
		if err := b.waitReady(ctx, rec, startTimeout); err != nil {
			return err
		}
	}
	rec, err = b.change(rec.GUID, func(r *record) {
		r.Snapshots = slices.DeleteFunc(r.Snapshots, func(s Snapshot) bool { return s.ID == id })
	})
	if err != nil {
		return err
	}
	if err := b.removeCopy(ctx, rec, id); err != nil {
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

// Folders of an instance during a restore. The server cannot access them.
const (
	copyDir  = "restored" // the copy, before it becomes the data
	oldDir   = "before"   // the previous data, while the copy is tried
	trashDir = "trash"    // folders to delete
)

func (b *snapshots) tempDir(guid, dir string) string { return filepath.Join(b.home(guid), dir) }

// Restore restores the data of an instance from a snapshot. The server is stopped
// during that. All current bindings work afterwards. Users in the snapshot without a
// current binding are dropped. If it fails, the data is unchanged.
func (b *snapshots) Restore(ctx context.Context, instance, id string) error {
	rec, unlock, err := b.lockReady(ctx, instance)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := rec.snapshot(id)
	if err != nil {
		return err
	}
	if err := b.checkRestore(ctx, rec, s); err != nil {
		return err
	}
	if rec, err = b.change(rec.GUID, func(r *record) { r.Restoring, r.Version, r.Replace = true, newVersion(), id }); err != nil {
		return err
	}
	if err := b.replaceData(ctx, rec, id); err != nil {
		return errors.Join(err, b.rollBack(ctx, rec))
	}
	if err := b.tryRestored(ctx, rec); err != nil {
		return errors.Join(err, b.rollBack(ctx, rec))
	}
	return b.finishRestore(ctx, rec.GUID)
}

// checkRestore checks that there is space for a copy of the snapshot. A volume whose
// server does not run is not measured: a snapshot must also restore damaged data.
func (b *snapshots) checkRestore(ctx context.Context, rec record, s Snapshot) error {
	if !b.inCluster() {
		if err := b.checkDisk(s.Bytes); err != nil {
			return refusal(http.StatusInsufficientStorage, "%v", err)
		}
		return nil
	}
	if st, found := b.status(rec); !found || st.State != runtime.Running {
		return nil
	}
	_, free, err := b.volumeSize(ctx, rec.GUID)
	if err == nil {
		err = checkVolume(free, s.Bytes)
	}
	return err
}

// replaceData replaces the data with a copy of the snapshot, while the server is
// stopped. In a cluster, the next server does that before it starts.
func (b *snapshots) replaceData(ctx context.Context, rec record, id string) error {
	if b.inCluster() {
		return nil
	}
	restored := b.tempDir(rec.GUID, copyDir)
	if err := os.RemoveAll(restored); err != nil {
		return fmt.Errorf("cannot remove an earlier copy: %w", err)
	}
	if err := copyTree(ctx, filepath.Join(b.copiesDir(rec.GUID), id), restored); err != nil {
		return err
	}
	if err := b.stopServer(ctx, rec); err != nil {
		return err
	}
	if err := b.resetUsers(rec, restored); err != nil {
		return err
	}
	// Missing data is not an error: a snapshot must also restore lost data.
	if err := os.Rename(b.data(rec.GUID), b.tempDir(rec.GUID, oldDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot rename the folder of the old data: %w", err)
	}
	if err := os.Rename(restored, b.data(rec.GUID)); err != nil {
		return fmt.Errorf("cannot rename the folder of the restored data: %w", err)
	}
	return syncFS(b.home(rec.GUID))
}

// resetUsers gives restored Redis data the users of a new server. Redis cannot list
// the users that must be dropped.
func (b *snapshots) resetUsers(rec record, data string) error {
	if rec.Engine != redis.name {
		return nil
	}
	root, err := os.OpenRoot(data) // owned by the app user: nothing outside is written
	if err != nil {
		return fmt.Errorf("cannot open the copy: %w", err)
	}
	defer func() { _ = root.Close() }() // written files are closed explicitly
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

// tryRestored starts the server on restored data and creates the current users.
func (b *snapshots) tryRestored(ctx context.Context, rec record) error {
	if err := b.put(rec, rec.Shape); err != nil {
		return err
	}
	if err := b.waitReady(ctx, rec, b.c.Start); err != nil {
		return fmt.Errorf("the server does not start on the restored data: %w", err)
	}
	e, _ := engineOf(rec.Engine)
	text := e.prune(rec) + e.setupStatements(rec)
	for _, binding := range rec.Bindings {
		text += e.bind(rec, binding)
	}
	if e.full != nil {
		text += e.full(rec, rec.Full)
	}
	if text == "" {
		return nil
	}
	if _, err := b.statements(ctx, rec, text); err != nil {
		return fmt.Errorf("cannot create the users again: %w", err)
	}
	return nil
}

// finishRestore deletes the previous data after a restore. It disappears in one step,
// so that a partial folder is never mistaken for the data.
func (b *snapshots) finishRestore(ctx context.Context, guid string) error {
	if b.inCluster() {
		if _, err := b.session(ctx, guid, "", "discard"); err != nil {
			return fmt.Errorf("cannot remove the data from before the restore: %w", err)
		}
	} else if err := b.discard(guid, b.tempDir(guid, oldDir)); err != nil {
		return err
	}
	_, err := b.change(guid, func(r *record) { r.Restoring, r.Replace = false, "" })
	return err
}

// discard removes a folder in one atomic step.
func (b *snapshots) discard(guid, dir string) error {
	trash := b.tempDir(guid, trashDir)
	err := os.RemoveAll(trash)
	if err == nil {
		err = os.Rename(dir, trash)
	}
	if err == nil {
		err = errors.Join(syncFS(b.home(guid)), os.RemoveAll(trash))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot remove %s: %w", dir, err)
	}
	return nil
}

// stopServer stops the server and changes nothing else.
func (b *snapshots) stopServer(ctx context.Context, rec record) error {
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
	return b.waitStopped(ctx, rec.GUID)
}

// rollBack undoes an unfinished restore: it brings the previous data back and starts
// the server.
func (b *snapshots) rollBack(ctx context.Context, rec record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	if err := b.bringBack(ctx, rec); err != nil {
		return err
	}
	rec, err := b.change(rec.GUID, func(r *record) {
		r.Restoring, r.Version, r.Replace = false, newVersion(), ""
		if b.inCluster() { // the next server brings the previous data back
			r.Replace = replaceUndo
		}
	})
	if err != nil {
		return err
	}
	return b.put(rec, rec.Shape)
}

// bringBack moves the data from before a restore back to its place.
func (b *snapshots) bringBack(ctx context.Context, rec record) error {
	if b.inCluster() {
		return nil
	}
	if _, err := os.Lstat(b.tempDir(rec.GUID, oldDir)); err == nil {
		if err := b.stopServer(ctx, rec); err != nil {
			return err
		}
		if err := b.discard(rec.GUID, b.data(rec.GUID)); err != nil {
			return err
		}
		if err := os.Rename(b.tempDir(rec.GUID, oldDir), b.data(rec.GUID)); err != nil {
			return fmt.Errorf("cannot restore the data from before the operation: %w", err)
		}
	}
	for _, dir := range []string{copyDir, copyDir + newSuffix, trashDir} {
		if err := os.RemoveAll(b.tempDir(rec.GUID, dir)); err != nil {
			return fmt.Errorf("cannot remove the copy: %w", err)
		}
	}
	return nil
}

// recover cleans up after an earlier daemon: a frozen server, an unfinished restore, or
// an unfinished copy.
func (b *snapshots) recover(ctx context.Context, rec record) {
	if !rec.Frozen && !rec.Restoring {
		return
	}
	b.running.Go(func() {
		for n := 1; ; n++ {
			err := b.recoverOnce(ctx, rec.GUID)
			if ctx.Err() != nil {
				return // the next daemon tries again
			}
			b.recordAttempt(rec.GUID, err)
			if err == nil {
				return
			}
			b.c.Logger.Error("cannot undo an unfinished snapshot or restore; dewd tries again", "service_instance", rec.GUID, "err", err)
			if !wait(ctx, min(time.Duration(n)*time.Second, time.Minute)) {
				return
			}
		}
	})
}

func (b *snapshots) recoverOnce(ctx context.Context, guid string) error {
	unlock, err := b.lock(ctx, guid)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := b.get(guid) // the record may have changed before the lock was acquired
	if err == nil {
		err = b.undo(ctx, rec)
	}
	if errors.Is(err, services.ErrNotFound) {
		return nil
	}
	return err
}

func (b *snapshots) undo(ctx context.Context, rec record) error {
	switch {
	case rec.Restoring:
		return b.rollBack(ctx, rec)
	case !rec.Frozen:
		return nil
	}
	err := b.c.Host.Signal(ctx, rec.GUID, 0, "", runtime.SentSignal{Number: int(syscall.SIGCONT)})
	for n := 0; errors.Is(err, runtime.ErrNoInstance) && n < 60 && wait(ctx, maxPoll); n++ {
		err = b.c.Host.Signal(ctx, rec.GUID, 0, "", runtime.SentSignal{Number: int(syscall.SIGCONT)}) // the supervisor adopts it soon
	}
	if err != nil && !errors.Is(err, runtime.ErrNoInstance) {
		return err
	}
	if err := b.removeUnfinished(ctx, rec); err != nil {
		return err
	}
	_, err = b.change(rec.GUID, func(r *record) { r.Frozen = false })
	return err
}

// removeUnfinished removes copies that did not become snapshots.
func (b *snapshots) removeUnfinished(ctx context.Context, rec record) error {
	if b.inCluster() {
		if err := b.waitReady(ctx, rec, startTimeout); err != nil {
			return err
		}
		return b.keepCopies(ctx, rec)
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
	return nil
}
