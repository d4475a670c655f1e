package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup/stat"
)

// scale is the scale of CPU weights of one version of cgroups.
type scale struct {
	file        string // the file with the weight of a group
	ordinary    uint64 // the weight of an ordinary process, which 1 GiB of memory has
	least, most uint64 // the range of the kernel
}

var (
	sharesV1 = scale{file: "cpu.shares", ordinary: 1024, least: 2, most: 1 << 18}
	weightV2 = scale{file: "cpu.weight", ordinary: 100, least: 1, most: 10000}
)

func (s scale) clamp(w float64) uint64 {
	return uint64(math.Round(min(max(w, float64(s.least)), float64(s.most))))
}

// ofInstance returns the weight of an instance with a memory limit.
func (s scale) ofInstance(memory int64) uint64 {
	return s.clamp(float64(memory) / (1 << 30) * float64(s.ordinary))
}

// ofPart returns the weight of a process in its instance. The kernel compares it only
// with the other processes of the instance, so it uses the whole range.
func (s scale) ofPart(part, whole int64) uint64 {
	return s.clamp(float64(part) / float64(max(whole, 1)) * float64(s.most))
}

// ofParent returns the weight of the parent of instances: together they weigh as much as
// they would without it.
func (s scale) ofParent(instances []uint64) uint64 {
	if len(instances) == 0 {
		return s.ordinary
	}
	sum := 0.0
	for _, w := range instances {
		sum += float64(w)
	}
	return s.clamp(sum)
}

// divide returns the memory that each process counts with. Processes without a memory
// limit of their own (0) share the memory that the others leave.
func divide(whole int64, limits map[string]int64) map[string]int64 {
	rest, sharing := whole, int64(0)
	for _, n := range limits {
		if rest -= n; n == 0 {
			sharing++
		}
	}
	out := map[string]int64{}
	for leaf, n := range limits {
		if n == 0 {
			n = max(rest, 0) / sharing
		}
		out[leaf] = n
	}
	return out
}

// cpu returns the mount of the CPU controller and its scale. The mount is empty if this
// machine has no CPU controller.
func (c *Hierarchies) cpu() (string, scale) {
	if c.IsV2() {
		return c.Unified, weightV2
	}
	return c.V1["cpu"], sharesV1
}

// setCPU sets the weight of an instance and its CPU limit.
func (c *Hierarchies) setCPU(id runtime.InstanceID, l Limits) error {
	mount, s := c.cpu()
	if mount == "" {
		if l.Cores > 0 {
			return errors.New("cannot limit the CPU time of an instance: the v1 controller cpu is not mounted; mount it under /sys/fs/cgroup, or start dewd without --cpu-limit")
		}
		return nil
	}
	dir := c.path(mount, id, "")
	if err := write(dir, s.file, strconv.FormatUint(s.ofInstance(l.Memory), 10)); err != nil {
		return err
	}
	if l.Cores > 0 {
		quota, period := strconv.FormatInt(l.Cores.quota(), 10), strconv.Itoa(periodMicros)
		if c.IsV2() {
			return write(dir, "cpu.max", quota+" "+period)
		}
		if err := errors.Join(write(dir, "cpu.cfs_period_us", period), write(dir, "cpu.cfs_quota_us", quota)); err != nil {
			return err
		}
	}
	return nil
}

// DivideCPU sets the CPU weights of the leaves of an instance by their memory limits.
// Sessions are in the init leaf: together they weigh as much as all other processes.
func (c *Hierarchies) DivideCPU(id runtime.InstanceID, memory int64, limits map[string]int64) error {
	mount, s := c.cpu()
	if mount == "" {
		return nil
	}
	parts := divide(memory, limits)
	parts[InitLeaf] = memory
	for leaf, part := range parts {
		if err := write(c.path(mount, id, leaf), s.file, strconv.FormatUint(s.ofPart(part, memory), 10)); err != nil {
			return err
		}
	}
	return nil
}

// WeighParent gives the parent of all instances the sum of their weights, so that an
// instance competes with the other processes of the machine by its own weight. It reads
// the weights from the kernel, because another version of dewd may have set them.
func (c *Hierarchies) WeighParent() error {
	mount, s := c.cpu()
	if mount == "" {
		return nil
	}
	c.weighing.Lock()
	defer c.weighing.Unlock()
	dir := filepath.Join(mount, c.Parent)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list the cgroups of instances: %w", err)
	}
	var weights []uint64
	for _, e := range entries {
		if w := stat.Count(filepath.Join(dir, e.Name()), s.file); e.IsDir() && w > 0 {
			weights = append(weights, uint64(w))
		}
	}
	return writeIfThere(dir, s.file, strconv.FormatUint(s.ofParent(weights), 10))
}

// Cores is a number of CPU cores in thousandths; 0 is no limit.
type Cores int64

// The kernel measures the CPU time of a limited group in periods.
const periodMicros = 100_000

// quota returns the CPU time in one period.
func (c Cores) quota() int64 { return int64(c) * periodMicros / 1000 }

// leastCores is the smallest limit that the kernel accepts, 0.01 cores.
const leastCores Cores = 10

var coresForm = regexp.MustCompile(`^([0-9]{1,6})(?:\.([0-9]{1,3}))?$`)

// UnmarshalText accepts a decimal number such as 1.5. Empty and 0 are no limit.
func (c *Cores) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*c = 0
		return nil
	}
	m := coresForm.FindStringSubmatch(string(b))
	if m == nil {
		return errors.New("not a number of cores such as 2 or 1.5, with up to three digits after the point")
	}
	n, err := strconv.ParseInt(m[1]+(m[2] + "000")[:3], 10, 64)
	if err != nil {
		return err
	}
	if n != 0 && Cores(n) < leastCores {
		return fmt.Errorf("less than the minimum of %s", leastCores)
	}
	*c = Cores(n)
	return nil
}

// String returns the number as a decimal, empty if there is no limit.
func (c Cores) String() string {
	if c == 0 {
		return ""
	}
	text := fmt.Sprintf("%d.%03d", c/1000, c%1000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
