package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/runtime"
)

// taskType is the process type of a task's container.
const taskType = "task"

// holdCommand is the main process of an attached task.
const holdCommand = "exec sleep 2147483647"

// Task creates the Spec of a task's container. It has the droplet's files and the app's
// environment, but none of the app's processes, no sidecars and no port.
func (p *Planner) Task(t app.Task, id runtime.InstanceID, addr netip.Prefix) (runtime.Spec, error) {
	d, err := p.desiredTask(t)
	if err != nil {
		return runtime.Spec{}, err
	}
	env, err := d.taskEnvironment(t, id, addr.Addr(), p.c.PublicURL)
	if err != nil {
		return runtime.Spec{}, err
	}
	memory := int64(t.MemoryMB) * mebibyte
	command := t.Command
	if t.Attached {
		command = holdCommand
	}
	spec := runtime.Spec{
		Kind: runtime.KindTask, Instance: id, Slot: runtime.SlotID{Process: t.GUID}, App: t.App, Type: taskType, Version: t.GUID, Cell: p.c.Cell, Task: t.GUID,
		Droplet: d.Droplet.GUID, Stack: d.stack, Image: d.Droplet.Image, Address: addr,
		Memory: memory, Disk: int64(t.DiskMB) * mebibyte, LogRate: t.LogRate,
		Processes: []runtime.ProcessSpec{{
			Exec: runtime.MainExec, Source: t.Source(), Command: command, Dir: homeDir, Env: env, Memory: memory,
		}},
	}
	d.applyImage(spec.Processes)
	spec.Files, err = d.bindingFiles()
	return spec, err
}

// desiredTask reads the desired state of a task. A *StartError means that it cannot be
// started.
func (p *Planner) desiredTask(t app.Task) (d Desired, err error) {
	if d.App, err = p.c.Registry.App(t.App); err != nil {
		return d, fmt.Errorf("cannot read the app of a task: %w", err)
	}
	d.Process.Type = taskType
	if err := p.addPlace(&d); err != nil {
		return d, fmt.Errorf("cannot read the app of a task: %w", err)
	}
	d.Droplet, err = p.c.Droplets.Get(t.Droplet)
	if errors.Is(err, droplet.ErrNotFound) {
		return d, refuse(d, fmt.Sprintf("droplet %s does not exist: push the app again", t.Droplet))
	}
	if err != nil {
		return d, fmt.Errorf("cannot read the droplet: %w", err)
	}
	if err := p.addBindings(&d); err != nil {
		return d, err
	}
	if d.stack, err = p.c.Stacks(cmp.Or(d.Droplet.Stack, d.App.Stack)); err != nil {
		return d, refuse(d, fmt.Sprintf("cannot use the stack: %v", err))
	}
	return d, nil
}

// taskEnvironment returns the environment of a task. It is an instance's environment
// without the variables for an index or a port.
func (d Desired) taskEnvironment(t app.Task, id runtime.InstanceID, addr netip.Addr, publicURL string) ([]string, error) {
	vcap, err := json.Marshal(map[string]any{
		"application_id": d.App.GUID, "application_name": d.App.Name, "name": d.App.Name,
		"application_uris": d.uris, "uris": d.uris, "application_version": t.GUID, "version": t.GUID,
		"cf_api": publicURL, "limits": vcapLimits{Disk: t.DiskMB, FDs: openFiles, Mem: t.MemoryMB},
		"organization_id": d.org.GUID, "organization_name": d.org.Name, "space_id": d.App.Space, "space_name": d.space.Name,
		"users": nil,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot encode VCAP_APPLICATION: %w", err)
	}
	fixed := d.withServices(map[string]string{
		"HOME": homeDir, "PWD": homeDir, "TMPDIR": tmpDir, "DEPS_DIR": depsDir, "USER": appUser,
		"VCAP_APPLICATION": string(vcap),
		"MEMORY_LIMIT":     strconv.Itoa(t.MemoryMB) + "m",
		"CF_INSTANCE_GUID": string(id), "CF_INSTANCE_IP": addr.String(), "CF_INSTANCE_INTERNAL_IP": addr.String(),
		"CF_INSTANCE_PORT": "", "CF_INSTANCE_PORTS": "[]", "CF_INSTANCE_ADDR": "",
		certs.InstanceVariable: certs.InstanceDir,
	})
	env := d.ownVariables()
	if d.Droplet.Run != nil {
		maps.DeleteFunc(fixed, isBuildpackVariable)
	}
	maps.Copy(env, fixed)
	return variablesOf(env), nil
}

// variablesOf returns the variables as NAME=value, sorted by name.
func variablesOf(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}
