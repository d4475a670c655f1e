package route

import (
	"fmt"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// Pending reports whether a destination needs a restart of its process: a live instance
// was started without its port.
func Pending(d app.Destination, sts []runtime.Status) bool {
	return slices.ContainsFunc(sts, func(st runtime.Status) bool { return lives(st) && d.Lacks(st.Ports) })
}

// lives reports whether the slot has an instance with fixed ports. A crashed instance
// gets the desired ports at its next start.
func lives(st runtime.Status) bool {
	return st.Instance != "" && len(st.Ports) > 0 && (st.State == runtime.Starting || st.State == runtime.Running)
}

// Adopted says that all instances of an earlier daemon are known. Before that, the
// router cannot know what is no longer needed.
func (r *Router) Adopted() {
	r.adopted.Store(true)
	post(r.replacedWake)
}

// deleteReplaced drops replaced destinations that no instance needs.
func (r *Router) deleteReplaced() error {
	if r.c.DeleteReplaced == nil || !r.adopted.Load() {
		return nil
	}
	for _, f := range r.table.Load().replaced {
		needed, err := r.needed(f.destinations)
		if err != nil {
			return err
		}
		if err := r.c.DeleteReplaced(f.route, needed); err != nil {
			return fmt.Errorf("cannot delete the replaced destinations of route %s: %w", f.route, err)
		}
	}
	return nil
}

// needed returns a function that reports whether an instance still uses the replaced
// destination. It returns true for unknown destinations.
func (r *Router) needed(ds []app.Destination) (func(d app.Destination) bool, error) {
	needed := map[string]bool{} // by guid
	for _, d := range ds {
		ps, err := r.c.Registry.Processes(d.App)
		if err != nil {
			return nil, fmt.Errorf("cannot read the processes of app %s: %w", d.App, err)
		}
		needed[d.GUID] = slices.ContainsFunc(ps, func(p app.Process) bool {
			return p.Type == d.ProcessType && Pending(d, r.c.Instances(p.GUID))
		})
	}
	return func(d app.Destination) bool {
		yes, known := needed[d.GUID]
		return yes || !known
	}, nil
}
