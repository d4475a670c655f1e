package app

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Flag is a feature that an administrator may switch.
type Flag struct {
	Name      string    `json:"name"`
	Enabled   bool      `json:"enabled"`
	Message   string    `json:"message,omitempty"` // for who is refused
	UpdatedAt time.Time `json:"updated_at,omitzero"`

	// Fixed says why it cannot be switched; empty: it can.
	Fixed string `json:"-"`
}

// The feature flags that can be switched.
const (
	FlagBitsUpload      = "app_bits_upload"
	FlagScaling         = "app_scaling"
	FlagDocker          = "diego_docker"
	FlagEnvVisibility   = "env_var_visibility"
	FlagSpaceEnv        = "space_developer_env_var_visibility"
	FlagResourceMatch   = "resource_matching"
	FlagRouteCreation   = "route_creation"
	FlagUserOrgCreation = "user_org_creation"
	FlagPrivateDomains  = "private_domain_creation"
	FlagSetRoles        = "set_roles_by_username"
	FlagServiceCreation = "service_instance_creation"
	FlagServiceSharing  = "service_instance_sharing"
	FlagRouteSharing    = "route_sharing"
	FlagSpaceBrokers    = "space_scoped_private_broker_creation"
	FlagTaskCreation    = "task_creation"
	FlagHideMarket      = "hide_marketplace_from_unauthenticated_users"
)

// flags are all that the platform knows, as they are when nobody has switched
// them. What does not exist here is off and stays so.
var flags = []Flag{
	{Name: FlagBitsUpload, Enabled: true},
	{Name: FlagScaling, Enabled: true},
	{Name: FlagDocker},
	{Name: FlagEnvVisibility, Enabled: true},
	{Name: FlagHideMarket},
	{Name: FlagPrivateDomains, Enabled: true},
	{Name: FlagResourceMatch, Enabled: true},
	{Name: FlagRouteCreation, Enabled: true},
	{Name: FlagRouteSharing},
	{Name: FlagServiceCreation, Enabled: true},
	{Name: FlagServiceSharing},
	{Name: FlagSetRoles, Enabled: true},
	{Name: FlagSpaceEnv, Enabled: true},
	{Name: FlagSpaceBrokers, Enabled: true},
	{Name: FlagTaskCreation, Enabled: true},
	{Name: "unset_roles_by_username", Enabled: true, Fixed: "roles are taken away by their guid"},
	{Name: FlagUserOrgCreation},
}

// Flags returns all feature flags by name, as they are now.
func (r *Registry) Flags() ([]Flag, error) {
	kept, err := r.flags.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list feature flags: %w", err)
	}
	out := slices.Clone(flags)
	for i, f := range out {
		j := slices.IndexFunc(kept, func(k Flag) bool { return k.Name == f.Name })
		if j >= 0 && f.Fixed == "" {
			out[i] = kept[j]
		}
	}
	slices.SortFunc(out, func(a, b Flag) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Flag returns the feature flag with the name.
func (r *Registry) Flag(name string) (Flag, error) {
	i := slices.IndexFunc(flags, func(f Flag) bool { return f.Name == name })
	if i < 0 {
		return Flag{}, fmt.Errorf("feature flag %s: %w", name, ErrNotFound)
	}
	if flags[i].Fixed != "" {
		return flags[i], nil
	}
	kept, err := find(r.flags, name)
	if err != nil {
		return Flag{}, fmt.Errorf("cannot read feature flag %s: %w", name, err)
	}
	if kept.Name == "" {
		return flags[i], nil
	}
	return kept, nil
}

// UpdateFlag switches a feature. One that is fixed can only be set to what it is.
func (r *Registry) UpdateFlag(name string, fn func(f *Flag)) (f Flag, err error) {
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
			return &Invalid{Key: name, Message: "cannot be switched: " + old.Fixed}
		}
		f.UpdatedAt = now()
		if err := r.flags.Put(name, f); err != nil {
			return fmt.Errorf("cannot keep feature flag %s: %w", name, err)
		}
		return nil
	})
	return f, err
}

// Notes returns the metadata of something built in, such as a stack.
func (r *Registry) Notes(guid string) (Metadata, error) {
	m, err := find(r.notes, guid)
	if err != nil {
		return m, fmt.Errorf("cannot read metadata of %s: %w", guid, err)
	}
	return m, nil
}

// UpdateNotes changes the metadata of something built in.
func (r *Registry) UpdateNotes(guid string, c MetadataChange) (m Metadata, err error) {
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
