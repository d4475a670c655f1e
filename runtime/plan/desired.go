package plan

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/services/bindingfiles"
)

// Desired is the desired state of an instance that starts now.
type Desired struct {
	At       time.Time // when it was read
	App      app.App
	Process  app.Process
	sidecars []app.Sidecar // sorted by name
	Droplet  droplet.Droplet
	stack    stack.Stack
	space    app.Space // zero if the app's space is unknown
	org      app.Org
	uris     []string        // URIs of its routes; never nil
	routed   []int           // ports of the route destinations of its process type
	Server   *runtime.Server // set if the instance belongs to a server, not to an app
	bindings droplet.Bindings
}

// ports returns the ports of the process: first its default ports, then those of its
// route destinations.
func (d Desired) ports() []int {
	ports := slices.Clone(d.Process.Ports)
	if len(ports) == 0 && d.Droplet.Run != nil {
		ports = slices.Clone(d.Droplet.Run.Ports)
	}
	if len(ports) == 0 {
		ports = []int{DefaultPort}
	}
	for _, port := range d.routed {
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// Instance reads the desired state of the instance of a slot. A *StartError means that
// it cannot be started in its desired state. With every error it returns the part read
// so far.
func (p *Planner) Instance(id runtime.SlotID) (d Desired, err error) {
	var sidecars []app.Sidecar
	d.At = time.Now()
	if d.App, d.Process, sidecars, err = p.c.Registry.DesiredAt(id.Process, id.Generation); err != nil {
		if d, ok, serr := p.desiredServer(id.Process); ok || serr != nil {
			return d, serr
		}
		return d, fmt.Errorf("cannot read the desired state: %w", err)
	}
	d.sidecars = byName(sidecars)
	if err := p.addPlace(&d); err != nil {
		return Desired{At: d.At}, fmt.Errorf("cannot read the desired state: %w", err)
	}
	if d.App.Droplet != "" {
		d.Droplet, err = p.c.Droplets.Get(d.App.Droplet)
		if errors.Is(err, droplet.ErrNotFound) {
			return d, refuse(d, fmt.Sprintf("droplet %s does not exist: push the app again", d.App.Droplet))
		}
		if err != nil {
			return d, fmt.Errorf("cannot read the droplet: %w", err)
		}
	}
	if err := p.addBindings(&d); err != nil {
		return d, err
	}
	if d.stack, err = p.c.Stacks(cmp.Or(d.Droplet.Stack, d.App.Stack)); err != nil {
		return d, refuse(d, fmt.Sprintf("cannot use the stack: %v", err))
	}
	return d, nil
}

// addBindings finds the services that an instance sees. These are the services that its
// droplet was staged with, or the app's current services.
func (p *Planner) addBindings(d *Desired) (err error) {
	if p.c.Bindings == nil {
		d.bindings = d.Droplet.Bindings
	} else if d.bindings, err = p.c.Bindings(d.App.GUID); err != nil {
		return fmt.Errorf("cannot read the service bindings: %w", err)
	}
	d.bindings.Files = bindingForm(d.App) != bindingfiles.None
	if err := d.bindings.Check(); err != nil {
		return refuse(*d, err.Error())
	}
	return nil
}

// addPlace reads the app's space, the URIs of its routes, and the variables that all
// apps have.
func (p *Planner) addPlace(d *Desired) (err error) {
	d.uris = []string{}
	if d.App.Env, err = p.c.Registry.WithGroup(app.RunningGroup, d.App.Env); err != nil {
		return err
	}
	if d.space, err = p.c.Registry.Space(d.App.Space); errors.Is(err, app.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if d.org, err = p.c.Registry.Org(d.space.Org); err != nil {
		return err
	}
	routes, err := p.c.Registry.RoutesOf(d.App.GUID)
	if err != nil {
		return err
	}
	for _, r := range routes {
		domain, err := p.c.Registry.Domain(r.Domain)
		if err != nil {
			return err
		}
		d.uris = append(d.uris, r.URL(domain.Name))
		for _, to := range r.Destinations {
			if to.App == d.App.GUID && to.ProcessType == d.Process.Type && to.Port != 0 {
				d.routed = append(d.routed, to.Port)
			}
		}
	}
	return nil
}

// Kind returns the kind of the container.
func (d Desired) Kind() runtime.Kind {
	if d.Server != nil {
		return runtime.KindService
	}
	return runtime.KindInstance
}

// Source returns the log source of the main process.
func (d Desired) Source() string {
	if d.Server != nil {
		return serverSource(*d.Server)
	}
	return runtime.ProcessSource(d.Process.Type, "")
}

// refuse returns the error for a desired state that cannot become an instance.
func refuse(d Desired, reason string) *runtime.StartError {
	return &runtime.StartError{Source: d.Source(), Reason: reason}
}

// InstanceSpec creates the Spec of an instance of a slot in the desired state d, with
// an address.
func (p *Planner) InstanceSpec(d Desired, slot runtime.SlotID, id runtime.InstanceID, addr netip.Prefix) (runtime.Spec, error) {
	spec, err := d.instanceSpec(slot, p.c.Cell, identity{
		id: id, index: slot.Index, address: addr.Addr(), publicURL: p.c.PublicURL, start: d.At,
	})
	spec.Address = addr
	if err == nil && p.c.Memory > 0 && spec.Memory > p.c.Memory {
		return spec, &runtime.PlacementError{Reason: fmt.Sprintf(
			"insufficient resources: memory (the instance can use up to %dM, but this machine has %dM)", spec.Memory/mebibyte, p.c.Memory/mebibyte)}
	}
	return spec, err
}

// instanceSpec creates the plain value that the engine starts. The id and the address
// are filled in, and nothing is left to look up.
func (d Desired) instanceSpec(slot runtime.SlotID, cell string, me identity) (runtime.Spec, error) {
	if d.Server != nil {
		return serverSpec(*d.Server, slot, cell, d.stack, me.id), nil
	}
	mem, err := splitMemory(d.Process.MemoryMB, d.sidecars)
	if err != nil {
		return runtime.Spec{}, refuse(d, err.Error())
	}
	if err := d.Droplet.CheckMemory(d.Process.Type, d.sidecars); err != nil {
		return runtime.Spec{}, refuse(d, err.Error())
	}
	command, err := d.Droplet.Command(d.Process)
	if err != nil {
		return runtime.Spec{}, refuse(d, err.Error())
	}
	s := runtime.Spec{
		Kind:     runtime.KindInstance,
		Instance: me.id,
		Slot:     slot,
		App:      d.App.GUID,
		Type:     d.Process.Type,
		Version:  d.Process.Version,
		Cell:     cell,
		Droplet:  d.Droplet.GUID,
		Stack:    d.stack,
		Image:    d.Droplet.Image,
		Memory:   int64(mem.total) * mebibyte,
		Disk:     int64(d.Process.DiskMB) * mebibyte,
		LogRate:  d.Process.LogRate,
		Ports:    slices.Clone(d.ports()),
	}
	env, err := instanceEnvironment(d, me, mem.main)
	if err != nil {
		return runtime.Spec{}, err
	}
	s.Processes = append(s.Processes, runtime.ProcessSpec{
		Exec: runtime.MainExec, Source: d.Source(), Command: command,
		Dir: homeDir, Env: env, Memory: int64(mem.main) * mebibyte,
	})
	for n, c := range d.sidecars {
		env, err := instanceEnvironment(d, me, mem.memoryLimit(mem.sidecars[n]))
		if err != nil {
			return runtime.Spec{}, err
		}
		s.Processes = append(s.Processes, runtime.ProcessSpec{
			Exec: runtime.SidecarExec(n), Name: c.Name, Source: runtime.ProcessSource(d.Process.Type, c.Name), Command: c.Command,
			Dir: homeDir, Env: env, Memory: int64(mem.sidecars[n]) * mebibyte,
		})
	}
	d.applyImage(s.Processes)
	s.Files, err = d.bindingFiles()
	return s, err
}
