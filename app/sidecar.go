package app

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/store"
)

// Where a sidecar comes from.
const (
	OriginUser      = "user"
	OriginBuildpack = "buildpack"
)

// Sidecar is the wish for a process that runs in the containers of one or more
// process types, and ends when they end.
type Sidecar struct {
	GUID         string    `json:"guid"`
	App          string    `json:"app"` // guid
	Name         string    `json:"name"`
	Command      string    `json:"command"`
	ProcessTypes []string  `json:"process_types"`
	MemoryMB     int       `json:"memory_mb,omitempty"` // 0: not declared
	Origin       string    `json:"origin"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

func (s Sidecar) clone() Sidecar {
	s.ProcessTypes = slices.Clone(s.ProcessTypes)
	return s
}

func (s Sidecar) attaches(processType string) bool {
	return slices.Contains(s.ProcessTypes, processType)
}

// upperName is the name as log lines and exit records have it. Two names of an app
// that differ only in case could not be told apart there.
func (s Sidecar) upperName() string { return strings.ToUpper(s.Name) }

func sameName(a, b string) bool {
	return Sidecar{Name: a}.upperName() == Sidecar{Name: b}.upperName()
}

// sidecarDiffers tells whether a container of the process type would differ. A
// sidecar that is not there is the zero Sidecar: it attaches to nothing.
func sidecarDiffers(old, s Sidecar, processType string) bool {
	if !old.attaches(processType) && !s.attaches(processType) {
		return false
	}
	return old.attaches(processType) != s.attaches(processType) ||
		old.Name != s.Name ||
		old.Command != s.Command ||
		old.MemoryMB != s.MemoryMB
}

// declaredMB is the memory that the sidecars of a process type declare together.
func declaredMB(sidecars []Sidecar, processType string) int {
	sum := 0
	for _, s := range sidecars {
		if s.attaches(processType) {
			sum += s.MemoryMB
		}
	}
	return sum
}

// PutSidecar keeps s in the place of the sidecar with its guid, or as a new one.
func (r *Registry) PutSidecar(s Sidecar) (Sidecar, error) {
	s = s.clone()
	err := r.update(func(r *Registry) (err error) {
		s, err = r.putSidecar(s)
		return err
	})
	return s, err
}

// UpdateSidecar changes a sidecar in one transaction.
func (r *Registry) UpdateSidecar(guid string, fn func(s *Sidecar) error) (s Sidecar, err error) {
	err = r.update(func(r *Registry) error {
		if s, err = r.Sidecar(guid); err != nil {
			return err
		}
		if err := fn(&s); err != nil {
			return err
		}
		s.GUID = guid
		s, err = r.putSidecar(s)
		return err
	})
	return s, err
}

// Sidecar returns the sidecar with guid.
func (r *Registry) Sidecar(guid string) (Sidecar, error) { return get(r.sidecars, "sidecar", guid) }

// Sidecars returns the sidecars of an app by name.
func (r *Registry) Sidecars(app string) ([]Sidecar, error) {
	ss, err := r.sidecars.By("app", app)
	if err != nil {
		return nil, fmt.Errorf("cannot list sidecars of app %s: %w", app, err)
	}
	slices.SortFunc(ss, func(a, b Sidecar) int { return cmp.Compare(a.Name, b.Name) })
	return ss, nil
}

// SidecarsOf returns the sidecars that attach to a process type, by name.
func (r *Registry) SidecarsOf(app, processType string) ([]Sidecar, error) {
	ss, err := r.Sidecars(app)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ss, func(s Sidecar) bool { return !s.attaches(processType) }), nil
}

// DeleteSidecar removes a sidecar.
func (r *Registry) DeleteSidecar(guid string) error {
	return r.update(func(r *Registry) error {
		old, err := r.Sidecar(guid)
		if err != nil {
			return err
		}
		if err := r.sidecars.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete sidecar %s: %w", guid, err)
		}
		return r.sidecarChanged(old, Sidecar{App: old.App})
	})
}

func (r *Registry) putSidecar(s Sidecar) (Sidecar, error) {
	processes, err := r.Processes(s.App)
	if err != nil {
		return s, err
	}
	others, err := r.Sidecars(s.App)
	if err != nil {
		return s, err
	}
	others = slices.DeleteFunc(others, func(o Sidecar) bool { return o.GUID == s.GUID })
	return r.keepSidecar(s, func(s Sidecar) error { return checkSidecarMemory(s, others, processes) })
}

// keepSidecar is to putSidecar what keepProcess is to putProcess.
func (r *Registry) keepSidecar(s Sidecar, rules ...func(s Sidecar) error) (Sidecar, error) {
	if _, err := r.App(s.App); err != nil {
		return s, err
	}
	if s.GUID == "" {
		s.GUID = uuid.NewString()
	}
	old, err := find(r.sidecars, s.GUID)
	if err != nil {
		return s, err
	}
	s.Origin = cmp.Or(s.Origin, old.Origin, OriginUser)
	s.UpdatedAt = now()
	s.CreatedAt = s.UpdatedAt
	if old.GUID != "" {
		s.CreatedAt = old.CreatedAt
	}
	errs := []error{checkSidecar(s), checkSidecarApp(old, s)}
	for _, rule := range rules {
		errs = append(errs, rule(s))
	}
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	err = r.sidecars.Put(s.GUID, s)
	if errors.Is(err, store.ErrTaken) {
		return s, &Invalid{Key: sidecarKey(s, "name"), Message: "another sidecar of the app has this name (capitals do not count): choose another one"}
	}
	if err != nil {
		return s, fmt.Errorf("cannot keep sidecar %s: %w", s.GUID, err)
	}
	return s, r.sidecarChanged(old, s)
}

// sidecarChanged gives a new version to the processes whose containers differ by
// the change.
func (r *Registry) sidecarChanged(old, s Sidecar) error {
	ps, err := r.Processes(s.App)
	if err != nil {
		return err
	}
	for _, p := range ps {
		if !sidecarDiffers(old, s, p.Type) {
			continue
		}
		if err := r.processes.Put(p.GUID, p.changed(uuid.NewString())); err != nil {
			return fmt.Errorf("cannot keep process %s: %w", p.GUID, err)
		}
	}
	return nil
}
