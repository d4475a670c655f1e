package runtime

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/store"
)

// ExitLog stores the newest exit records of every slot. A method that returns no error
// has written its changes to disk.
type ExitLog struct {
	db      *store.DB
	records store.Bucket[ExitRecord]
	kept    uint64 // per slot
}

// DefaultCrashRecords is the default number of exit records per slot. It is enough for
// the visible history of a crash loop, and small enough for thousands of slots.
const DefaultCrashRecords = 100

// NewExitLog opens the exit records in db. It stores the newest kept records of every
// slot; kept 0 means DefaultCrashRecords.
func NewExitLog(db *store.DB, kept int) *ExitLog {
	if kept <= 0 {
		kept = DefaultCrashRecords
	}
	return &ExitLog{db: db, records: store.In[ExitRecord](db, "exits"), kept: uint64(kept)}
}

// Add stores a new record, sets its number and deletes the oldest records over the
// limit. If the newest record of the slot is of the same instance, Add replaces it: a
// write can take effect and report an error, and the caller then tries again.
func (l *ExitLog) Add(r ExitRecord) (ExitRecord, error) {
	err := l.db.Update(func(tx *store.Tx) error {
		records := l.records.With(tx)
		// A crash must not require reading all records of the slot.
		last, err := records.Last(slotPrefix(r.Slot))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		r.Number = last.Number + 1
		if r.Instance != "" && last.Instance == r.Instance {
			r.Number, r.CountReset = last.Number, r.CountReset || last.CountReset
		}
		if err := l.trim(records, r); err != nil {
			return err
		}
		return records.Put(recordKey(r.Slot, r.Number), r)
	})
	if err != nil {
		return r, fmt.Errorf("cannot store exit record of instance %s: %w", r.Instance, err)
	}
	return r, nil
}

// trim deletes the records over the limit. Numbers have no gaps, so each new record
// replaces one; more are deleted only after the limit was lowered.
func (l *ExitLog) trim(records store.Bucket[ExitRecord], added ExitRecord) error {
	if added.Number <= l.kept {
		return nil
	}
	for n := added.Number - l.kept; n > 0; n-- {
		key := recordKey(added.Slot, n)
		if _, err := records.Get(key); errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err := records.Delete(key); err != nil {
			return err
		}
	}
	return nil
}

// Replace overwrites the record that has the same number as r. A record that Add has
// deleted since then stays deleted, and a crash count that was reset since then stays
// reset.
func (l *ExitLog) Replace(r ExitRecord) error {
	_, err := l.records.Update(recordKey(r.Slot, r.Number), func(v *ExitRecord) error {
		r.CountReset = r.CountReset || v.CountReset
		*v = r
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("cannot complete exit record of instance %s: %w", r.Instance, err)
	}
	return nil
}

// ResetCount resets the crash count of the slot.
func (l *ExitLog) ResetCount(id SlotID) error {
	r, ok, err := l.Newest(id)
	if err != nil || !ok || r.CountReset {
		return err
	}
	r.CountReset = true
	return l.Replace(r)
}

// Newest returns the slot's last record, if it has one.
func (l *ExitLog) Newest(id SlotID) (r ExitRecord, ok bool, err error) {
	r, err = l.records.Last(slotPrefix(id))
	if errors.Is(err, store.ErrNotFound) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("cannot read the newest exit record: %w", err)
	}
	return r, true, nil
}

// Slot returns the records of one slot, oldest first.
func (l *ExitLog) Slot(id SlotID) ([]ExitRecord, error) {
	return l.read(slotPrefix(id))
}

// Process returns the records of all slots of a process, slot by slot, each
// oldest first.
func (l *ExitLog) Process(process string) ([]ExitRecord, error) {
	return l.read(process + "/")
}

// Processes returns the guids of the processes that have records.
func (l *ExitLog) Processes() ([]string, error) {
	rs, err := l.read("")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range rs { // the records are sorted by key, so equal guids are adjacent
		if len(out) == 0 || out[len(out)-1] != r.Slot.Process {
			out = append(out, r.Slot.Process)
		}
	}
	return out, nil
}

// Remove deletes the records of a process that no longer exists.
func (l *ExitLog) Remove(process string) error {
	err := l.db.Update(func(tx *store.Tx) error {
		records := l.records.With(tx)
		rs, err := records.Prefix(process + "/")
		if err != nil {
			return err
		}
		for _, r := range rs {
			if err := records.Delete(recordKey(r.Slot, r.Number)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot remove exit records of process %s: %w", process, err)
	}
	return nil
}

// RemoveGenerations deletes the records of the generations of a process for which drop
// returns true.
func (l *ExitLog) RemoveGenerations(process string, drop func(generation int) bool) error {
	rs, err := l.Process(process)
	if err != nil {
		return err
	}
	rs = slices.DeleteFunc(rs, func(r ExitRecord) bool { return !drop(r.Slot.Generation) })
	if len(rs) == 0 {
		return nil
	}
	err = l.db.Update(func(tx *store.Tx) error {
		for _, r := range rs {
			if err := l.records.With(tx).Delete(recordKey(r.Slot, r.Number)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot remove exit records of process %s: %w", process, err)
	}
	return nil
}

func (l *ExitLog) read(prefix string) ([]ExitRecord, error) {
	rs, err := l.records.Prefix(prefix)
	if err != nil {
		return nil, fmt.Errorf("cannot read exit records of %s: %w", strings.TrimSuffix(prefix, "/"), err)
	}
	return rs, nil
}

// slotPrefix returns the key prefix of a slot. It ends with a slash, because otherwise
// slot 1 would find the records of slot 10.
func slotPrefix(id SlotID) string {
	return fmt.Sprintf("%s/%08d/%08d/", id.Process, id.Generation, id.Index)
}

func recordKey(id SlotID, number uint64) string {
	return fmt.Sprintf("%s%020d", slotPrefix(id), number)
}

// Listen calls fn with every record that is added or completed, after it is on disk. fn
// should be quick, because the next writer waits for it.
func (l *ExitLog) Listen(fn func(r ExitRecord)) {
	l.records.Listen(func(key string) {
		if r, err := l.records.Get(key); err == nil { // it can have been deleted since then
			fn(r)
		}
	})
}

// Watch calls fn with the slot and the number of every record that is added, completed
// or deleted, after the change is on disk. The record is nil if it was deleted. fn
// should be quick, because the next writer waits for it.
func (l *ExitLog) Watch(fn func(id SlotID, number uint64, r *ExitRecord)) {
	l.records.Listen(func(key string) {
		id, number, ok := parseRecordKey(key)
		if !ok {
			return
		}
		switch r, err := l.records.Get(key); {
		case err == nil:
			fn(id, number, &r)
		case errors.Is(err, store.ErrNotFound):
			fn(id, number, nil)
		}
	})
}

// parseRecordKey is the inverse of recordKey.
func parseRecordKey(key string) (id SlotID, number uint64, ok bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 4 {
		return id, 0, false
	}
	generation, gerr := strconv.Atoi(parts[1])
	index, ierr := strconv.Atoi(parts[2])
	number, nerr := strconv.ParseUint(parts[3], 10, 64)
	return SlotID{Process: parts[0], Generation: generation, Index: index}, number, gerr == nil && ierr == nil && nerr == nil
}
