package registry

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dewrun/dew/app"
)

// flags are all that the platform knows, as they are when nobody has switched
// them. What does not exist here is off and stays so.
var flags = []app.Flag{
	{Name: app.FlagBitsUpload, Enabled: true},
	{Name: app.FlagScaling, Enabled: true},
	{Name: app.FlagDocker},
	{Name: app.FlagEnvVisibility, Enabled: true},
	{Name: app.FlagHideMarket},
	{Name: app.FlagPrivateDomains, Enabled: true},
	{Name: app.FlagResourceMatch, Enabled: true},
	{Name: app.FlagRouteCreation, Enabled: true},
	{Name: app.FlagRouteSharing},
	{Name: app.FlagServiceCreation, Enabled: true},
	{Name: app.FlagServiceSharing},
	{Name: app.FlagSetRoles, Enabled: true},
	{Name: app.FlagSpaceEnv, Enabled: true},
	{Name: app.FlagSpaceBrokers, Enabled: true},
	{Name: app.FlagTaskCreation, Enabled: true},
	{Name: "unset_roles_by_username", Enabled: true, Fixed: "roles are taken away by their guid"},
	{Name: app.FlagUserOrgCreation},
}

// Flags returns all feature flags by name, as they are now.
func (r *Registry) Flags() ([]app.Flag, error) {
	kept, err := r.flags.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list feature flags: %w", err)
	}
	out := slices.Clone(flags)
	for i, f := range out {
		j := slices.IndexFunc(kept, func(k app.Flag) bool { return k.Name == f.Name })
		if j >= 0 && f.Fixed == "" {
			out[i] = kept[j]
		}
	}
	slices.SortFunc(out, func(a, b app.Flag) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Flag returns the feature flag with the name.
func (r *Registry) Flag(name string) (app.Flag, error) {
	i := slices.IndexFunc(flags, func(f app.Flag) bool { return f.Name == name })
	if i < 0 {
		return app.Flag{}, fmt.Errorf("feature flag %s: %w", name, app.ErrNotFound)
	}
	if flags[i].Fixed != "" {
		return flags[i], nil
	}
	kept, err := find(r.flags, name)
	if err != nil {
		return app.Flag{}, fmt.Errorf("cannot read feature flag %s: %w", name, err)
	}
	if kept.Name == "" {
		return flags[i], nil
	}
	return kept, nil
}

// UpdateFlag switches a feature. One that is fixed can only be set to what it is.
func (r *Registry) UpdateFlag(name string, fn func(f *app.Flag)) (f app.Flag, err error) {
	err = r.update(func(r *Registry) error {
		if f, err = r.Flag(name); err != nil {
			return err
		}
		old := f
		fn(&f)
		f.Name, f.Fixed = old.Name, old.Fixed
		if old.Fixed != "" {
			if f.Enabled == old.Enabled && f.Message == old.Message {
				return nil
			}
			return &app.Invalid{Key: name, Message: "cannot be switched: " + old.Fixed}
		}
		f.UpdatedAt = app.Now()
		if err := r.flags.Put(name, f); err != nil {
			return fmt.Errorf("cannot keep feature flag %s: %w", name, err)
		}
		return nil
	})
	return f, err
}

// Notes returns the metadata of something built in, such as a stack.
func (r *Registry) Notes(guid string) (app.Metadata, error) {
	m, err := find(r.notes, guid)
	if err != nil {
		return m, fmt.Errorf("cannot read metadata of %s: %w", guid, err)
	}
	return m, nil
}

// UpdateNotes changes the metadata of something built in.
func (r *Registry) UpdateNotes(guid string, c app.MetadataChange) (m app.Metadata, err error) {
	err = r.update(func(r *Registry) error {
		if m, err = r.Notes(guid); err != nil {
			return err
		}
		m = m.Merge(c)
		if err := m.Validate(); err != nil {
			return err
		}
		if err := r.notes.Put(guid, m); err != nil {
			return fmt.Errorf("cannot keep metadata of %s: %w", guid, err)
		}
		return nil
	})
	return m, err
}
