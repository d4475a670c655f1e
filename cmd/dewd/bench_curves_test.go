//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/testkit"
)

// BenchmarkCurves measures what one instance, one follower of a log and one request cost
// if there are few and if there are many.
func BenchmarkCurves(b *testing.B) {
	b.Run("Instances", benchManyInstances)
	b.Run("Followers", benchManyFollowers)
	b.Run("Requests", benchManyApps)
}

// reportCurve reports the cost of one item for each number of items, and the cost with the
// most items against that with the fewest.
func reportCurve(b *testing.B, unit string, cost map[int]float64) {
	b.Helper()
	var counts []int
	for n := range cost {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	for _, n := range counts {
		b.ReportMetric(cost[n], fmt.Sprintf("%s-%d", unit, n))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(cost[counts[len(counts)-1]]/cost[counts[0]], "last/first")
}

// client returns a client of dewd without the start of a program.
func (c *cell) client() *client.Client {
	return testkit.Must(client.New(client.Options{Run: c.run}))(c.t)
}

// benchManyInstances starts instances of one app at the same time, and waits until all run.
func benchManyInstances(b *testing.B) {
	c := newCell(b, "--log-level", "warn")
	c.start()
	dir := filepath.Join(filepath.Dir(c.root), "app")
	c.writeFile(filepath.Join(dir, "testapp"), c.testapp())
	file := filepath.Join(filepath.Dir(c.root), "manifest.yml")
	c.writeFile(file, fmt.Sprintf("applications:\n- {name: many, path: %s, buildpacks: [binary_buildpack], command: ./testapp serve 0.0.0.0:8080, memory: 32M, disk_quota: 64M, health-check-type: process}\n", dir))
	c.dew("push", "-f", file)
	api := c.client()
	app := testkit.Must(api.Apps().ByName(b.Context(), "many"))(b)
	cost := map[int]float64{}
	for _, n := range []int{1, 10, 50, 100} {
		var took []time.Duration
		for range 3 {
			c.dew("stop", "many")
			c.dew("scale", "many", "-i", strconv.Itoa(n), "-f")
			began := time.Now()
			testkit.Must(api.Apps().SetState(b.Context(), app.GUID, client.Start))(b)
			c.eventually(fmt.Sprintf("%d instances run", n), func() error { return c.runs(api, app.GUID, n) })
			took = append(took, time.Since(began))
		}
		cost[n] = ms(median(took)) / float64(n)
	}
	reportCurve(b, "ms/instance", cost)
	c.kill(syscall.SIGKILL)
}

// runs returns an error unless n instances of an app run.
func (c *cell) runs(api *client.Client, process string, n int) error {
	stats, err := api.Processes().Stats(c.t.Context(), process)
	if err != nil {
		return err
	}
	running := 0
	for _, s := range stats {
		if s.State == "RUNNING" {
			running++
		}
	}
	if running != n {
		return fmt.Errorf("%d of %d instances run", running, n)
	}
	return nil
}

// benchManyFollowers measures the processor time of dewd for each line that one follower
// gets, while an app prints 1,000 lines per second.
func benchManyFollowers(b *testing.B) {
	c := newCell(b, "--log-level", "warn")
	c.start()
	c.pushCount(10_000_000, 1000)
	api := c.client()
	app := testkit.Must(api.Apps().ByName(b.Context(), "bench"))(b)
	const measured = 5 * time.Second
	idle := c.processorTime(measured)
	cost := map[int]float64{}
	for _, n := range []int{1, 10, 100} {
		ctx, cancel := context.WithCancel(b.Context())
		var lines atomic.Int64
		var followers sync.WaitGroup
		for range n {
			followers.Go(func() {
				count := client.Lines{Line: func(*v3.Line) error { lines.Add(1); return nil }}
				err := api.Logs().Stream(ctx, app.GUID, client.LogQuery{Follow: true}, count)
				if err != nil && !errors.Is(err, context.Canceled) {
					b.Error(err)
				}
			})
		}
		c.eventually("all followers get lines", func() error {
			if lines.Load() < int64(100*n) {
				return errors.New("not yet")
			}
			return nil
		})
		before := lines.Load()
		used := c.processorTime(measured) - idle
		cost[n] = float64(used.Microseconds()) / float64(lines.Load()-before)
		cancel()
		followers.Wait()
	}
	reportCurve(b, "µs/line", cost)
	c.kill(syscall.SIGKILL)
}

// processorTime returns how much processor time dewd uses during a time.
func (c *cell) processorTime(d time.Duration) time.Duration {
	c.t.Helper()
	used := func() time.Duration {
		text := testkit.Must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid)))(c.t)
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		const user, system = 11, 12 // counted after the name
		ticks := testkit.Must(strconv.Atoi(fields[user]))(c.t) + testkit.Must(strconv.Atoi(fields[system]))(c.t)
		return time.Duration(ticks) * time.Second / 100
	}
	before := used()
	time.Sleep(d)
	return used() - before
}

// benchManyApps measures the requests of `cf app` and `cf push` for one app among others.
func benchManyApps(b *testing.B) {
	c := newCell(b, "--log-level", "warn")
	c.start()
	api := c.client()
	cost := map[int]float64{}
	for _, n := range []int{1, 100, 1000} {
		c.dew("apply-manifest", "-f", c.manyApps(n))
		app := testkit.Must(api.Apps().ByName(b.Context(), "app-000"))(b)
		var took []time.Duration
		for range 200 {
			began := time.Now()
			for _, path := range []string{
				"/v3/apps?names=app-000&space_guids=" + app.Relationships.Space.Data.GUID,
				"/v3/apps/" + app.GUID + "/processes", "/v3/apps/" + app.GUID + "/routes", "/v3/processes/" + app.GUID + "/stats",
			} {
				resp := testkit.Must(api.Send(b.Context(), client.Request{Method: http.MethodGet, Path: path}))(b)
				_, err := io.Copy(io.Discard, resp.Body) // so that the connection is used again
				if err := errors.Join(err, resp.Body.Close()); err != nil {
					b.Fatal(err)
				}
				if resp.StatusCode != http.StatusOK {
					b.Fatalf("GET %s: %s", path, resp.Status)
				}
			}
			took = append(took, time.Since(began))
		}
		cost[n] = ms(median(took))
	}
	reportCurve(b, "ms/app", cost)
	c.kill(syscall.SIGKILL)
}
