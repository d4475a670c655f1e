package containerd

import (
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/dewrun/dew/runtime/capture"
	"github.com/dewrun/dew/runtime/process"
)

// output is the captured output of a process. The shim writes the files.
type output struct {
	capture.Output
	captureFailed atomic.Bool
}

// broken reports whether a process still prints into a pipe that its shim holds,
// while the shim no longer holds a file for it. A process can have closed, redirected
// or merged its streams: then the shim has correctly closed a file. Therefore pipes and
// files are counted, not paired.
func (o *output) broken(pid, shim int) bool {
	held := process.OpenFiles(shim)
	if len(held) == 0 {
		return false
	}
	files := 0
	for _, path := range []string{o.OutPath, o.ErrPath} {
		if id, err := process.FileID(path); err == nil && held[id] {
			files++
		}
	}
	pipes := map[string]bool{}
	for _, fd := range []string{"1", "2"} {
		id, err := process.FileID(filepath.Join("/proc", strconv.Itoa(pid), "fd", fd))
		if err == nil && strings.HasPrefix(id, "pipe ") && held[id] {
			pipes[id] = true
		}
	}
	return len(pipes) > files
}
