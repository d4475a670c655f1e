package registry

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/app/routeoptions"
)

// SettingStore stores settings of the whole platform: feature flags, groups of
// environment variables, and metadata of built-in resources.
type SettingStore struct{ *tables }

// flags are all feature flags with their defaults.
var flags = []app.Flag{
	{Name: app.FlagBitsUpload, Enabled: true},
	{Name: app.FlagScaling, Enabled: true},
	{Name: app.FlagDocker},
	{Name: app.FlagEnvVisibility, Enabled: true},
	{Name: routeoptions.FeatureFlag},
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
	{Name: "unset_roles_by_username", Enabled: true, Fixed: "roles are always deleted by their guid"},
	{Name: app.FlagUserOrgCreation},
}

// Flags returns all feature flags by name, as they are now.
func (r *SettingStore) Flags() ([]app.Flag, error) {
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
func (r *SettingStore) Flag(name string) (app.Flag, error) {
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

// UpdateFlag changes a feature flag. A fixed one can only be set to its present value.
func (r *SettingStore) UpdateFlag(name string, fn func(f *app.Flag)) (f app.Flag, err error) {
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
			return &app.Invalid{Key: name, Message: "cannot be changed: " + old.Fixed}
		}
		f.UpdatedAt = app.Now()
		if err := r.flags.Put(name, f); err != nil {
			return fmt.Errorf("cannot store feature flag %s: %w", name, err)
		}
		return nil
	})
	return f, err
}

// Notes returns the metadata of a built-in resource, such as a stack.
func (r *SettingStore) Notes(guid string) (app.Metadata, error) {
	m, err := find(r.builtInMetadata, guid)
	if err != nil {
		return m, fmt.Errorf("cannot read metadata of %s: %w", guid, err)
	}
	return m, nil
}

// UpdateNotes changes the metadata of a built-in resource.
func (r *SettingStore) UpdateNotes(guid string, c app.MetadataChange) (m app.Metadata, err error) {
	err = r.update(func(r *Registry) error {
		if m, err = r.Notes(guid); err != nil {
			return err
		}
		m = m.Merge(c)
		if err := m.Validate(); err != nil {
			return err
		}
		if err := r.builtInMetadata.Put(guid, m); err != nil {
			return fmt.Errorf("cannot store metadata of %s: %w", guid, err)
		}
		return nil
	})
	return m, err
}

// EnvGroup returns the environment variable group with the name.
func (r *SettingStore) EnvGroup(name string) (app.EnvGroup, error) {
	if name != app.RunningGroup && name != app.StagingGroup {
		return app.EnvGroup{}, fmt.Errorf("environment variable group %s: %w", name, app.ErrNotFound)
	}
	g, err := find(r.envGroups, name)
	if err != nil {
		return g, fmt.Errorf("cannot read environment variable group %s: %w", name, err)
	}
	g.Name = name
	return g, nil
}

// UpdateEnvGroup sets variables of a group. A nil value removes a variable.
func (r *SettingStore) UpdateEnvGroup(name string, change map[string]*string) (g app.EnvGroup, err error) {
	err = r.update(func(r *Registry) error {
		if g, err = r.EnvGroup(name); err != nil {
			return err
		}
		g.Var = app.MergeTexts(g.Var, change)
		var ps app.Violations
		for _, k := range slices.Sorted(maps.Keys(g.Var)) {
			app.ValidateEnv(&ps, k, g.Var[k])
		}
		if err := ps.Err(); err != nil {
			return err
		}
		g.UpdatedAt = app.Now()
		if err := r.envGroups.Put(name, g); err != nil {
			return fmt.Errorf("cannot store environment variable group %s: %w", name, err)
		}
		return nil
	})
	return g, err
}

// WithGroup returns the variables of a group and of an app. Those of the app take
// precedence.
func (r *SettingStore) WithGroup(name string, env map[string]string) (map[string]string, error) {
	g, err := r.EnvGroup(name)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	maps.Copy(out, g.Var)
	maps.Copy(out, env)
	return out, nil
}
