package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// wish is what an instance that starts now should be.
type wish struct {
	app      app.App
	process  app.Process
	sidecars []app.Sidecar // by name
	droplet  droplet.Droplet
	stack    droplet.Stack
	space    app.Space // zero where the app's is not known
	org      app.Org
	uris     []string // of its routes; never nil
	routed   []int    // ports that destinations of its process type name
	server   *Server  // what it is when it is no app's
	bindings droplet.Bindings
}

// ports are the ports of the process, its default first, then those that its
// destinations name.
func (w wish) ports() []int {
	ports := slices.Clone(w.process.Ports)
	if len(ports) == 0 && w.droplet.Run != nil {
		ports = slices.Clone(w.droplet.Run.Ports)
	}
	if len(ports) == 0 {
		ports = []int{defaultPort}
	}
	for _, p := range w.routed {
		if !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	return ports
}

// wish reads what the instance of a slot should be now. A *StartError says that it cannot
// be started as it is wished; what was read so far comes with every error.
func (s *Supervisor) wish(id SlotID) (w wish, err error) {
	var sidecars []app.Sidecar
	if w.app, w.process, sidecars, err = s.c.Registry.WishAt(id.Process, id.Generation); err != nil {
		if w, ok, serr := s.serverWish(id.Process); ok || serr != nil {
			return w, serr
		}
		return w, fmt.Errorf("cannot read the wish: %w", err)
	}
	w.sidecars = byName(sidecars)
	if err := s.locate(&w); err != nil {
		return wish{}, fmt.Errorf("cannot read the wish: %w", err)
	}
	if w.app.Droplet != "" {
		w.droplet, err = s.c.Droplets.Get(w.app.Droplet)
		if errors.Is(err, droplet.ErrNotFound) {
			return w, refuse(w, fmt.Sprintf("its droplet %s is gone: push the app again", w.app.Droplet))
		}
		if err != nil {
			return w, fmt.Errorf("cannot read the droplet: %w", err)
		}
	}
	if err := s.bind(&w); err != nil {
		return w, err
	}
	if w.stack, err = s.c.Stacks(cmp.Or(w.droplet.Stack, w.app.Stack)); err != nil {
		return w, refuse(w, fmt.Sprintf("its stack cannot be used: %v", err))
	}
	return w, nil
}

// bind finds the services that an instance sees: those that its droplet was made
// with, or the app's own of this moment.
func (s *Supervisor) bind(w *wish) (err error) {
	if s.c.Bindings == nil {
		w.bindings = w.droplet.Bindings
		return nil
	}
	if w.bindings, err = s.c.Bindings(w.app.GUID); err != nil {
		return fmt.Errorf("cannot read the service bindings: %w", err)
	}
	if err := w.bindings.Check(); err != nil {
		return refuse(*w, err.Error())
	}
	return nil
}

// locate finds out where the app is: its space, the addresses that lead to it, and
// the variables that all apps have.
func (s *Supervisor) locate(w *wish) (err error) {
	w.uris = []string{}
	if w.app.Env, err = s.c.Registry.WithGroup(app.RunningGroup, w.app.Env); err != nil {
		return err
	}
	if w.space, err = s.c.Registry.Space(w.app.Space); errors.Is(err, app.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if w.org, err = s.c.Registry.Org(w.space.Org); err != nil {
		return err
	}
	routes, err := s.c.Registry.RoutesOf(w.app.GUID)
	if err != nil {
		return err
	}
	for _, r := range routes {
		d, err := s.c.Registry.Domain(r.Domain)
		if err != nil {
			return err
		}
		w.uris = append(w.uris, r.URL(d.Name))
		for _, to := range r.Destinations {
			if to.App == w.app.GUID && to.ProcessType == w.process.Type && to.Port != 0 {
				w.routed = append(w.routed, to.Port)
			}
		}
	}
	return nil
}

// source is the source of the lines of its main process.
func (w wish) source() string {
	if w.server != nil {
		return w.server.source()
	}
	return ProcessSource(w.process.Type, "")
}

// refuse is the error for a wish that cannot become an instance.
func refuse(w wish, reason string) *StartError {
	return &StartError{Source: w.source(), Reason: reason}
}

// spec makes the plain value that the engine starts: id and address are filled
// in, nothing is left to look up.
func (w wish) spec(slot SlotID, cell string, me identity) (Spec, error) {
	if w.server != nil {
		return w.server.spec(slot, cell, w.stack, me.id), nil
	}
	mem, err := splitMemory(w.process.MemoryMB, w.sidecars)
	if err != nil {
		return Spec{}, refuse(w, err.Error())
	}
	if err := w.droplet.CheckMemory(w.process.Type, w.sidecars); err != nil {
		return Spec{}, refuse(w, err.Error())
	}
	command, err := w.droplet.Command(w.process)
	if err != nil {
		return Spec{}, refuse(w, err.Error())
	}
	s := Spec{
		Instance: me.id,
		Slot:     slot,
		App:      w.app.GUID,
		Type:     w.process.Type,
		Version:  w.process.Version,
		Cell:     cell,
		Droplet:  w.droplet.GUID,
		Stack:    w.stack,
		Image:    w.droplet.Image,
		Memory:   int64(mem.total) * mebibyte,
		Disk:     int64(w.process.DiskMB) * mebibyte,
		LogRate:  w.process.LogRate,
		Ports:    slices.Clone(w.ports()),
	}
	env, err := environment(w, me, mem.main)
	if err != nil {
		return Spec{}, err
	}
	s.Processes = append(s.Processes, ProcessSpec{
		Exec: MainExec, Source: w.source(), Command: command,
		Dir: homeDir, Env: env, Memory: int64(mem.main) * mebibyte,
	})
	for n, c := range w.sidecars {
		env, err := environment(w, me, mem.memoryLimit(mem.sidecars[n]))
		if err != nil {
			return Spec{}, err
		}
		s.Processes = append(s.Processes, ProcessSpec{
			Exec: SidecarExec(n), Name: c.Name, Source: ProcessSource(w.process.Type, c.Name), Command: c.Command,
			Dir: homeDir, Env: env, Memory: int64(mem.sidecars[n]) * mebibyte,
		})
	}
	w.asImage(s.Processes)
	return s, nil
}
