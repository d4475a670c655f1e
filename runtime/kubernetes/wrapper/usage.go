package wrapper

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dewrun/dew/runtime/cgroup/stat"
	"github.com/dewrun/dew/runtime/kubernetes/link"
	"github.com/dewrun/dew/runtime/process"
)

// v2 reports whether the container has control groups of version 2.
func (w *wrapper) v2() bool {
	_, err := os.Stat(filepath.Join(w.cfg.Cgroup, "cgroup.controllers"))
	return err == nil
}

// group returns the folder of a controller.
func (w *wrapper) group(controller string) string {
	if w.v2() {
		return w.cfg.Cgroup
	}
	return filepath.Join(w.cfg.Cgroup, controller)
}

// oomKills returns how many processes of the container the kernel has killed because the
// memory limit was reached.
func (w *wrapper) oomKills() int64 {
	if w.v2() {
		return stat.Read(w.cfg.Cgroup, "memory.events", "oom_kill")[0]
	}
	return stat.Read(w.group("memory"), "memory.oom_control", "oom_kill")[0]
}

// usage reads what the container has used so far.
func (w *wrapper) usage() link.Usage {
	u := link.Usage{Exec: w.cfg.Exec, OOMKills: w.oomKills(), PIDs: int(stat.Count(w.group("pids"), "pids.current"))}
	memory := w.group("memory")
	if w.v2() {
		kinds := stat.Read(memory, "memory.stat", "inactive_file", "anon", "file", "kernel")
		u.Memory, u.Peak, u.Kernel = stat.Count(memory, "memory.current"), stat.Count(memory, "memory.peak"), kinds[3]
		u.Cache, u.Anon, u.File = kinds[0], kinds[1], kinds[2]
		cpu := stat.Read(memory, "cpu.stat", "usage_usec", "nr_periods", "nr_throttled", "throttled_usec")
		u.CPU, u.Periods, u.Throttled, u.Waited = time.Duration(cpu[0])*time.Microsecond, cpu[1], cpu[2], time.Duration(cpu[3])*time.Microsecond
	} else {
		kinds := stat.Read(memory, "memory.stat", "total_inactive_file", "total_rss", "total_cache")
		u.Memory, u.Peak = stat.Count(memory, "memory.usage_in_bytes"), stat.Count(memory, "memory.max_usage_in_bytes")
		u.Cache, u.Anon, u.File, u.Kernel = kinds[0], kinds[1], kinds[2], stat.Count(memory, "memory.kmem.usage_in_bytes")
		cpu := stat.Read(w.group("cpu"), "cpu.stat", "nr_periods", "nr_throttled", "throttled_time")
		u.CPU, u.Periods, u.Throttled, u.Waited = time.Duration(stat.Count(w.group("cpuacct"), "cpuacct.usage")), cpu[0], cpu[1], time.Duration(cpu[2])
	}
	u.Memory = max(u.Memory-u.Cache, 0)
	for _, c := range w.out {
		u.Paused = u.Paused || c.paused()
	}
	return u
}

func (w *wrapper) handleUsage(rw http.ResponseWriter, r *http.Request) {
	u := w.usage()
	w.mu.Lock()
	child := w.child
	w.mu.Unlock()
	if child != 0 {
		u.Files = process.CountFiles(child)
	}
	if r.URL.Query().Has("ports") {
		u.Ports = w.ports()
	}
	if r.URL.Query().Has("disk") {
		for _, dir := range w.cfg.Folders {
			bytes, files := diskUsage(dir)
			u.Disk += bytes
			u.Inodes += files
		}
	}
	_ = json.NewEncoder(rw).Encode(u) // the agent finds out that the answer is missing
}

// ports returns the ports on which the command listens.
func (w *wrapper) ports() []link.Port {
	sockets, err := process.Listening()
	if err != nil || len(sockets) == 0 {
		return nil
	}
	open := process.OpenSockets(w.processes())
	var out []link.Port
	for _, s := range sockets {
		if open[s.Inode] {
			out = append(out, link.Port{Port: int(s.Address.Port()), Loopback: s.Address.Addr().IsLoopback()})
		}
	}
	return out
}

// diskUsage returns the size of all files below a folder, in bytes, and their number. It
// skips files that it cannot read.
func diskUsage(dir string) (n, files int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // the rest is measured
		}
		if fi, err := d.Info(); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				n += st.Blocks * 512
				files++
			}
		}
		return nil
	})
	return n, files
}

// memoryInterval is how often the wrapper checks whether the kernel has killed a process.
const memoryInterval = 200 * time.Millisecond

// watchMemory makes control groups of version 1 behave like version 2: one kill because
// of the memory limit ends the whole container. Version 1 alone kills one child, and the
// shell that started it can keep running.
func (w *wrapper) watchMemory(ctx context.Context) {
	if w.v2() {
		return
	}
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if w.oomKills() > 0 {
				w.killAll()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
