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
	"strings"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
)

// Staging creates the Spec of a build's container.
func (p *Planner) Staging(s droplet.Staging, id runtime.InstanceID, addr netip.Prefix) (runtime.Spec, error) {
	env, err := p.stagingEnvironment(s, id, addr.Addr())
	if err != nil {
		return runtime.Spec{}, err
	}
	files, err := p.stagingFiles(s)
	if err != nil {
		return runtime.Spec{}, err
	}
	memory := int64(s.MemoryMB) * mebibyte
	return runtime.Spec{
		Kind: runtime.KindStaging, Instance: id, Slot: runtime.SlotID{Process: s.Build}, App: s.App, Type: "staging", Version: s.Build, Cell: p.c.Cell,
		Stack: withoutTmpfs(s.Stack), Build: s.Build, Layers: s.Layers, Files: files, Memory: memory, Disk: int64(s.DiskMB) * mebibyte, Address: addr,
		Processes: []runtime.ProcessSpec{{Exec: runtime.MainExec, Source: runtime.SourceStaging, Command: s.Command, Dir: s.Dir, Env: env, Memory: memory}},
	}, nil
}

// withoutTmpfs returns the stack without its /tmp in memory, because builds store their
// files there.
func withoutTmpfs(s stack.Stack) stack.Stack {
	s.Mounts = slices.DeleteFunc(slices.Clone(s.Mounts), func(m stack.Mount) bool { return m.Path == "/tmp" && m.Type == "tmpfs" })
	return s
}

// stagingEnvironment returns the environment of a build, as buildpacks find it on the
// platform. It is an instance's environment without a port.
func (p *Planner) stagingEnvironment(s droplet.Staging, id runtime.InstanceID, addr netip.Addr) ([]string, error) {
	d, mem, err := p.desiredApp(s.App)
	if err != nil {
		return nil, err
	}
	a := instanceApplication(d, identity{id: id, address: addr, publicURL: p.c.PublicURL, start: time.Now()}, mem)
	vcap, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("cannot encode VCAP_APPLICATION: %w", err)
	}
	env := map[string]string{"LANG": "en_US.UTF-8", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	maps.Copy(env, s.Env)
	d.bindings.JSON = s.Services
	maps.Copy(env, d.withServices(map[string]string{
		"HOME": "/home/vcap", "USER": appUser, "PWD": s.Dir, "TMPDIR": "/tmp", "CF_STACK": s.Stack.Name,
		"VCAP_APPLICATION": string(vcap),
		"MEMORY_LIMIT":     strconv.Itoa(s.MemoryMB) + "m",
		"CF_INSTANCE_IP":   addr.String(), "CF_INSTANCE_INTERNAL_IP": addr.String(),
		"CF_INSTANCE_PORT": "", "CF_INSTANCE_PORTS": "[]", "CF_INSTANCE_ADDR": "", "CF_INSTANCE_GUID": string(id),
		certs.InstanceVariable: certs.InstanceDir,
	}))
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out, nil
}

// desiredApp returns the desired state of the app, and the memory of its web process.
func (p *Planner) desiredApp(guid string) (d Desired, mem int, err error) {
	if d.App, err = p.c.Registry.App(guid); err != nil {
		return d, 0, fmt.Errorf("cannot read the app of a build: %w", err)
	}
	if d.Process, err = p.c.Registry.Process(guid); err != nil && !errors.Is(err, app.ErrNotFound) {
		return d, 0, fmt.Errorf("cannot read the app of a build: %w", err)
	}
	if d.sidecars, err = p.c.Registry.SidecarsOf(guid, app.Web); err != nil {
		return d, 0, fmt.Errorf("cannot read the app of a build: %w", err)
	}
	if err := p.addPlace(&d); err != nil {
		return d, 0, fmt.Errorf("cannot read the app of a build: %w", err)
	}
	parts, err := splitMemory(cmp.Or(d.Process.MemoryMB, app.DefaultMemoryMB), d.sidecars)
	if err != nil {
		return d, 0, &droplet.StagingError{Kind: droplet.StagingFailed, Reason: strings.TrimSpace(err.Error())}
	}
	return d, parts.main, nil
}
