package check

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/fire/load"
)

// records returns the exit records of all apps by instance.
func records(ctx context.Context, s *Subject) (map[string][]v3.Crash, error) {
	found := map[string][]v3.Crash{}
	for _, a := range s.Apps {
		cs, err := s.World.Client.Processes().Crashes(ctx, a.GUID)
		if err != nil {
			return nil, err
		}
		for _, c := range cs {
			found[c.Instance] = append(found[c.Instance], c)
		}
	}
	return found, nil
}

// exitsRecorded compares the exit records, and their lines in the logs, with the faults
// that ended instances.
func exitsRecorded(ctx context.Context, s *Subject) error {
	all, err := records(ctx, s)
	if err != nil {
		return err
	}
	var errs []error
	for id, e := range s.Ledger.Endings() {
		unfinished, err := neverRan(s, id, all[id])
		if unfinished {
			continue // dewd was killed while it started the instance
		}
		errs = append(errs, err, recordOf(id, e, all[id]))
	}
	lines := map[string]int{}
	for _, f := range s.Followers {
		for id, n := range f.Exits() {
			// A finished deployment deletes the records of the generation before.
			if _, kept := all[id]; kept || s.Churn == nil || f.App() != s.Churn.App.Name {
				lines[id] += n
			}
		}
	}
	for id, cs := range all {
		if lines[id] != len(cs) {
			errs = append(errs, fmt.Errorf("instance %s has %d exit records and %d exit lines in the log", id, len(cs), lines[id]))
		}
		delete(lines, id)
	}
	for id, n := range lines {
		errs = append(errs, fmt.Errorf("instance %s has %d exit lines in the log and no exit record", id, n))
	}
	return errors.Join(errs...)
}

// neverRan reports whether an instance without exit records is one that dewd did not
// finish starting.
func neverRan(s *Subject, id string, cs []v3.Crash) (bool, error) {
	if len(cs) > 0 {
		return false, nil
	}
	return s.World.Unfinished(id)
}

// recordOf checks the exit record of an instance that a fault ended.
func recordOf(id string, e load.Ending, cs []v3.Crash) error {
	if len(cs) == 0 && e.Maybe {
		return nil
	}
	if len(cs) != 1 {
		return fmt.Errorf("instance %s has %d exit records after %q, want 1", id, len(cs), e.Fault)
	}
	c := cs[0]
	if !slices.Contains(e.Cause, c.First.Cause) || !e.AnyProcess && (c.First.Sidecar != "") != e.Sidecar {
		return fmt.Errorf("the exit record of instance %s after %q is %q (cause %s), want cause %v and the right process", id, e.Fault, c.Description, c.First.Cause, e.Cause)
	}
	if !c.Complete {
		return fmt.Errorf("the exit record of instance %s is not complete", id)
	}
	return nil
}

// nobodyElseEnded fails if an instance ended that no fault has touched.
func nobodyElseEnded(ctx context.Context, s *Subject) error {
	all, err := records(ctx, s)
	if err != nil {
		return err
	}
	running := map[string]bool{}
	for _, in := range s.World.Running() {
		running[in.ID] = true
	}
	endings := s.Ledger.Endings()
	var errs []error
	for id, slot := range s.Ledger.Seen() {
		if _, meant := endings[id]; running[id] || meant {
			continue
		}
		unfinished, err := neverRan(s, id, all[id])
		if unfinished {
			continue
		}
		why := "it has no exit record"
		if cs := all[id]; len(cs) > 0 {
			why = cs[0].Description
		} else if s.Churn != nil && slot.App == s.Churn.App.Name {
			continue // a deployment ended it
		}
		errs = append(errs, err, fmt.Errorf("instance %s of %s ended without a fault: %s", id, slot, why))
	}
	return errors.Join(errs...)
}
