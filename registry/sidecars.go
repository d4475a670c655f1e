package registry

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// PutSidecar stores s: it replaces the sidecar with the same guid, or creates one.
func (r *AppStore) PutSidecar(s app.Sidecar) (app.Sidecar, error) {
	s = s.Clone()
	err := r.update(func(r *Registry) (err error) {
		s, err = r.putSidecar(s)
		return err
	})
	return s, err
}

// UpdateSidecar changes a sidecar in one transaction.
func (r *AppStore) UpdateSidecar(guid string, fn func(s *app.Sidecar) error) (s app.Sidecar, err error) {
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
func (r *AppStore) Sidecar(guid string) (app.Sidecar, error) { return get(r.sidecars, "sidecar", guid) }

// Sidecars returns the sidecars of an app by name.
func (r *AppStore) Sidecars(appGUID string) ([]app.Sidecar, error) {
	ss, err := r.sidecars.By("app", appGUID)
	if err != nil {
		return nil, fmt.Errorf("cannot list sidecars of app %s: %w", appGUID, err)
	}
	slices.SortFunc(ss, func(a, b app.Sidecar) int { return cmp.Compare(a.Name, b.Name) })
	return ss, nil
}

// SidecarsOf returns the sidecars that attach to a process type, by name.
func (r *AppStore) SidecarsOf(appGUID, processType string) ([]app.Sidecar, error) {
	ss, err := r.Sidecars(appGUID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ss, func(s app.Sidecar) bool { return !s.AttachesTo(processType) }), nil
}

// DeleteSidecar deletes a sidecar.
func (r *AppStore) DeleteSidecar(guid string) error {
	return r.update(func(r *Registry) error {
		old, err := r.Sidecar(guid)
		if err != nil {
			return err
		}
		if err := r.sidecars.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete sidecar %s: %w", guid, err)
		}
		return r.sidecarChanged(old, app.Sidecar{App: old.App})
	})
}

func (r *AppStore) putSidecar(s app.Sidecar) (app.Sidecar, error) {
	processes, err := r.Processes(s.App)
	if err != nil {
		return s, err
	}
	others, err := r.Sidecars(s.App)
	if err != nil {
		return s, err
	}
	others = slices.DeleteFunc(others, func(o app.Sidecar) bool { return o.GUID == s.GUID })
	return r.keepSidecar(s, func(s app.Sidecar) error { return app.ValidateSidecarMemory(s, others, processes) })
}

// keepSidecar is putSidecar without the rules about processes, for callers that change
// both.
func (r *AppStore) keepSidecar(s app.Sidecar, rules ...func(s app.Sidecar) error) (app.Sidecar, error) {
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
	s.Origin = cmp.Or(s.Origin, old.Origin, app.OriginUser)
	s.UpdatedAt = app.Now()
	s.CreatedAt = s.UpdatedAt
	if old.GUID != "" {
		s.CreatedAt = old.CreatedAt
	}
	errs := []error{app.ValidateSidecar(s), checkSidecarApp(old, s)}
	for _, rule := range rules {
		errs = append(errs, rule(s))
	}
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	err = r.sidecars.Put(s.GUID, s)
	if errors.Is(err, store.ErrTaken) {
		return s, &app.Invalid{Key: app.SidecarKey(s, "name"), Message: "another sidecar of the app has this name (case is ignored): choose another name"}
	}
	if err != nil {
		return s, fmt.Errorf("cannot store sidecar %s: %w", s.GUID, err)
	}
	return s, r.sidecarChanged(old, s)
}

// sidecarChanged gives a new version to the processes whose containers change with the
// sidecar.
func (r *AppStore) sidecarChanged(old, s app.Sidecar) error {
	ps, err := r.Processes(s.App)
	if err != nil {
		return err
	}
	for _, p := range ps {
		if !sidecarDiffers(old, s, p.Type) {
			continue
		}
		if err := r.processes.Put(p.GUID, p.WithVersion(uuid.NewString())); err != nil {
			return fmt.Errorf("cannot store process %s: %w", p.GUID, err)
		}
	}
	return nil
}

func checkSidecarApp(old, s app.Sidecar) error {
	if old.GUID == "" || old.App == s.App {
		return nil
	}
	return &app.Invalid{Key: app.SidecarKey(s, "app"), Message: "cannot be changed: a sidecar belongs to one app"}
}

// sameSidecars compares the fields that affect containers, without guids and times.
// Both lists are sorted by name.
func sameSidecars(a, b []app.Sidecar) bool {
	return slices.EqualFunc(a, b, func(a, b app.Sidecar) bool {
		return a.Name == b.Name && a.Command == b.Command && a.MemoryMB == b.MemoryMB &&
			reflect.DeepEqual(slices.Sorted(slices.Values(a.ProcessTypes)), slices.Sorted(slices.Values(b.ProcessTypes)))
	})
}

// replaceSidecars makes the sidecars of an app exactly the desired ones.
func (r *AppStore) replaceSidecars(appGUID string, desired []app.Sidecar) error {
	old, err := r.Sidecars(appGUID)
	if err != nil || sameSidecars(old, desired) {
		return err
	}
	for _, s := range old {
		if err := r.DeleteSidecar(s.GUID); err != nil {
			return err
		}
	}
	for _, s := range desired {
		s.GUID = ""
		if _, err := r.keepSidecar(s); err != nil {
			return err
		}
	}
	return nil
}

// sidecarDiffers reports whether a container of the process type would differ. A
// missing sidecar is the zero Sidecar, which attaches to nothing.
func sidecarDiffers(old, s app.Sidecar, processType string) bool {
	if !old.AttachesTo(processType) && !s.AttachesTo(processType) {
		return false
	}
	return old.AttachesTo(processType) != s.AttachesTo(processType) ||
		old.Name != s.Name ||
		old.Command != s.Command ||
		old.MemoryMB != s.MemoryMB
}
