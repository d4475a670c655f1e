package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

func mountinfo(t *testing.T, lines ...string) string {
	t.Helper()
	return testkit.WriteFile(t, filepath.Join(t.TempDir(), "mountinfo"), strings.Join(lines, "\n")+"\n")
}

// Lines from real machines.
const (
	rootLine     = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw"
	memoryLine   = "33 29 0:28 / /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:12 - cgroup cgroup rw,memory"
	pidsLine     = "34 29 0:29 / /sys/fs/cgroup/pids rw,nosuid,nodev,noexec,relatime shared:13 - cgroup cgroup rw,pids"
	freezerLine  = "35 29 0:30 / /sys/fs/cgroup/freezer rw,nosuid,nodev,noexec,relatime shared:14 - cgroup cgroup rw,freezer"
	cpuLine      = "36 29 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:15 - cgroup cgroup rw,cpu,cpuacct"
	systemdLine  = "31 29 0:26 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:10 - cgroup cgroup rw,xattr,name=systemd"
	unifiedLine  = "30 29 0:25 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate"
	partialLine  = "40 29 0:28 /docker/4f1c /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime master:12 - cgroup cgroup rw,memory"
	partialLine2 = "41 29 0:25 /system.slice/a.scope /mnt/cg ro,relatime - cgroup2 cgroup2 rw"
	boundLine    = "90 22 0:28 / /srv/chroot/cg/memory rw,relatime shared:12 - cgroup cgroup rw,memory"
)

func TestFindCgroupsV1AndHybrid(t *testing.T) {
	t.Parallel()
	v1 := []string{rootLine, systemdLine, memoryLine, pidsLine, freezerLine, cpuLine}
	at := func(names ...string) (paths []string) {
		for _, n := range names {
			paths = append(paths, "/sys/fs/cgroup/"+n)
		}
		return paths
	}
	tests := []struct {
		name    string
		lines   []string
		unified string
		all     []string
	}{
		{"v1", v1, "", at("systemd", "memory", "pids", "freezer", "cpu,cpuacct")},
		{
			"hybrid", append([]string{unifiedLine}, v1...), "/sys/fs/cgroup/unified",
			at("unified", "systemd", "memory", "pids", "freezer", "cpu,cpuacct"),
		},
		{
			"mounted twice", append(slices.Clone(v1), boundLine, memoryLine), "",
			append(at("systemd", "memory", "pids", "freezer", "cpu,cpuacct"), "/srv/chroot/cg/memory"),
		},
		{
			"parts beside", append([]string{partialLine, partialLine2}, v1...), "",
			at("systemd", "memory", "pids", "freezer", "cpu,cpuacct"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := Find(mountinfo(t, tt.lines...), "dew")
			if err != nil {
				t.Fatal(err)
			}
			if c.IsV2() || c.Unified != tt.unified || !slices.Equal(c.All, tt.all) {
				t.Errorf("v2 %v, unified %q, all %q, want false, %q, %q", c.IsV2(), c.Unified, c.All, tt.unified, tt.all)
			}
			for ctl, want := range map[string]string{"memory": "memory", "pids": "pids", "freezer": "freezer", "cpu": "cpu,cpuacct"} {
				if got := c.V1[ctl]; got != "/sys/fs/cgroup/"+want {
					t.Errorf("controller %s at %q, want /sys/fs/cgroup/%s", ctl, got, want)
				}
			}
			if got, want := c.Memory(someInstance, "main"), "/sys/fs/cgroup/memory/dew/"+string(someInstance)+"/main"; got != want {
				t.Errorf("memory leaf = %q, want %q", got, want)
			}
		})
	}
}

func v2Line(dir string) string {
	return "29 22 0:25 / " + dir + " rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate"
}

func TestFindCgroupsV2(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "cgroup.controllers"), "cpuset cpu io memory pids\n")
	c, err := Find(mountinfo(t, rootLine, v2Line(dir)), "dew")
	if err != nil {
		t.Fatal(err)
	}
	if !c.IsV2() || c.Unified != dir || !slices.Equal(c.All, []string{dir}) {
		t.Errorf("v2 %v, unified %q, all %q, want it at %q", c.IsV2(), c.Unified, c.All, dir)
	}
	if got, want := c.OCIPath(someInstance), "/dew/"+string(someInstance)+"/init"; got != want {
		t.Errorf("cgroupsPath = %q, want %q", got, want)
	}
}

// Every machine that cannot be used is refused, with the missing part and the remedy.
func TestFindCgroupsRefuses(t *testing.T) {
	t.Parallel()
	withControllers := func(list string) string {
		dir := t.TempDir()
		testkit.WriteFile(t, filepath.Join(dir, "cgroup.controllers"), list)
		return v2Line(dir)
	}
	tests := []struct {
		name  string
		lines []string
		want  []string
	}{
		{"nothing mounted", []string{rootLine}, []string{"no cgroup file system is mounted", "mount cgroup2"}},
		{"empty", nil, []string{"no cgroup file system is mounted"}},
		{"only parts", []string{rootLine, partialLine, partialLine2}, []string{"cannot find cgroups"}},
		{"v1 without pids", []string{memoryLine, freezerLine}, []string{"controller pids is not mounted", "boot with cgroup v2"}},
		{"v1 without freezer", []string{memoryLine, pidsLine}, []string{"controller freezer is not mounted"}},
		{"v1 without memory", []string{pidsLine, freezerLine, cpuLine}, []string{"controller memory is not mounted"}},
		{"v2 without memory", []string{withControllers("cpuset cpu io pids\n")}, []string{"controller memory is not available", "kernel command line"}},
		{"v2 without pids", []string{withControllers("cpu memory\n")}, []string{"controller pids is not available"}},
		{"v2 without cpu", []string{withControllers("cpuset memory pids\n")}, []string{"controller cpu is not available"}},
		{"v2 without its list", []string{v2Line(t.TempDir())}, []string{"cannot read cgroup controllers"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Find(mountinfo(t, tt.lines...), "dew")
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error = %q, want it to say %q", err, w)
				}
			}
		})
	}
	if _, err := Find(filepath.Join(t.TempDir(), "absent"), "dew"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without mountinfo: %v, want %v", err, fs.ErrNotExist)
	}
}

func FuzzAddMount(f *testing.F) {
	for _, l := range []string{
		rootLine, memoryLine, cpuLine, systemdLine, unifiedLine, partialLine, "", " - ", "a b c / - cgroup cgroup rw",
		"1 2 3 / /x - cgroup c memory - cgroup2 c rw", "1 2 3 / /x - cgroup2 c ,,,",
	} {
		f.Add(l)
	}
	f.Fuzz(func(t *testing.T, line string) {
		c := &Hierarchies{Parent: "dew", V1: map[string]string{}}
		c.addMount(line)
		first := slices.Clone(c.All)
		c.addMount(line)
		if !slices.Equal(c.All, first) {
			t.Errorf("the same line twice: %q, then %q", first, c.All)
		}
		if len(c.All) > 1 {
			t.Errorf("one line is several mounts: %q", c.All)
		}
		if c.Unified != "" && !slices.Contains(c.All, c.Unified) {
			t.Errorf("unified %q is not among %q", c.Unified, c.All)
		}
		for ctl, m := range c.V1 {
			if !slices.Contains(c.All, m) {
				t.Errorf("%s at %q is not among %q", ctl, m, c.All)
			}
		}
	})
}

// fakeV1 and fakeV2 are hierarchies of plain folders. touch creates the control
// files in place of the kernel.
func fakeV1(t testing.TB, unified bool) *Hierarchies {
	root := t.TempDir()
	c := &Hierarchies{Parent: "dew", V1: map[string]string{}}
	for _, ctl := range []string{"memory", "pids", "freezer", "cpu"} {
		c.V1[ctl] = filepath.Join(root, ctl)
		c.All = append(c.All, c.V1[ctl])
	}
	if unified {
		c.Unified = filepath.Join(root, "unified")
		c.All = append(c.All, c.Unified)
	}
	return c
}

var someLimits = Limits{Memory: 256 << 20, PIDs: 1024}

func TestCreateV1(t *testing.T) {
	t.Parallel()
	c := fakeV1(t, false)
	memory, cpu, pids := c.path(c.V1["memory"], someInstance, ""), c.path(c.V1["cpu"], someInstance, ""), c.path(c.V1["pids"], someInstance, "")
	testkit.Touch(t, memory, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.swappiness")
	testkit.Touch(t, cpu, "cpu.shares")
	testkit.Touch(t, pids, "pids.max")
	if err := c.Create(someInstance, someLimits); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, memory, map[string]string{
		"memory.limit_in_bytes": "268435456", "memory.memsw.limit_in_bytes": "268435456", "memory.swappiness": "0",
	})
	checkFiles(t, cpu, map[string]string{"cpu.shares": "256"})
	checkFiles(t, pids, map[string]string{"pids.max": "1024"})
	if _, err := os.Stat(c.path(c.V1["freezer"], someInstance, "")); err != nil {
		t.Errorf("no group in the freezer's hierarchy: %v", err)
	}
}

// Not every machine has swap accounting and the cpu controller.
func TestCreateV1WithLess(t *testing.T) {
	t.Parallel()
	c := fakeV1(t, false)
	delete(c.V1, "cpu")
	memory := c.path(c.V1["memory"], someInstance, "")
	testkit.Touch(t, memory, "memory.limit_in_bytes")
	testkit.Touch(t, c.path(c.V1["pids"], someInstance, ""), "pids.max")
	if err := c.Create(someInstance, someLimits); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, memory, map[string]string{"memory.limit_in_bytes": "268435456"})
}

func TestCreateV2(t *testing.T) {
	t.Parallel()
	c := fakeV2(t)
	dir := c.path(c.Unified, someInstance, "")
	for _, d := range []string{c.Unified, filepath.Dir(dir), dir} {
		testkit.Touch(t, d, "cgroup.subtree_control")
	}
	testkit.Touch(t, dir, "memory.max", "memory.swap.max", "pids.max", "cpu.weight")
	if err := c.Create(someInstance, someLimits); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{c.Unified, filepath.Dir(dir), dir} {
		checkFiles(t, d, map[string]string{"cgroup.subtree_control": "+memory +pids +cpu"})
	}
	checkFiles(t, dir, map[string]string{"memory.max": "268435456", "memory.swap.max": "0", "pids.max": "1024", "cpu.weight": "25"})
}

// A limit that cannot be set is never ignored: the instance would run without it.
func TestCreateNeedsItsLimits(t *testing.T) {
	t.Parallel()
	v1, v2 := fakeV1(t, false), fakeV2(t)
	for name, c := range map[string]*Hierarchies{"v1": v1, "v2": v2} {
		if err := c.Create(someInstance, someLimits); err == nil || !strings.Contains(err.Error(), "cannot set cgroup") {
			t.Errorf("%s: error = %v, want that a limit cannot be set", name, err)
		}
	}
	testkit.Touch(t, v1.path(v1.V1["memory"], someInstance, ""), "memory.limit_in_bytes")
	if err := v1.Create(someInstance, someLimits); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "cpu.shares") {
		t.Errorf("v1 without cpu.shares: %v", err)
	}
	if err := v1.CreateLeaf(someInstance, "main", 1<<20); err == nil {
		t.Error("a leaf without its limit is accepted")
	}
}

func TestCreateLeaf(t *testing.T) {
	t.Parallel()
	v1, hybrid, v2 := fakeV1(t, false), fakeV1(t, true), fakeV2(t)
	v1Files := []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.swappiness"}
	v2Files := []string{"memory.max", "memory.swap.max", "memory.oom.group"}
	tests := []struct {
		name   string
		c      *Hierarchies
		memory int64
		files  []string
		want   map[string]string
	}{
		{"v1", v1, 64 << 20, v1Files, map[string]string{
			"memory.limit_in_bytes": "67108864", "memory.memsw.limit_in_bytes": "67108864", "memory.swappiness": "0",
		}},
		{"v1 unlimited", v1, 0, v1Files, map[string]string{
			"memory.limit_in_bytes": "", "memory.memsw.limit_in_bytes": "", "memory.swappiness": "0",
		}},
		{"hybrid", hybrid, 64 << 20, v1Files, map[string]string{"memory.limit_in_bytes": "67108864"}},
		{"v2", v2, 64 << 20, v2Files, map[string]string{"memory.max": "67108864", "memory.swap.max": "0", "memory.oom.group": "1"}},
		{"v2 unlimited", v2, 0, v2Files, map[string]string{"memory.max": "", "memory.swap.max": "0", "memory.oom.group": "1"}},
	}
	for i, tt := range tests {
		leaf := runtime.SidecarExec(i)
		testkit.Touch(t, tt.c.Memory(someInstance, leaf), tt.files...)
		if err := tt.c.CreateLeaf(someInstance, leaf, tt.memory); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		checkFiles(t, tt.c.Memory(someInstance, leaf), tt.want)
		for _, m := range tt.c.leafMounts() {
			if _, err := os.Stat(tt.c.path(m, someInstance, leaf)); err != nil {
				t.Errorf("%s: no leaf: %v", tt.name, err)
			}
		}
	}
	if got, want := hybrid.leafMounts(), hybrid.Unified; !slices.Contains(got, want) {
		t.Errorf("leaves on a hybrid host = %q, want also %q", got, want)
	}
}

func TestPlaceWritesEveryHierarchy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*Hierarchies{"v1": fakeV1(t, false), "hybrid": fakeV1(t, true), "v2": fakeV2(t)} {
		for _, m := range c.leafMounts() {
			testkit.Touch(t, c.path(m, someInstance, "main"), "cgroup.procs")
		}
		if err := c.Place(someInstance, "main", 4711); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, m := range c.leafMounts() {
			checkFiles(t, c.path(m, someInstance, "main"), map[string]string{"cgroup.procs": "4711"})
		}
		if err := c.Place(someInstance, "absent", 4711); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: placing into no leaf: %v", name, err)
		}
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	v1, v2 := fakeV1(t, true), fakeV2(t)
	for _, tt := range []struct {
		c            *Hierarchies
		dir, file    string
		frozen, thaw string
	}{
		{v1, v1.path(v1.V1["freezer"], someInstance, "main"), "freezer.state", "FROZEN", "THAWED"},
		{v2, v2.path(v2.Unified, someInstance, "main"), "cgroup.freeze", "1", "0"},
	} {
		if err := tt.c.Freeze(someInstance, "main", true); err != nil {
			t.Errorf("a leaf that is gone: %v", err)
		}
		for _, step := range []struct {
			frozen bool
			want   string
		}{{true, tt.frozen}, {false, tt.thaw}} {
			testkit.Touch(t, tt.dir, tt.file)
			if err := tt.c.Freeze(someInstance, "main", step.frozen); err != nil {
				t.Fatal(err)
			}
			checkFiles(t, tt.dir, map[string]string{tt.file: step.want})
			if got := tt.c.Frozen(someInstance, "main"); got != step.frozen {
				t.Errorf("after %s: frozen = %v", step.want, got)
			}
		}
		if tt.c.Frozen(someInstance, "gone") {
			t.Error("a leaf that is gone is frozen")
		}
	}
}

func TestKeyed(t *testing.T) {
	t.Parallel()
	const events = "low 0\nhigh 1\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n"
	tests := []struct {
		text, name string
		want       int64
	}{
		{events, "oom_kill", 2},
		{events, "oom", 3},
		{events, "oom_group_kill", 1},
		{events, "absent", 0},
		{"oom_kill_disable 0\nunder_oom 0\noom_kill 7", "oom_kill", 7},
		{"oom_kill_disable 1\nunder_oom 1\n", "oom_kill", 0},
		{"oom_kill x\n", "oom_kill", 0},
		{"oom_kill 1 2\noom_kill 3\n", "oom_kill", 3},
		{"", "oom_kill", 0},
	}
	for _, tt := range tests {
		if got := keyed(tt.text, tt.name); got != tt.want {
			t.Errorf("keyed(%q, %s) = %d, want %d", tt.text, tt.name, got, tt.want)
		}
	}
}

func TestOOMKills(t *testing.T) {
	t.Parallel()
	v1, v2 := fakeV1(t, true), fakeV2(t)
	if got := v1.OOMKills(someInstance, "main"); got != 0 {
		t.Errorf("oom kills of no leaf = %d, want 0", got)
	}
	testkit.WriteFile(t, filepath.Join(v1.Memory(someInstance, "main"), "memory.oom_control"), "oom_kill_disable 0\nunder_oom 1\noom_kill 1\n")
	if got := v1.OOMKills(someInstance, "main"); got != 1 {
		t.Errorf("oom kills on v1 = %d, want 1", got)
	}
	// The sum over the children must not be read: it would count kills in other leaves.
	testkit.WriteFile(t, filepath.Join(v2.Memory(someInstance, "main"), "memory.events"), "oom_kill 9\n")
	testkit.WriteFile(t, filepath.Join(v2.Memory(someInstance, "main"), "memory.events.local"), "oom 0\noom_kill 2\n")
	if got := v2.OOMKills(someInstance, "main"); got != 2 {
		t.Errorf("oom kills on v2 = %d, want 2", got)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	v1, v2 := fakeV1(t, false), fakeV2(t)
	tests := []struct {
		name        string
		c           *Hierarchies
		limit, peak string
		want        runtime.Memory
	}{
		{"v1", v1, "67108864\n", "1048576\n", runtime.Memory{Limit: 64 << 20, Peak: 1 << 20}},
		{"v1 without limit", v1, "9223372036854771712\n", "4096\n", runtime.Memory{Peak: 4096}},
		{"v2", v2, "67108864\n", "1048576\n", runtime.Memory{Limit: 64 << 20, Peak: 1 << 20}},
		{"v2 without limit", v2, "max\n", "4096\n", runtime.Memory{Peak: 4096}},
	}
	for i, tt := range tests {
		leaf := runtime.SidecarExec(i)
		limit, peak := "memory.limit_in_bytes", "memory.max_usage_in_bytes"
		if tt.c.IsV2() {
			limit, peak = "memory.max", "memory.peak"
		}
		dir := tt.c.Memory(someInstance, leaf)
		testkit.WriteFile(t, filepath.Join(dir, limit), tt.limit)
		testkit.WriteFile(t, filepath.Join(dir, peak), tt.peak)
		if got := tt.c.MemoryOf(someInstance, leaf); got != tt.want {
			t.Errorf("%s: usage = %+v, want %+v", tt.name, got, tt.want)
		}
	}
	// Each leaf has its own memory, without the page cache that the kernel can reclaim.
	for c, files := range map[*Hierarchies][3]string{
		v1: {"memory.usage_in_bytes", "memory.stat", "total_inactive_file"}, v2: {"memory.current", "memory.stat", "inactive_file"},
	} {
		for leaf, size := range map[string]string{"": "9000\n", runtime.MainExec: "5000\n"} {
			testkit.WriteFile(t, filepath.Join(c.Memory(someInstance, leaf), files[0]), size)
			testkit.WriteFile(t, filepath.Join(c.Memory(someInstance, leaf), files[1]), files[2]+" 1000\n")
		}
		if got := c.MemoryUsed(someInstance, runtime.MainExec); got != 4000 {
			t.Errorf("the leaf uses %d, want 4000", got)
		}
		if got := c.Consumption(someInstance).Memory; got != 8000 {
			t.Errorf("the instance uses %d, want 8000", got)
		}
	}
	if got := v2.MemoryOf(someInstance, "absent"); got != (runtime.Memory{}) {
		t.Errorf("usage of no leaf = %+v, want none", got)
	}
}

func TestProcsOfALeaf(t *testing.T) {
	t.Parallel()
	c := fakeV2(t)
	if pids, err := c.Procs(someInstance, "main"); err != nil || pids != nil {
		t.Errorf("processes of no leaf = %v, %v, want none", pids, err)
	}
	// 0 stands for a process of another pid namespace. It must never be signalled,
	// because it means the sender's own process group.
	testkit.WriteFile(t, filepath.Join(c.Memory(someInstance, "main"), "cgroup.procs"), "12\n0\n-1\nx\n4711\n")
	if pids, err := c.Procs(someInstance, "main"); err != nil || !slices.Equal(pids, []int{12, 4711}) {
		t.Errorf("processes = %v, %v, want 12 and 4711", pids, err)
	}
}

func TestSignalReachesEveryProcess(t *testing.T) {
	t.Parallel()
	c := fakeV2(t)
	a, b := testkit.Sleeper(t), testkit.Sleeper(t)
	pids := fmt.Sprintf("%d\n%d\n%d\n", testkit.NoPID, a.Process.Pid, b.Process.Pid) // the first has just exited
	testkit.WriteFile(t, filepath.Join(c.Memory(someInstance, "main"), "cgroup.procs"), pids)
	if err := c.Signal(someInstance, "main", syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{a, b} {
		if got := signalOf(cmd.Wait()); got != syscall.SIGTERM {
			t.Errorf("ended by signal %d, want SIGTERM", got)
		}
	}
}

// Kill thaws, kills and returns only when the leaf is empty.
func TestKillEmptiesALeaf(t *testing.T) {
	t.Parallel()
	c := fakeV1(t, true)
	victim := testkit.Sleeper(t)
	procs := filepath.Join(c.Memory(someInstance, "main"), "cgroup.procs")
	testkit.WriteFile(t, procs, strconv.Itoa(victim.Process.Pid)+"\n")
	testkit.Touch(t, c.path(c.V1["freezer"], someInstance, "main"), "freezer.state")
	testkit.Touch(t, c.path(c.Unified, someInstance, "main"), "cgroup.kill")
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Kill(ctx, someInstance, "main") }()
	awaitDeath(t, victim)
	select {
	case err := <-done:
		t.Fatalf("kill returned %v with a process in the leaf", err)
	default:
	}
	testkit.WriteFile(t, procs, "")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := signalOf(victim.Wait()); got != syscall.SIGKILL {
		t.Errorf("ended by signal %d, want SIGKILL", got)
	}
	checkFiles(t, c.path(c.V1["freezer"], someInstance, "main"), map[string]string{"freezer.state": "THAWED"})
	checkFiles(t, c.path(c.Unified, someInstance, "main"), map[string]string{"cgroup.kill": "1"})
}

func TestKillReportsRemainingProcesses(t *testing.T) {
	t.Parallel()
	c := fakeV2(t)
	testkit.WriteFile(t, filepath.Join(c.Memory(someInstance, "main"), "cgroup.procs"), strconv.Itoa(testkit.NoPID)+"\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := c.Kill(ctx, someInstance, "main")
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "leaf main of "+string(someInstance)+", 1 are left") {
		t.Errorf("error = %v, want the leaf and how many are left", err)
	}
	if err := c.Kill(ctx, someInstance, "absent"); err != nil {
		t.Errorf("a leaf that is gone: %v", err)
	}
}

func TestRemoveTree(t *testing.T) {
	t.Parallel()
	c := fakeV1(t, true)
	other := runtime.NewInstanceID()
	for _, m := range c.All {
		for _, leaf := range []string{"init", "main", "sidecar-0/deeper"} {
			if err := os.MkdirAll(c.path(m, someInstance, leaf), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.MkdirAll(c.path(c.Unified, other, ""), 0o755); err != nil { // in one hierarchy only
		t.Fatal(err)
	}
	testkit.Touch(t, filepath.Join(c.Unified, "dew"), "cgroup.procs") // not an instance
	if got := c.Instances(); len(got) != 2 || !slices.Contains(got, other) || !slices.Contains(got, someInstance) {
		t.Errorf("instances = %v, want %s and %s", got, someInstance, other)
	}
	for range 2 { // a missing group is not an error
		if err := c.Remove(t.Context(), someInstance); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.Instances(); !slices.Equal(got, []runtime.InstanceID{other}) {
		t.Errorf("instances = %v, want only %s", got, other)
	}
	if err := os.Remove(filepath.Join(c.Unified, "dew", "cgroup.procs")); err != nil { // the kernel removes its files with their folder
		t.Fatal(err)
	}
	if err := c.RemoveParent(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.All {
		if _, err := os.Stat(filepath.Join(m, "dew")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s/dew is still there: %v", m, err)
		}
	}
}

func TestRemoveTreeReportsTheRest(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "group")
	testkit.Touch(t, filepath.Join(dir, "leaf"), "a file that no kernel removes")
	err := removeTree(t.Context(), dir)
	if err == nil || !strings.Contains(err.Error(), "cannot remove cgroup "+filepath.Join(dir, "leaf")) {
		t.Errorf("error = %v, want the folder that stays", err)
	}
}
