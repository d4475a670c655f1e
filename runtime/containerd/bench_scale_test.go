//go:build bench

package containerd

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

// BenchmarkScale starts one instance after the other until a hundred run, each a
// separate app with one sidecar. It compares the first ten starts with the last ten,
// and the daemon's memory before with its memory after. A bare start next to each of
// those shows which part of a difference comes from containerd and the machine.
func BenchmarkScale(b *testing.B) {
	const instances, part = 100, 10
	w := newWorld(b)
	w.boot()
	f := newFloor(b, w.engine)
	var starts, floor series
	var before, after footprint
	for b.Loop() {
		w.grow("warm") // creates the image, the connections and the code once
		f.beside(b, w)
		before = w.footprint(b)
		for i := range instances {
			starts = append(starts, w.grow(fmt.Sprintf("s%04d", len(starts))))
			if i < part || i >= instances-part {
				floor = append(floor, f.beside(b, w))
			}
		}
		after = w.footprint(b)
	}
	first, last := starts[:part], starts[len(starts)-part:]
	bareFirst, bareLast := floor[:part], floor[len(floor)-part:]
	per := func(a, b int64) float64 { return float64(b-a) / 1000 / instances }
	r := newResult(b)
	b.ReportMetric(ms(first.median()), "first-ms")
	b.ReportMetric(ms(last.median()), "last-ms")
	b.ReportMetric(ratio(last.median(), first.median()), "last/first")
	b.ReportMetric(per(before.inuse, after.inuse), "heap+stack-KB/instance")
	b.ReportMetric(per(before.resident, after.resident), "rss-KB/instance")
	r.row(fmt.Sprintf("%d instances", instances), "before", "after", "")
	r.row("start (medians of ten)", first.median(), last.median(), fmt.Sprintf("ratio %.2f, goal: at most 1.50", ratio(last.median(), first.median())))
	r.row("bare start beside them", bareFirst.median(), bareLast.median(), fmt.Sprintf("ratio %.2f", ratio(bareLast.median(), bareFirst.median())))
	kilobytes := func(name string, a, b int64) {
		r.row(name, fmt.Sprintf("%d KB", a/1000), fmt.Sprintf("%d KB", b/1000), fmt.Sprintf("%.0f KB each, goal: below 200", per(a, b)))
	}
	kilobytes("living objects and stacks", before.living, after.living)
	kilobytes("heap and stacks in use", before.inuse, after.inuse)
	kilobytes("resident, rubbish given back", before.resident, after.resident)
	kilobytes("resident, as it stood", before.standing, after.standing)
	r.row("goroutines", before.goroutines, after.goroutines, fmt.Sprintf("%.1f each", float64(after.goroutines-before.goroutines)/instances))
	r.print("a hundred instances, one sidecar each")
}

// beside measures a bare start among the instances of a world.
func (f *floor) beside(b *testing.B, w *world) time.Duration {
	b.Helper()
	w.settle(b)
	s := w.startSpec(b)
	// The supervisor assigns addresses from the start of the subnet.
	last := w.prefix().Addr().As4()
	last[3] = 254
	s.Address = netip.PrefixFrom(netip.AddrFrom4(last), w.prefix().Bits())
	took := f.oneStart(b, s)
	w.settle(b)
	return took
}

// grow starts one more app. It returns the time from the stored request until the app
// runs.
func (w *world) grow(name string) time.Duration {
	w.t.Helper()
	p := w.put(testApp{
		name: name, memory: 64, command: "exec sleep 3600",
		sidecars: []app.Sidecar{sidecar("agent", "exec sleep 3600", 16)},
	})
	begin := time.Now()
	var took time.Duration
	err := testkit.UntilExactly(func() error {
		for _, st := range w.sup.Instances(p.GUID) {
			if st.State == runtime.Running {
				took = st.Since.Sub(begin)
				return nil
			}
		}
		return errors.New("no instance is running")
	})
	if err != nil {
		w.t.Fatalf("%s does not run: %v", name, err)
	}
	return took
}

// footprint is the daemon's memory usage, in bytes. The benchmark process is the
// daemon.
type footprint struct {
	living     int64 // objects and stacks, after a garbage collection
	inuse      int64 // includes the gaps between those objects, which later ones fill
	resident   int64 // after all free memory was returned to the kernel
	standing   int64 // before that: the value that an operator sees
	goroutines int
}

func (w *world) footprint(b *testing.B) footprint {
	b.Helper()
	// The log lines that the test stores are not part of the daemon.
	w.daemonLog.Reset()
	f := footprint{standing: resident(b), goroutines: goruntime.NumGoroutine()}
	goruntime.GC()
	debug.FreeOSMemory()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	f.living, f.inuse, f.resident = int64(m.HeapAlloc+m.StackInuse), int64(m.HeapInuse+m.StackInuse), resident(b)
	return f
}

// resident returns the resident memory of this process.
func resident(b *testing.B) int64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
