package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cmd/dewd/doctor"
	"github.com/dewrun/dew/cmd/dewd/folders"
)

// retryEvery is the time between two attempts to repair problems.
const retryEvery = time.Minute

// setAsideFile is the list of the problems that dewd set aside, below the root. doctor
// reads it when no dewd runs.
const setAsideFile = "set-aside.json"

// setAside lists problems of single stacks, apps or services that cannot be repaired
// now. They do not prevent dewd from starting: dewd reports them and tries again.
type setAside struct {
	file string
	log  *slog.Logger

	trying sync.Mutex     // held during an attempt, taken before mu
	parts  []repairedPart // in the order of opening, guarded by trying

	mu   sync.Mutex    // reading the list does not wait for a repair
	list []v3.SetAside // result of the last attempt, guarded by mu, written with trying held as well
}

// repairedPart is a part of the daemon that can be partly damaged.
type repairedPart struct {
	name string
	// repair tries again. It returns one error, or several joined ones, for the
	// remaining problems.
	repair func() error
}

func newSetAside(root string, log *slog.Logger) *setAside {
	return &setAside{file: filepath.Join(root, setAsideFile), log: log}
}

// add adds a part. It is first repaired in the next attempt.
func (s *setAside) add(name string, repair func() error) {
	s.trying.Lock()
	defer s.trying.Unlock()
	s.parts = append(s.parts, repairedPart{name, repair})
}

// List returns a copy of the list.
func (s *setAside) List() []v3.SetAside {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// try tries to repair every part, and stores the remaining problems.
func (s *setAside) try() {
	s.trying.Lock()
	defer s.trying.Unlock()
	var list []v3.SetAside
	for _, p := range s.parts {
		for _, err := range eachError(p.repair()) {
			list = append(list, v3.SetAside{Part: p.name, Error: oneLine(err), Since: s.firstSeen(p.name, oneLine(err))})
		}
	}
	if slices.Equal(list, s.list) && s.isWritten() {
		return
	}
	for _, a := range list {
		if !slices.Contains(s.list, a) {
			s.log.Warn("cannot repair a damaged part: dewd set it aside and tries again every "+retryEvery.String(), "part", a.Part, "err", a.Error)
		}
	}
	s.mu.Lock()
	s.list = list
	s.mu.Unlock()
	if err := s.write(); err != nil {
		s.log.Warn("cannot store the list of parts that are set aside", "err", err)
	}
}

// firstSeen returns the time at which a problem was first seen.
func (s *setAside) firstSeen(part, text string) time.Time {
	for _, a := range s.list {
		if a.Part == part && a.Error == text {
			return a.Since
		}
	}
	return time.Now().UTC().Truncate(time.Second)
}

// isWritten reports whether the file agrees with the list.
func (s *setAside) isWritten() bool {
	kept, err := readSetAside(s.file)
	return err == nil && len(kept) == len(s.list)
}

// write stores the list for doctor. An empty list needs no file.
func (s *setAside) write() error {
	if len(s.list) == 0 {
		err := os.Remove(s.file)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	b, err := json.MarshalIndent(s.list, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the list of parts that are set aside: %w", err)
	}
	return folders.WriteDurably(s.file, strings.NewReader(string(b)+"\n"), 0o600)
}

// readSetAside reads the list of the last dewd on a root. It returns nothing if there
// is no such file.
func readSetAside(file string) ([]v3.SetAside, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []v3.SetAside
	err = json.Unmarshal(b, &list)
	return list, err
}

// eachError splits an error that errors.Join created.
func eachError(err error) []error {
	if err == nil {
		return nil
	}
	// Only the error itself: an error that wraps joined errors has additional text.
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, eachError(e)...)
	}
	return out
}

// run tries again regularly until ctx is done. It starts when ready is closed, because
// then dewd knows the instances of an earlier dewd.
func (s *setAside) run(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
	case <-ctx.Done():
		return nil
	}
	for {
		s.try()
		select {
		case <-time.After(retryEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// setAsideRule reports the list of the last dewd on a root.
func setAsideRule(root string) doctor.Finding {
	list, err := readSetAside(filepath.Join(root, setAsideFile))
	if err != nil {
		return doctor.Warn(oneLine(fmt.Errorf("cannot read the list of parts that dewd set aside: %w", err)), "run dewd doctor as root; a running dewd writes the file again")
	}
	if len(list) == 0 {
		return doctor.Good("nothing")
	}
	var texts []string
	for _, a := range list {
		texts = append(texts, a.Part+": "+a.Error)
	}
	return doctor.Warn(strings.Join(texts, "; "), "repair the named file or part; dewd tries again every "+retryEvery.String())
}
