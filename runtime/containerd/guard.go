package containerd

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup"
)

// The folder of dew in every container, and its files for PID 1.
const (
	dewFolder   = "/.dew/"
	capturePath = dewFolder + "capture"
	freezerPath = dewFolder + "freezer"
)

// guard has the settings with which PID 1 pauses a process that prints while no dewd
// reads.
type guard struct {
	capture  string           // folder of the capture files on the host
	freezers []cgroup.Freezer // one per process, in the order of the processes
	limit    int64            // unread bytes of one capture file
	reserve  int64            // free bytes of their disk
}

// mounts returns the mounts that give PID 1 the capture files and a freezer file per
// process. They belong to root, so that an app of another user cannot open them.
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
			Destination: filepath.Join(freezerPath, ps[i].Exec), Type: "bind", Source: filepath.Join(f.Dir, f.File),
			Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"},
		})
	}
	return ms
}

// args returns the arguments of dew-init as PID 1.
func (g guard) args(ps []runtime.ProcessSpec) []string {
	if g.capture == "" {
		return nil
	}
	args := []string{
		"init", "--capture", capturePath, "--freezer", freezerPath,
		"--freeze", g.freezers[0].Freeze, "--thaw", g.freezers[0].Thaw,
		"--limit", strconv.FormatInt(g.limit, 10), "--reserve", strconv.FormatInt(g.reserve, 10), "--",
	}
	for _, p := range ps {
		args = append(args, p.Exec)
	}
	return args
}

// ownMount reports whether a mount belongs to dew itself, not to a stack.
func ownMount(path string) bool {
	switch path {
	case "/etc/hosts", "/etc/resolv.conf", "/etc/hostname":
		return true
	}
	return strings.HasPrefix(path, dewFolder)
}
