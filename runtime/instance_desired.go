package runtime

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
)

// desired is what an instance that starts now should be.
type desired struct {
	app      app.App
	process  app.Process
	sidecars []app.Sidecar // by name
	droplet  droplet.Droplet
	stack    stack.Stack
	space    app.Space // zero where the app's is not known
	org      app.Org
	uris     []string // of its routes; never nil
	routed   []int    // ports that destinations of its process type name
	server   *Server  // what it is when it is no app's
	bindings droplet.Bindings
}

// ports are the ports of the process, its default first, then those that its
// destinations name.
func (d desired) ports() []int {
	ports := slices.Clone(d.process.Ports)
	if len(ports) == 0 && d.droplet.Run != nil {
		ports = slices.Clone(d.droplet.Run.Ports)
	}
	if len(ports) == 0 {
		ports = []int{defaultPort}
	}
	for _, port := range d.routed {
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// Instance reads what the instance of a slot should be now. A *StartError says that it cannot
// be started in its desired state; the part read so far comes with every error.
func (p *Planner) Instance(id SlotID) (d desired, err error) {
	var sidecars []app.Sidecar
	if d.app, d.process, sidecars, err = p.c.Registry.DesiredAt(id.Process, id.Generation); err != nil {
		if d, ok, serr := p.desiredServer(id.Process); ok || serr != nil {
			return d, serr
		}
		return d, fmt.Errorf("cannot read the desired state: %w", err)
	}
	d.sidecars = byName(sidecars)
	if err := p.addPlace(&d); err != nil {
		return desired{}, fmt.Errorf("cannot read the desired state: %w", err)
	}
	if d.app.Droplet != "" {
		d.droplet, err = p.c.Droplets.Get(d.app.Droplet)
		if errors.Is(err, droplet.ErrNotFound) {
			return d, refuse(d, fmt.Sprintf("its droplet %s is gone: push the app again", d.app.Droplet))
		}
		if err != nil {
			return d, fmt.Errorf("cannot read the droplet: %w", err)
		}
	}
	if err := p.addBindings(&d); err != nil {
		return d, err
	}
	if d.stack, err = p.c.Stacks(cmp.Or(d.droplet.Stack, d.app.Stack)); err != nil {
		return d, refuse(d, fmt.Sprintf("its stack cannot be used: %v", err))
	}
	return d, nil
}

// addBindings finds the services that an instance sees: those that its droplet was made
// with, or the app's own of this moment.
func (p *Planner) addBindings(d *desired) (err error) {
	if p.c.Bindings == nil {
		d.bindings = d.droplet.Bindings
		return nil
	}
	if d.bindings, err = p.c.Bindings(d.app.GUID); err != nil {
		return fmt.Errorf("cannot read the service bindings: %w", err)
	}
	if err := d.bindings.Check(); err != nil {
		return refuse(*d, err.Error())
	}
	return nil
}

// addPlace finds out where the app is: its space, the addresses that lead to it, and
// the variables that all apps have.
func (p *Planner) addPlace(d *desired) (err error) {
	d.uris = []string{}
	if d.app.Env, err = p.c.Registry.WithGroup(app.RunningGroup, d.app.Env); err != nil {
		return err
	}
	if d.space, err = p.c.Registry.Space(d.app.Space); errors.Is(err, app.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if d.org, err = p.c.Registry.Org(d.space.Org); err != nil {
		return err
	}
	routes, err := p.c.Registry.RoutesOf(d.app.GUID)
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
			if to.App == d.app.GUID && to.ProcessType == d.process.Type && to.Port != 0 {
				d.routed = append(d.routed, to.Port)
			}
		}
	}
	return nil
}

// kind is the kind of its container.
func (d desired) kind() Kind {
	if d.server != nil {
		return KindService
	}
	return KindInstance
}

// source is the source of the lines of its main process.
func (d desired) source() string {
	if d.server != nil {
		return serverSource(*d.server)
	}
	return ProcessSource(d.process.Type, "")
}

// refuse is the error for a desired state that cannot become an instance.
func refuse(d desired, reason string) *StartError {
	return &StartError{Source: d.source(), Reason: reason}
}

// InstanceSpec makes the Spec of an instance of a slot that is to be d, with an address.
func (p *Planner) InstanceSpec(d desired, slot SlotID, id InstanceID, addr netip.Prefix) (Spec, error) {
	spec, err := d.instanceSpec(slot, p.c.Cell, identity{
		id: id, index: slot.Index, address: addr.Addr(), publicURL: p.c.PublicURL, start: time.Now(),
	})
	spec.Address = addr
	return spec, err
}

// instanceSpec makes the plain value that the engine starts: id and address are filled
// in, nothing is left to look up.
func (d desired) instanceSpec(slot SlotID, cell string, me identity) (Spec, error) {
	if d.server != nil {
		return serverSpec(*d.server, slot, cell, d.stack, me.id), nil
	}
	mem, err := splitMemory(d.process.MemoryMB, d.sidecars)
	if err != nil {
		return Spec{}, refuse(d, err.Error())
	}
	if err := d.droplet.CheckMemory(d.process.Type, d.sidecars); err != nil {
		return Spec{}, refuse(d, err.Error())
	}
	command, err := d.droplet.Command(d.process)
	if err != nil {
		return Spec{}, refuse(d, err.Error())
	}
	s := Spec{
		Kind:     KindInstance,
		Instance: me.id,
		Slot:     slot,
		App:      d.app.GUID,
		Type:     d.process.Type,
		Version:  d.process.Version,
		Cell:     cell,
		Droplet:  d.droplet.GUID,
		Stack:    d.stack,
		Image:    d.droplet.Image,
		Memory:   int64(mem.total) * mebibyte,
		Disk:     int64(d.process.DiskMB) * mebibyte,
		LogRate:  d.process.LogRate,
		Ports:    slices.Clone(d.ports()),
	}
	env, err := instanceEnvironment(d, me, mem.main)
	if err != nil {
		return Spec{}, err
	}
	s.Processes = append(s.Processes, ProcessSpec{
		Exec: MainExec, Source: d.source(), Command: command,
		Dir: homeDir, Env: env, Memory: int64(mem.main) * mebibyte,
	})
	for n, c := range d.sidecars {
		env, err := instanceEnvironment(d, me, mem.memoryLimit(mem.sidecars[n]))
		if err != nil {
			return Spec{}, err
		}
		s.Processes = append(s.Processes, ProcessSpec{
			Exec: SidecarExec(n), Name: c.Name, Source: ProcessSource(d.process.Type, c.Name), Command: c.Command,
			Dir: homeDir, Env: env, Memory: int64(mem.sidecars[n]) * mebibyte,
		})
	}
	d.applyImage(s.Processes)
	return s, nil
}
