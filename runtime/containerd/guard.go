package containerd

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/dewrun/dew/runtime"
)

// The folder of dew in every container, and what PID 1 finds in it.
const (
	dewFolder   = "/.dew/"
	capturePath = dewFolder + "capture"
	freezerPath = dewFolder + "freezer"
)

// guard is what PID 1 needs to pause a process that prints while no dewd reads.
type guard struct {
	capture  string    // folder of the capture files on the host
	freezers []freezer // one per process, in their order
	limit    int64     // unread bytes of one capture file
	reserve  int64     // free bytes of their disk
}

// guardFor bounds the output of an instance. The zero guard is for one that has no
// processes, and so no capture files.
func (c *container) guardFor() guard {
	if len(c.procs) == 0 {
		return guard{}
	}
	g := guard{capture: c.applog.CaptureDir(string(c.spec.Instance))}
	g.limit, g.reserve = c.e.cfg.Logs.Ceiling()
	for _, p := range c.procs {
		g.freezers = append(g.freezers, c.e.cg.freezer(c.spec.Instance, p.Exec))
	}
	return g
}

// mounts show PID 1 the capture files, and a freezer file per process. Both belong
// to root and are closed to an app of another user.
func (g guard) mounts(ps []runtime.ProcessSpec) []specs.Mount {
	if g.capture == "" {
		return nil
	}
	ms := []specs.Mount{{
		Destination: capturePath, Type: "bind", Source: g.capture,
		Options: []string{"bind", "ro", "nosuid", "nodev", "noexec"},
	}}
	for i, f := range g.freezers {
		ms = append(ms, specs.Mount{
			Destination: filepath.Join(freezerPath, ps[i].Exec), Type: "bind", Source: filepath.Join(f.dir, f.file),
			Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"},
		})
	}
	return ms
}

// args are those of dew-init as PID 1.
func (g guard) args(ps []runtime.ProcessSpec) []string {
	if g.capture == "" {
		return nil
	}
	args := []string{
		"init", "--capture", capturePath, "--freezer", freezerPath,
		"--freeze", g.freezers[0].freeze, "--thaw", g.freezers[0].thaw,
		"--limit", strconv.FormatInt(g.limit, 10), "--reserve", strconv.FormatInt(g.reserve, 10), "--",
	}
	for _, p := range ps {
		args = append(args, p.Exec)
	}
	return args
}

// ownMount tells the mounts of dew itself from those that a stack asked for.
func ownMount(path string) bool {
	switch path {
	case "/etc/hosts", "/etc/resolv.conf", "/etc/hostname":
		return true
	}
	return strings.HasPrefix(path, dewFolder)
}
