package cgroup

import (
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup/stat"
)

// Consumption reads the CPU time and the memory of an instance.
func (c *Hierarchies) Consumption(id runtime.InstanceID) runtime.Consumption {
	out := runtime.Consumption{Memory: c.MemoryUsed(id, "")}
	if c.IsV2() {
		out.CPU = time.Duration(stat.Read(c.path(c.Unified, id, ""), "cpu.stat", "usage_usec")[0]) * time.Microsecond
	} else {
		out.CPU = time.Duration(stat.Count(c.path(c.V1["cpuacct"], id, ""), "cpuacct.usage"))
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
	total, keys, kernel := "memory.current", []string{"inactive_file", "anon", "file", "kernel"}, int64(0)
	if !c.IsV2() {
		total, keys, kernel = "memory.usage_in_bytes", []string{"total_inactive_file", "total_rss", "total_cache"}, stat.Count(dir, "memory.kmem.usage_in_bytes")
	}
	kinds := stat.Read(dir, "memory.stat", keys...)
	if len(kinds) > 3 {
		kernel = kinds[3]
	}
	return runtime.PartUsage{
		Memory: max(stat.Count(dir, total)-kinds[0], 0), Cache: kinds[0], Anon: kinds[1], File: kinds[2], Kernel: kernel,
	}
}

// PartUsage reads the usage of one leaf. Numbers that the kernel does not have are 0:
// memory.peak exists since Linux 5.19. The limit of CPU time belongs to the instance, so all
// its processes wait at the same time.
func (c *Hierarchies) PartUsage(id runtime.InstanceID, leaf string) runtime.PartUsage {
	u := c.memory(id, leaf)
	if c.IsV2() {
		dir := c.path(c.Unified, id, leaf)
		u.CPU = time.Duration(stat.Read(dir, "cpu.stat", "usage_usec")[0]) * time.Microsecond
		cpu := stat.Read(c.path(c.Unified, id, ""), "cpu.stat", "nr_periods", "nr_throttled", "throttled_usec")
		u.Periods, u.Throttled, u.Waited = cpu[0], cpu[1], time.Duration(cpu[2])*time.Microsecond
		u.Peak, u.PIDs = stat.Count(dir, "memory.peak"), int(stat.Count(dir, "pids.current"))
		return u
	}
	u.Peak, u.PIDs = stat.Count(c.Memory(id, leaf), "memory.max_usage_in_bytes"), int(stat.Count(c.path(c.V1["pids"], id, leaf), "pids.current"))
	// The unified hierarchy counts the CPU time even if it controls nothing.
	if c.Unified != "" {
		u.CPU = time.Duration(stat.Read(c.path(c.Unified, id, leaf), "cpu.stat", "usage_usec")[0]) * time.Microsecond
	} else {
		u.CPU = time.Duration(stat.Count(c.path(c.V1["cpuacct"], id, leaf), "cpuacct.usage"))
	}
	if c.V1["cpu"] != "" {
		cpu := stat.Read(c.path(c.V1["cpu"], id, ""), "cpu.stat", "nr_periods", "nr_throttled", "throttled_time")
		u.Periods, u.Throttled, u.Waited = cpu[0], cpu[1], time.Duration(cpu[2])
	}
	return u
}
