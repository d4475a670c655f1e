//go:build bench

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkPush pushes an unchanged app until its route answers, and compares with the
// start of the instance alone, from the app's log. It also measures the resources of an
// idle dewd with this app, and the delay of a printed line in a following dew logs.
func BenchmarkPush(b *testing.B) {
	c := newCell(b)
	c.start()
	file := c.benchApp()
	c.dew("push", "-f", file)
	router := c.router()
	var push, start []time.Duration
	for range max(b.N, 10) {
		began := time.Now()
		c.dew("push", "-f", file)
		ask(b, router, "bench")
		push = append(push, time.Since(began))
		c.dew("stop", "bench") // so that the next start has nothing to stop
		c.dew("start", "bench")
		ask(b, router, "bench")
		start = append(start, c.lastStart())
	}
	late := c.lateness()
	b.ReportMetric(0, "ns/op")
	reportTimes(b, "ms/push", push)
	reportTimes(b, "ms/start", start)
	b.ReportMetric(ms(median(push))/ms(median(start)), "push/start")
	reportTimes(b, "ms/line", late)
	b.ReportMetric(c.resident(), "MB-idle")
	c.kill(syscall.SIGKILL)
}

// benchApp writes an app with a sidecar that prints the time ten times a second.
func (c *cell) benchApp() string {
	c.t.Helper()
	dir := filepath.Join(filepath.Dir(c.root), "app")
	text := fmt.Sprintf(`applications:
- name: bench
  buildpacks: [binary_buildpack]
  path: %s
  command: ./testapp serve 0.0.0.0:8080
  memory: 128M
  sidecars:
  - {name: clock, process_types: [web], command: "while :; do date +%%s%%N; sleep 0.1; done", memory: 32MB}
`, dir)
	c.writeFile(filepath.Join(dir, "testapp"), c.testapp())
	file := filepath.Join(filepath.Dir(c.root), "manifest.yml")
	c.writeFile(file, text)
	return file
}

func (c *cell) router() string {
	c.t.Helper()
	out, err := c.dewCommand("status", "--json").Output()
	var st struct{ Router string }
	if err == nil {
		err = json.Unmarshal(out, &st)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return st.Router
}

// ask sends requests to the app until it answers 200.
func ask(t testing.TB, router, app string) {
	t.Helper()
	for {
		req, err := http.NewRequest(http.MethodGet, router, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = app + ".dew.localhost"
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode == http.StatusOK {
			return
		}
	}
}

// lastStart returns the time from the creation of the newest container until it is
// healthy.
func (c *cell) lastStart() time.Duration {
	c.t.Helper()
	out, err := c.dewCommand("logs", "bench", "--recent", "-n", "200").Output()
	if err != nil {
		c.t.Fatal(err)
	}
	at := map[string]time.Time{}
	for line := range strings.Lines(string(out)) {
		stamp, rest, _ := strings.Cut(line, " ")
		for _, what := range []string{"Creating container", "Container became healthy"} {
			if t, err := time.Parse(time.RFC3339, stamp); err == nil && strings.Contains(rest, what) {
				at[what] = t
			}
		}
	}
	return at["Container became healthy"].Sub(at["Creating container"])
}

// lateness follows the log and returns the delays of the printed times.
func (c *cell) lateness() []time.Duration {
	c.t.Helper()
	cmd := c.dewCommand("logs", "bench")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	var late []time.Duration
	began := time.Now()
	for sc := bufio.NewScanner(out); len(late) < 50 && sc.Scan(); {
		f := strings.Fields(sc.Text())
		n, err := strconv.ParseInt(f[len(f)-1], 10, 64)
		if printed := time.Unix(0, n); err == nil && printed.After(began) {
			late = append(late, time.Since(printed))
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	return late
}

// resident returns the memory of dewd, in MB.
func (c *cell) resident() float64 {
	c.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		c.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		c.t.Fatal(err)
	}
	return float64(kb) / 1024
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

// reportTimes reports the median of ds and, if there are enough, the time that nine of ten do
// not exceed.
func reportTimes(b *testing.B, unit string, ds []time.Duration) {
	b.Helper()
	b.ReportMetric(ms(median(ds)), unit) // sorts ds
	if len(ds) >= 10 {
		b.ReportMetric(ms(ds[(len(ds)*9+9)/10-1]), unit+"-p90")
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
