package runtime

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dewrun/dew/store"
)

// ExitLog keeps the newest exit records of every slot. What it returned without
// an error is on disk.
type ExitLog struct {
	db      *store.DB
	records *store.Bucket[ExitRecord]
	kept    uint64 // per slot
}

// DefaultCrashRecords is how many exit records a slot keeps by default: enough for the
// visible history of a crash loop, little enough for thousands of slots.
const DefaultCrashRecords = 100

// NewExitLog opens the exit records in db, of which every slot keeps the newest;
// kept 0: DefaultCrashRecords.
func NewExitLog(db *store.DB, kept int) *ExitLog {
	if kept <= 0 {
		kept = DefaultCrashRecords
	}
	return &ExitLog{db: db, records: store.In[ExitRecord](db, "exits"), kept: uint64(kept)}
}

// Add keeps a new record, gives it its number and drops the oldest beyond the
// bound.
func (l *ExitLog) Add(r ExitRecord) (ExitRecord, error) {
	err := l.db.Update(func(tx *store.Tx) error {
		records := l.records.With(tx)
		// A crash must not cost the reading of a hundred others.
		last, err := records.Last(slotPrefix(r.Slot))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		r.Number = last.Number + 1
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

// trim drops the records that a new one leaves no room for. Numbers have no holes,
// so one goes for each that comes, and more only after the bound was lowered.
func (l *ExitLog) trim(records *store.Bucket[ExitRecord], added ExitRecord) error {
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

// Replace keeps r in the place of the record with the same number. One that the
// bound has dropped meanwhile stays dropped.
func (l *ExitLog) Replace(r ExitRecord) error {
	_, err := l.records.Update(recordKey(r.Slot, r.Number), func(v *ExitRecord) error {
		*v = r
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("cannot complete exit record of instance %s: %w", r.Instance, err)
	}
	return nil
}

// Forgive makes the count of the slot start over.
func (l *ExitLog) Forgive(id SlotID) error {
	r, ok, err := l.Newest(id)
	if err != nil || !ok || r.Forgiven {
		return err
	}
	r.Forgiven = true
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
	for _, r := range rs { // sorted by key: equal ones stand together
		if len(out) == 0 || out[len(out)-1] != r.Slot.Process {
			out = append(out, r.Slot.Process)
		}
	}
	return out, nil
}

// Remove drops the records of a process that is no more.
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

// RemoveGenerations drops the records of those generations of a process that drop
// names.
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

// slotPrefix ends with a slash: without it slot 1 would find the records of 10.
func slotPrefix(id SlotID) string {
	return fmt.Sprintf("%s/%08d/%08d/", id.Process, id.Generation, id.Index)
}

func recordKey(id SlotID, number uint64) string {
	return fmt.Sprintf("%s%020d", slotPrefix(id), number)
}

// Listen calls fn with every record that is added or completed, after it is on
// disk. fn should be quick: whoever writes the next one waits for it.
func (l *ExitLog) Listen(fn func(r ExitRecord)) {
	l.records.Listen(func(key string) {
		if r, err := l.records.Get(key); err == nil { // it may have been dropped meanwhile
			fn(r)
		}
	})
}
