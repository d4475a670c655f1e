//go:build bench

package containerd

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/dewrun/dew/runtime/containerd/shim"
)

// The benchmarks compare with a floor that is measured in the same run, in alternation.
// The speed of the machine and its current load then affect both sides.
// docs/performance.md explains the figures.
//
// One operation of a benchmark is all its turns. Nothing is asserted, because a busy
// machine must not fail.

// settle waits until the previous turn is cleaned up: the kernel removes links in the
// background, and shims exit by themselves.
func (w *world) settle(b *testing.B) {
	b.Helper()
	w.eventually("the previous turn is cleaned up", func() error {
		w.engine.retryRemovals(b.Context()) // as Keep does in a daemon
		running := len(w.engine.known.all())
		veths, err := w.engine.net.Veths()
		if err != nil {
			return err
		}
		shims, err := shim.List(w.engine.cfg.Names.Namespace)
		if err == nil && (len(veths) > running || len(shims) > running) {
			err = fmt.Errorf("%d links and %d shims for %d containers", len(veths), len(shims), running)
		}
		return err
	})
}

// repetitions returns n, or the value of DEW_BENCH_N.
func repetitions(b *testing.B, n int) int {
	b.Helper()
	s := os.Getenv("DEW_BENCH_N")
	if s == "" {
		return n
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		b.Fatalf("DEW_BENCH_N is %q: it must be a number above 0", s)
	}
	return n
}

// series has repeated measurements of one value.
type series []time.Duration

// quantile returns the smallest value that at least the fraction q of the series does
// not exceed.
func (ts series) quantile(q float64) time.Duration {
	if len(ts) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(ts))
	rank := int(q * float64(len(sorted)))
	if float64(rank) < q*float64(len(sorted)) {
		rank++
	}
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func (ts series) median() time.Duration { return ts.quantile(0.5) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func ratio[T ~int64](a, floor T) float64 { return float64(a) / float64(cmp.Or(floor, 1)) }

// result is the output of a benchmark: metrics next to its name, and a table.
type result struct {
	b     *testing.B
	lines [][]string
}

func newResult(b *testing.B) *result {
	b.ReportMetric(0, "ns/op") // the total time of all turns has no meaning
	return &result{b: b}
}

// row adds a line to the table.
func (r *result) row(cells ...any) {
	line := make([]string, len(cells))
	for i, c := range cells {
		switch c := c.(type) {
		case time.Duration:
			line[i] = fmt.Sprintf("%.2f ms", ms(c))
		case float64:
			line[i] = fmt.Sprintf("%.2f", c)
		default:
			line[i] = fmt.Sprint(c)
		}
	}
	r.lines = append(r.lines, line)
}

// spread adds the quantiles of a series.
func (r *result) spread(name string, ts series) {
	r.row(name, ts.median(), ts.quantile(0.9), ts.quantile(0.99), ts.quantile(1))
}

// print prints the table. The testing package truncates it after ten lines.
func (r *result) print(title string) {
	var buf bytes.Buffer
	w := tabwriter.NewWriter(&buf, 0, 0, 3, ' ', 0)
	for _, l := range r.lines {
		fmt.Fprintln(w, strings.Join(l, "\t"))
	}
	if err := w.Flush(); err != nil {
		r.b.Fatal(err)
	}
	r.b.Logf("%s\n%s", title, strings.TrimRight(buf.String(), "\n"))
}
