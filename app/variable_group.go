package app

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// The groups of environment variables that there are.
const (
	RunningGroup = "running" // all instances and tasks have them
	StagingGroup = "staging" // all builds have them
)

// EnvGroup is a group of environment variables that all apps have in common. An
// app's own of the same name wins. Instances find a change at their next start.
type EnvGroup struct {
	Name      string            `json:"name"`
	Var       map[string]string `json:"var,omitempty"`
	UpdatedAt time.Time         `json:"updated_at,omitzero"` // zero: nobody has changed it
}

// EnvGroup returns the group with the name.
func (r *Registry) EnvGroup(name string) (EnvGroup, error) {
	if name != RunningGroup && name != StagingGroup {
		return EnvGroup{}, fmt.Errorf("environment variable group %s: %w", name, ErrNotFound)
	}
	g, err := find(r.records.variables, name)
	if err != nil {
		return g, fmt.Errorf("cannot read environment variable group %s: %w", name, err)
	}
	g.Name = name
	return g, nil
}

// UpdateEnvGroup sets variables of a group; nil takes one away.
func (r *Registry) UpdateEnvGroup(name string, change map[string]*string) (g EnvGroup, err error) {
	err = r.update(func(r *Registry) error {
		if g, err = r.EnvGroup(name); err != nil {
			return err
		}
		g.Var = mergeTexts(g.Var, change)
		var ps problems
		for _, k := range slices.Sorted(maps.Keys(g.Var)) {
			checkEnv(&ps, k, g.Var[k])
		}
		if err := ps.err(); err != nil {
			return err
		}
		g.UpdatedAt = now()
		if err := r.records.variables.Put(name, g); err != nil {
			return fmt.Errorf("cannot keep environment variable group %s: %w", name, err)
		}
		return nil
	})
	return g, err
}

// WithGroup gives an app's variables those of a group that it has not itself.
func (r *Registry) WithGroup(name string, env map[string]string) (map[string]string, error) {
	g, err := r.EnvGroup(name)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	maps.Copy(out, g.Var)
	maps.Copy(out, env)
	return out, nil
}
