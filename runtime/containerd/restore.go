package containerd

import (
	"errors"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
)

// restoreGroups moves processes back that another program has moved out of their
// cgroups. Otherwise they would have no memory limit.
func restoreGroups(e *Engine) error {
	var errs error
	for _, c := range append(e.known.all(), e.waiting.all()...) {
		for _, p := range c.procs {
			if !c.init.stopping.Load() {
				errs = errors.Join(errs, restoreGroup(c, p))
			}
		}
	}
	return errs
}

// restoreGroup moves a running process back into its leaf. Signals go to the processes of
// a leaf, so without it the process could not be stopped.
func restoreGroup(c *container, p *proc) error {
	if p.pid == 0 || p.ended.Load() || process.Ended(p.pid, p.born) {
		return nil
	}
	restored, err := c.e.cg.Restore(c.spec.Instance, p.Exec, p.Memory, p.pid)
	if restored {
		c.e.log.Warn("another program moved a process out of its cgroup; dewd moved it back", "instance", c.spec.Instance, "exec", p.Exec)
	}
	return err
}

// restoreNetwork restores the parts of the network that another program has removed:
// the bridge, its ports, and the mounts of network namespaces.
func restoreNetwork(e *Engine) error {
	var ids []runtime.InstanceID
	var errs error
	for _, c := range append(e.known.all(), e.waiting.all()...) {
		ids = append(ids, c.spec.Instance)
		errs = errors.Join(errs, restoreNamespace(c))
	}
	restored, err := e.net.Restore(ids)
	if restored {
		e.log.Warn("another program changed the bridge of the instances; dewd restored it", "bridge", e.cfg.Names.Bridge)
	}
	return errors.Join(errs, err)
}

// restoreNamespace mounts the network namespace again while a process is in it.
func restoreNamespace(c *container) error {
	for _, p := range c.procs {
		if p.pid == 0 || p.ended.Load() || c.init.stopping.Load() {
			continue
		}
		restored, err := c.e.net.RestoreNamespace(c.spec.Instance, p.pid)
		if restored {
			c.e.log.Warn("another program unmounted the network namespace of an instance; dewd mounted it again", "instance", c.spec.Instance)
		}
		if c.init.stopping.Load() { // the removal could have been before the mount
			return errors.Join(err, c.e.net.Remove(c.spec.Instance))
		}
		return err
	}
	return nil
}
