package runtime

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dewrun/dew/store"
)

// keptRecords is how many exit records a slot keeps: enough for the whole of a
// crash loop's visible history, little enough for thousands of slots.
const keptRecords = 100

// ExitLog keeps the newest exit records of every slot. What it returned without
// an error is on disk.
type ExitLog struct {
	db      *store.DB
	records *store.Bucket[ExitRecord]
	heads   *store.Bucket[exitHead]
}

// exitHead says which records a slot has: a crash must not cost the reading of a
// hundred others.
type exitHead struct {
	Slot   SlotID `json:"slot"`
	Oldest uint64 `json:"oldest"`
	Newest uint64 `json:"newest"`
}

// NewExitLog opens the exit records in db.
func NewExitLog(db *store.DB) *ExitLog {
	return &ExitLog{
		db:      db,
		records: store.In[ExitRecord](db, "exits"),
		heads:   store.In[exitHead](db, "exit-heads"),
	}
}

// Add keeps a new record, gives it its number and drops the oldest beyond the
// bound.
func (l *ExitLog) Add(r ExitRecord) (ExitRecord, error) {
	err := l.db.Update(func(tx *store.Tx) error {
		records, heads := l.records.With(tx), l.heads.With(tx)
		h, err := heads.Get(slotPrefix(r.Slot))
		if errors.Is(err, store.ErrNotFound) {
			h, err = exitHead{Slot: r.Slot, Oldest: 1}, nil
		}
		if err != nil {
			return err
		}
		h.Newest++
		r.Number = h.Newest
		for ; h.Newest-h.Oldest >= keptRecords; h.Oldest++ {
			if err := records.Delete(recordKey(r.Slot, h.Oldest)); err != nil {
				return err
			}
		}
		if err := heads.Put(slotPrefix(r.Slot), h); err != nil {
			return err
		}
		return records.Put(recordKey(r.Slot, r.Number), r)
	})
	if err != nil {
		return r, fmt.Errorf("cannot store exit record of instance %s: %w", r.Instance, err)
	}
	return r, nil
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
	h, err := l.heads.Get(slotPrefix(id))
	if errors.Is(err, store.ErrNotFound) {
		return r, false, nil
	}
	if err == nil {
		r, err = l.records.Get(recordKey(id, h.Newest))
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
	hs, err := l.heads.All()
	if err != nil {
		return nil, fmt.Errorf("cannot read which slots have exit records: %w", err)
	}
	var out []string
	for _, h := range hs { // sorted by key: equal ones stand together
		if len(out) == 0 || out[len(out)-1] != h.Slot.Process {
			out = append(out, h.Slot.Process)
		}
	}
	return out, nil
}

// Remove drops the records of a process that is no more.
func (l *ExitLog) Remove(process string) error {
	err := l.db.Update(func(tx *store.Tx) error {
		records, heads := l.records.With(tx), l.heads.With(tx)
		hs, err := heads.Prefix(process + "/")
		if err != nil {
			return err
		}
		for _, h := range hs {
			for n := h.Oldest; n <= h.Newest; n++ {
				if err := records.Delete(recordKey(h.Slot, n)); err != nil {
					return err
				}
			}
			if err := heads.Delete(slotPrefix(h.Slot)); err != nil {
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
