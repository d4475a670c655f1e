package ocispec

import (
	"path/filepath"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup"
)

// The folder of dew in every container, and its files for PID 1.
const (
	dewFolder   = "/.dew/"
	capturePath = dewFolder + "capture"
	freezerPath = dewFolder + "freezer"
	mainPath    = dewFolder + "main"
)

// Guard has the settings with which PID 1 pauses a process that prints while no dewd
// reads.
type Guard struct {
	Capture  string           // folder of the capture files on the host
	Freezers []cgroup.Freezer // one per process, in the order of the processes
	Limit    int64            // unread bytes of one capture file
	Reserve  int64            // free bytes of their disk
}

// mounts returns the mounts that give PID 1 the capture files and a freezer file per
// process. They belong to root, so that an app of another user cannot open them.
func (g Guard) mounts(ps []runtime.ProcessSpec) []specs.Mount {
	if g.Capture == "" {
		return nil
	}
	ms := []specs.Mount{{
		Destination: capturePath, Type: "bind", Source: g.Capture,
		Options: []string{"bind", "ro", "nosuid", "nodev", "noexec"},
	}}
	for i, f := range g.Freezers {
		ms = append(ms, specs.Mount{
			Destination: filepath.Join(freezerPath, ps[i].Exec), Type: "bind", Source: filepath.Join(f.Dir, f.File),
			Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"},
		})
	}
	return ms
}

// args returns the arguments for the guard in PID 1.
func (g Guard) args(ps []runtime.ProcessSpec) []string {
	if g.Capture == "" {
		return nil
	}
	args := []string{
		"--capture", capturePath, "--freezer", freezerPath,
		"--freeze", g.Freezers[0].Freeze, "--thaw", g.Freezers[0].Thaw,
		"--limit", strconv.FormatInt(g.Limit, 10), "--reserve", strconv.FormatInt(g.Reserve, 10), "--",
	}
	for _, p := range ps {
		args = append(args, p.Exec)
	}
	return args
}
