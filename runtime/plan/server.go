package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
)

// serverType is the process type in the records of a server.
const serverType = "server"

// serverProcess returns the server in the form of a slot's process.
func serverProcess(v runtime.Server) app.Process {
	return app.Process{
		GUID: v.GUID, App: v.GUID, Type: serverType, Command: v.Command, Instances: 1,
		MemoryMB: v.MemoryMB, DiskMB: v.DiskMB, Ports: slices.Clone(v.Ports), HealthCheck: v.Check,
		Version: v.Version, Current: []string{v.Version},
	}
}

// serverSource returns the log source of a server.
func serverSource(v runtime.Server) string { return cmp.Or(v.Source, "SERVICE") }

// serverEnvironment returns the environment of a server. It has no platform variables,
// which are for apps.
func serverEnvironment(v runtime.Server) []string {
	return runtime.MergeEnv([]string{
		"HOME=" + v.Dir, "LANG=C.UTF-8", "MEMORY_LIMIT=" + strconv.Itoa(v.MemoryMB) + "m",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PWD=" + v.Dir, "USER=" + appUser,
	}, v.Env)
}

// serverSpec creates the plain value that the engine starts.
func serverSpec(v runtime.Server, slot runtime.SlotID, cell string, stack stack.Stack, id runtime.InstanceID) runtime.Spec {
	memory := int64(v.MemoryMB) * mebibyte
	return runtime.Spec{
		Kind: runtime.KindService, Instance: id, Slot: slot, App: v.GUID, Type: serverType, Version: v.Version, Cell: cell,
		Stack: stack, Mounts: slices.Clone(v.Mounts),
		Memory: memory, Disk: int64(v.DiskMB) * mebibyte, Ports: slices.Clone(v.Ports),
		Processes: []runtime.ProcessSpec{{
			Exec: runtime.MainExec, Source: serverSource(v), Command: v.Command, Dir: v.Dir, Env: serverEnvironment(v), Memory: memory,
		}},
	}
}

// Process reads the desired process of a slot, from an app or otherwise from a server.
func (p *Planner) Process(id runtime.SlotID) (app.Process, error) {
	_, found, _, err := p.c.Registry.DesiredAt(id.Process, id.Generation)
	if !errors.Is(err, app.ErrNotFound) {
		return found, err
	}
	v, serr := p.c.Servers.Get(id.Process)
	switch {
	case errors.Is(serr, runtime.ErrNoServer):
		return found, err
	case serr != nil:
		return found, serr
	}
	return serverProcess(v), nil
}

// desiredServer reads the desired state of a server. It returns false if there is no
// server with that guid.
func (p *Planner) desiredServer(guid string) (d Desired, ok bool, err error) {
	v, err := p.c.Servers.Get(guid)
	if errors.Is(err, runtime.ErrNoServer) {
		return d, false, nil
	}
	if err != nil {
		return d, false, err
	}
	d = Desired{App: app.App{GUID: v.GUID, Name: v.Name}, Process: serverProcess(v), Server: &v}
	if !p.c.Subnet.Contains(v.Address) {
		return d, true, refuse(d, fmt.Sprintf("address %s is not in the subnet %s: set the old subnet with --subnet, or create the service again", v.Address, p.c.Subnet))
	}
	if d.stack, err = p.c.Stacks(v.Stack); err != nil {
		return d, true, refuse(d, fmt.Sprintf("cannot use the stack: %v", err))
	}
	return d, true, nil
}
