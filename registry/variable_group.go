package registry

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dewrun/dew/app"
)

// EnvGroup returns the group with the name.
func (r *Registry) EnvGroup(name string) (app.EnvGroup, error) {
	if name != app.RunningGroup && name != app.StagingGroup {
		return app.EnvGroup{}, fmt.Errorf("environment variable group %s: %w", name, app.ErrNotFound)
	}
	g, err := find(r.records.variables, name)
	if err != nil {
		return g, fmt.Errorf("cannot read environment variable group %s: %w", name, err)
	}
	g.Name = name
	return g, nil
}

// UpdateEnvGroup sets variables of a group; nil takes one away.
func (r *Registry) UpdateEnvGroup(name string, change map[string]*string) (g app.EnvGroup, err error) {
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
