package cgroup

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

func TestWeightOfInstance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		memory         int64
		shares, weight uint64
	}{
		{-1, 2, 1},
		{0, 2, 1},
		{1 << 20, 2, 1},
		{3 << 20, 3, 1},
		{64 << 20, 64, 6},
		{256 << 20, 256, 25},
		{1 << 30, 1024, 100},
		{1<<30 + 1<<29, 1536, 150},
		{100 << 30, 102400, 10000},
		{1 << 50, 262144, 10000},
	} {
		if got := sharesV1.ofInstance(tt.memory); got != tt.shares {
			t.Errorf("cpu.shares of %d bytes = %d, want %d", tt.memory, got, tt.shares)
		}
		if got := weightV2.ofInstance(tt.memory); got != tt.weight {
			t.Errorf("cpu.weight of %d bytes = %d, want %d", tt.memory, got, tt.weight)
		}
	}
}

func TestWeightOfParent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		s         scale
		instances []uint64
		want      uint64
	}{
		{sharesV1, nil, 1024},
		{weightV2, nil, 100},
		{sharesV1, []uint64{64}, 64},
		{sharesV1, []uint64{64, 256, 1024}, 1344},
		{weightV2, []uint64{6, 25, 100}, 131},
		{sharesV1, []uint64{200_000, 200_000}, 262144},
		{weightV2, []uint64{9999, 9999}, 10000},
	} {
		if got := tt.s.ofParent(tt.instances); got != tt.want {
			t.Errorf("%s of the parent of %v = %d, want %d", tt.s.file, tt.instances, got, tt.want)
		}
	}
}

func TestWeightOfPart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		part, whole    int64
		shares, weight uint64
	}{
		{256, 256, 262144, 10000},
		{64, 256, 65536, 2500},
		{1, 1 << 40, 2, 1},
		{0, 0, 2, 1},
		{2, 1, 262144, 10000},
	} {
		if got := sharesV1.ofPart(tt.part, tt.whole); got != tt.shares {
			t.Errorf("cpu.shares of %d in %d = %d, want %d", tt.part, tt.whole, got, tt.shares)
		}
		if got := weightV2.ofPart(tt.part, tt.whole); got != tt.weight {
			t.Errorf("cpu.weight of %d in %d = %d, want %d", tt.part, tt.whole, got, tt.weight)
		}
	}
}

func TestDivide(t *testing.T) {
	t.Parallel()
	type sizes = map[string]int64
	for _, tt := range []struct {
		name         string
		whole        int64
		limits, want sizes
	}{
		{"no process", 100, sizes{}, sizes{}},
		{"main alone", 100, sizes{"main": 0}, sizes{"main": 100}},
		{"a sidecar with a limit", 100, sizes{"main": 0, "a": 30}, sizes{"main": 70, "a": 30}},
		{"two without a limit", 100, sizes{"main": 0, "a": 0, "b": 40}, sizes{"main": 30, "a": 30, "b": 40}},
		{"every limit is given", 100, sizes{"main": 75, "a": 25}, sizes{"main": 75, "a": 25}},
		{"nothing is left", 100, sizes{"main": 0, "a": 120}, sizes{"main": 0, "a": 120}},
	} {
		if got := divide(tt.whole, tt.limits); !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestCores(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		want  Cores
		quota int64
		shown string
	}{
		{"", 0, 0, ""},
		{"0", 0, 0, ""},
		{"0.0", 0, 0, ""},
		{"0.01", 10, 1000, "0.01"},
		{"0.5", 500, 50_000, "0.5"},
		{"1", 1000, 100_000, "1"},
		{"1.50", 1500, 150_000, "1.5"},
		{"10", 10_000, 1_000_000, "10"},
		{"2.125", 2125, 212_500, "2.125"},
	} {
		var c Cores
		if err := c.UnmarshalText([]byte(tt.text)); err != nil || c != tt.want || c.quota() != tt.quota || c.String() != tt.shown {
			t.Errorf("%q = %d, quota %d, %q, %v; want %d, quota %d, %q", tt.text, c, c.quota(), c, err, tt.want, tt.quota, tt.shown)
		}
	}
	for _, text := range []string{"x", "-1", "1e3", ".5", "1.", "1.2345", "0.009", "NaN", "1,5", " 1", "99999999"} {
		if c := Cores(7); c.UnmarshalText([]byte(text)) == nil || c != 7 {
			t.Errorf("%q is accepted as %d", text, c)
		}
	}
}

func FuzzCores(f *testing.F) {
	for _, text := range []string{"", "1.5", "0.01", "999999.999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var c, again Cores
		if c.UnmarshalText([]byte(text)) != nil {
			return
		}
		if c != 0 && c < leastCores {
			t.Errorf("%q = %d, less than the minimum", text, c)
		}
		if err := again.UnmarshalText([]byte(c.String())); err != nil || again != c {
			t.Errorf("%q is shown as %q, which is %d, %v", text, c, again, err)
		}
	})
}

// The parent has the sum of its instances, even of those that this dewd did not start.
func TestWeighParent(t *testing.T) {
	t.Parallel()
	const other runtime.InstanceID = "1a1b2c3d-0000-4000-8000-abcd"
	for _, tt := range []struct {
		c               *Hierarchies
		old, both, none string
	}{{fakeV1(t, true), "700", "956", "1024"}, {fakeV2(t), "17", "42", "100"}} {
		mount, s := tt.c.cpu()
		parent := filepath.Join(mount, tt.c.Parent)
		if err := tt.c.WeighParent(); err != nil {
			t.Errorf("without a parent: %v", err)
		}
		touchInstance(t, tt.c)
		testkit.WriteFile(t, filepath.Join(tt.c.path(mount, other, ""), s.file), tt.old+"\n")
		if err := tt.c.Create(someInstance, someLimits); err != nil {
			t.Fatal(err)
		}
		checkFiles(t, parent, map[string]string{s.file: tt.both})
		for _, step := range []struct {
			id   runtime.InstanceID
			want string
		}{{someInstance, tt.old}, {other, tt.none}} {
			emptyTree(t, tt.c, step.id)
			if err := tt.c.Remove(t.Context(), step.id); err != nil {
				t.Fatal(err)
			}
			checkFiles(t, parent, map[string]string{s.file: step.want})
		}
	}
}

func TestLimitCPU(t *testing.T) {
	t.Parallel()
	limits := someLimits
	limits.Cores = 1500
	v1, v2 := fakeV1(t, false), fakeV2(t)
	for _, c := range []*Hierarchies{v1, v2} {
		touchInstance(t, c)
		if err := c.Create(someInstance, limits); err != nil {
			t.Fatal(err)
		}
	}
	checkFiles(t, v1.path(v1.V1["cpu"], someInstance, ""), map[string]string{"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"})
	checkFiles(t, v2.path(v2.Unified, someInstance, ""), map[string]string{"cpu.max": "150000 100000"})
	delete(v1.V1, "cpu")
	if err := v1.Create(someInstance, limits); err == nil || !strings.Contains(err.Error(), "--cpu-limit") {
		t.Errorf("without the cpu controller: %v, want an error", err)
	}
}

func TestDivideCPU(t *testing.T) {
	t.Parallel()
	v1, v2 := fakeV1(t, true), fakeV2(t)
	for c, want := range map[*Hierarchies][3]string{v1: {"196608", "65536", "262144"}, v2: {"7500", "2500", "10000"}} {
		mount, s := c.cpu()
		leaves := []string{runtime.MainExec, runtime.SidecarExec(0), InitLeaf}
		for _, leaf := range leaves {
			testkit.Touch(t, c.path(mount, someInstance, leaf), s.file)
		}
		if err := c.DivideCPU(someInstance, 256<<20, map[string]int64{runtime.MainExec: 0, runtime.SidecarExec(0): 64 << 20}); err != nil {
			t.Fatal(err)
		}
		for i, leaf := range leaves {
			checkFiles(t, c.path(mount, someInstance, leaf), map[string]string{s.file: want[i]})
		}
	}
	delete(v1.V1, "cpu")
	if err := v1.DivideCPU(someInstance, 1, map[string]int64{runtime.MainExec: 0}); err != nil {
		t.Errorf("without the cpu controller: %v", err)
	}
}

// An instance that an older dewd started has no leaf in the hierarchy of the CPU
// controller.
func TestPlaceWithoutCPULeaf(t *testing.T) {
	t.Parallel()
	c := fakeV1(t, true)
	for _, m := range c.leafMounts() {
		if m != c.V1["cpu"] {
			testkit.Touch(t, c.path(m, someInstance, "main"), "cgroup.procs")
		}
	}
	if err := c.Place(someInstance, "main", 4711); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, c.path(c.Unified, someInstance, "main"), map[string]string{"cgroup.procs": "4711"})
}
