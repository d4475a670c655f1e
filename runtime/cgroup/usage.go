package cgroup

import (
	"bytes"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
)

// statSize is enough for every statistics file of the kernel that is read here.
const statSize = 16 << 10

// Consumption reads the CPU time and the memory of an instance.
func (c *Hierarchies) Consumption(id runtime.InstanceID) runtime.Consumption {
	out := runtime.Consumption{Memory: c.MemoryUsed(id, "")}
	if c.IsV2() {
		out.CPU = time.Duration(statistics(c.path(c.Unified, id, ""), "cpu.stat", "usage_usec")[0]) * time.Microsecond
	} else {
		out.CPU = time.Duration(count(c.path(c.V1["cpuacct"], id, ""), "cpuacct.usage"))
	}
	return out
}

// MemoryUsed reads the memory of a leaf, or of the instance if leaf is empty. Page cache
// that the kernel would drop for another process does not count.
func (c *Hierarchies) MemoryUsed(id runtime.InstanceID, leaf string) int64 {
	return c.memory(id, leaf).Memory
}

// memory reads the memory of a leaf by kind. Memory is without the page cache that the
// kernel can reclaim, and Cache is that cache.
func (c *Hierarchies) memory(id runtime.InstanceID, leaf string) runtime.PartUsage {
	dir := c.Memory(id, leaf)
	total, stat, kernel := "memory.current", []string{"inactive_file", "anon", "file", "kernel"}, int64(0)
	if !c.IsV2() {
		total, stat, kernel = "memory.usage_in_bytes", []string{"total_inactive_file", "total_rss", "total_cache"}, count(dir, "memory.kmem.usage_in_bytes")
	}
	kinds := statistics(dir, "memory.stat", stat...)
	if len(kinds) > 3 {
		kernel = kinds[3]
	}
	return runtime.PartUsage{
		Memory: max(count(dir, total)-kinds[0], 0), Cache: kinds[0], Anon: kinds[1], File: kinds[2], Kernel: kernel,
	}
}

// PartUsage reads the usage of one leaf. Numbers that the kernel does not have are 0:
// memory.peak exists since Linux 5.19. The limit of CPU time belongs to the instance, so all
// its processes wait at the same time.
func (c *Hierarchies) PartUsage(id runtime.InstanceID, leaf string) runtime.PartUsage {
	u := c.memory(id, leaf)
	if c.IsV2() {
		dir := c.path(c.Unified, id, leaf)
		u.CPU = time.Duration(statistics(dir, "cpu.stat", "usage_usec")[0]) * time.Microsecond
		stat := statistics(c.path(c.Unified, id, ""), "cpu.stat", "nr_periods", "nr_throttled", "throttled_usec")
		u.Periods, u.Throttled, u.Waited = stat[0], stat[1], time.Duration(stat[2])*time.Microsecond
		u.Peak, u.PIDs = count(dir, "memory.peak"), int(count(dir, "pids.current"))
		return u
	}
	u.Peak, u.PIDs = count(c.Memory(id, leaf), "memory.max_usage_in_bytes"), int(count(c.path(c.V1["pids"], id, leaf), "pids.current"))
	// The unified hierarchy counts the CPU time even if it controls nothing.
	if c.Unified != "" {
		u.CPU = time.Duration(statistics(c.path(c.Unified, id, leaf), "cpu.stat", "usage_usec")[0]) * time.Microsecond
	} else {
		u.CPU = time.Duration(count(c.path(c.V1["cpuacct"], id, leaf), "cpuacct.usage"))
	}
	if c.V1["cpu"] != "" {
		stat := statistics(c.path(c.V1["cpu"], id, ""), "cpu.stat", "nr_periods", "nr_throttled", "throttled_time")
		u.Periods, u.Throttled, u.Waited = stat[0], stat[1], time.Duration(stat[2])
	}
	return u
}

// statistics reads a flat keyed file once, and returns the values of the keys. A missing
// file or key counts as 0.
func statistics(dir, file string, keys ...string) []int64 {
	out := make([]int64, len(keys))
	var room [statSize]byte
	rest := readFile(filepath.Join(dir, file), room[:])
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		name, value, ok := bytes.Cut(line, []byte{' '})
		if !ok {
			continue
		}
		for i, key := range keys {
			if string(name) == key {
				out[i], _ = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64) // not a number: the same as missing
			}
		}
	}
	return out
}

// count reads a file with one number. A missing file and "max" count as 0.
func count(dir, file string) int64 {
	var room [64]byte
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(readFile(filepath.Join(dir, file), room[:]))), 10, 64)
	return n
}

// readFile reads the start of a file into b. It uses system calls: package os registers
// each file for polling, and the usage of all instances is read every few seconds.
func readFile(path string, b []byte) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n := 0
	for n < len(b) {
		got, err := unix.Read(fd, b[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || got == 0 {
			break
		}
		n += got
	}
	return b[:n]
}
