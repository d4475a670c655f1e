package apps

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
)

func TestMemoryAdvice(t *testing.T) {
	const mb = 1 << 20
	now := time.Unix(10_000, 0)
	old := now.Add(-time.Hour)
	instance := func(since time.Time, total int64, parts ...v3.LivePart) v3.LiveInstance {
		return v3.LiveInstance{Type: "web", Since: since, MemQuota: total * mb, Processes: parts}
	}
	part := func(sidecar string, limit, mem, peak int64) v3.LivePart {
		return v3.LivePart{Sidecar: sidecar, MemQuota: limit * mb, Mem: mem * mb, Peak: peak * mb, PeakEver: peak * mb}
	}
	filled := part("", 0, 20, 127)
	filled.Cache = 106 * mb
	for _, tt := range []struct {
		name string
		in   []v3.LiveInstance
		want []string
	}{
		{"nothing runs", nil, []string{}},
		{"too young", []v3.LiveInstance{instance(now.Add(-59*time.Second), 512, part("", 0, 10, 20))}, []string{}},
		{"fits", []v3.LiveInstance{instance(old, 128, part("", 0, 60, 90))}, []string{}},
		{"unknown peak", []v3.LiveInstance{instance(old, 128, part("", 0, 0, 0))}, []string{}},
		{
			"a sidecar has too much",
			[]v3.LiveInstance{instance(old, 512, part("", 256, 150, 190), part("agent", 256, 60, 70))},
			[]string{"Sidecar agent of web peaked at 70.0M of 256.0M. Set `memory: 96M` for sidecar agent in the manifest to free 160.0M."},
		},
		{
			"the main process has too much: the sidecars keep theirs",
			[]v3.LiveInstance{instance(old, 1024, part("", 896, 90, 100), part("agent", 128, 80, 90))},
			[]string{"Process web peaked at 100.0M of 896.0M. Set `memory: 256M` for process web in the manifest to free 768.0M."},
		},
		{
			"close to the limit",
			[]v3.LiveInstance{instance(old, 128, part("", 0, 110, 120))},
			[]string{"Process web peaked at 120.0M of 128.0M: it is close to its limit. Set `memory: 160M` for process web in the manifest, or use less memory."},
		},
		{"cached files fill the memory", []v3.LiveInstance{instance(old, 128, filled)}, []string{}},
		{
			"the highest peak of all instances counts",
			[]v3.LiveInstance{instance(old, 256, part("", 0, 10, 20)), instance(old, 256, part("", 0, 100, 180)), instance(now, 256, part("", 0, 250, 255))},
			[]string{},
		},
		{"a shared limit has no owner", []v3.LiveInstance{instance(old, 512, part("", 512, 10, 20), part("agent", 0, 10, 20))}, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(memoryAdvice(tt.in, now), tt.want); diff != "" {
				t.Errorf("advice (-got +want):\n%s", diff)
			}
		})
	}
}

func TestMemoryBar(t *testing.T) {
	for _, tt := range []struct {
		peak, limit int64
		want        string
	}{
		{0, 100, "[....................] 0%"},
		{50, 100, "[##########..........] 50%"},
		{120, 100, "[####################] 120%"},
		{1, 0, ""},
	} {
		if got := memoryBar(tt.peak, tt.limit); got != tt.want {
			t.Errorf("memoryBar(%d, %d) = %q, want %q", tt.peak, tt.limit, got, tt.want)
		}
	}
}

func TestThrottledNote(t *testing.T) {
	t.Parallel()
	for throttled, want := range map[float64]string{0: "", 0.004: "", 0.4: "web/1 waited 40% of the time because of the CPU limit (dewd --cpu-limit)"} {
		in := v3.LiveInstance{Type: "web", Index: 1, Processes: []v3.LivePart{{Throttled: throttled}, {Sidecar: "agent", Throttled: throttled}}}
		if got := throttledNote(in); got != want {
			t.Errorf("throttled %v: %q, want %q", throttled, got, want)
		}
	}
	if got := throttledNote(v3.LiveInstance{}); got != "" {
		t.Errorf("without a measurement: %q", got)
	}
}
