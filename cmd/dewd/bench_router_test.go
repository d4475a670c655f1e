//go:build bench

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	routerRounds  = 3 // rounds of each proxy, in turn
	roundTime     = 8 * time.Second
	roundConns    = 64
	extraRoutes   = 1000
	floodRequests = 1_000_000
)

// BenchmarkRouter compares the router with other reverse proxies for the same instance,
// with kept connections on both sides. Each proxy is measured several times, in turn, and
// the medians count. It also measures the cost of 1000 routes, and the growth of dewd's
// memory after a million requests.
func BenchmarkRouter(b *testing.B) {
	if _, err := exec.LookPath("wrk"); err != nil {
		b.Skip("there is no wrk (dist/need.sh --no-start wrk=wrk)")
	}
	w := newRouteTest(b, "--log-level", "info")
	w.push("shop", "")
	w.awaitResponse("shop", "/", "web 0")
	_, address := w.get("shop", "/address")
	targets := append([]benchTarget{{"dew", w.front}}, w.rivals(b, net.JoinHostPort(address, "8080"))...)
	got := map[string][]measure{}
	for range routerRounds {
		for _, d := range targets {
			got[d.name] = append(got[d.name], measure{
				wrk:      wrk(b, d.address, "/", roundTime),
				large:    wrk(b, d.address, "/zeros?n=1000000", roundTime/2).rate,
				messages: messages(b, d.address, roundTime/2),
			})
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, d := range targets {
		of := func(field func(m measure) float64) float64 { return middle(got[d.name], field) }
		b.ReportMetric(of(func(m measure) float64 { return m.wrk.rate }), d.name+"-req/s")
		b.ReportMetric(of(func(m measure) float64 { return ms(m.wrk.p99) }), d.name+"-p99-ms")
		b.ReportMetric(of(func(m measure) float64 { return m.large }), d.name+"-MB/s")
		b.ReportMetric(of(func(m measure) float64 { return m.messages }), d.name+"-messages/s")
	}
	w.manyRoutes(b)
	w.flood(b)
	w.kill(syscall.SIGKILL)
}

type benchTarget struct{ name, address string }

// measure is one round of a proxy.
type measure struct {
	wrk      wrkResult
	large    float64 // MB per second, in responses of 1 MB
	messages float64 // WebSocket messages there and back per second
}

type wrkResult struct {
	rate float64
	p99  time.Duration
}

// middle returns the median of a figure.
func middle[T any](all []T, figure func(T) float64) float64 {
	var vs []float64
	for _, m := range all {
		vs = append(vs, figure(m))
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}

var (
	wrkRate = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	wrkP99  = regexp.MustCompile(`\s99%\s+([0-9.]+(?:us|ms|s))`)
	wrkBad  = regexp.MustCompile(`Non-2xx|Socket errors.*`)
)

// wrk sends requests for a while. None of them must fail.
func wrk(b *testing.B, address, path string, d time.Duration) wrkResult {
	b.Helper()
	out, err := exec.Command("wrk", "-t1", "-c"+strconv.Itoa(roundConns), "-d"+strconv.Itoa(int(d.Seconds()))+"s", "--latency", "--timeout", "10s",
		"-H", "Host: shop.dew.localhost", "http://"+address+path).CombinedOutput()
	rate, p99 := wrkRate.FindSubmatch(out), wrkP99.FindSubmatch(out)
	if err != nil || rate == nil || p99 == nil || wrkBad.Match(out) {
		b.Fatalf("wrk: %v\n%s", err, out)
	}
	var m wrkResult
	var perr error
	if m.rate, err = strconv.ParseFloat(string(rate[1]), 64); err == nil {
		m.p99, perr = time.ParseDuration(string(p99[1]))
	}
	if err := errors.Join(err, perr); err != nil {
		b.Fatal(err)
	}
	return m
}

// manyRoutes compares with 1000 additional routes without requests.
func (w *routeTest) manyRoutes(b *testing.B) {
	b.Helper()
	var before []wrkResult
	for range routerRounds {
		before = append(before, wrk(b, w.front, "/", roundTime))
	}
	var text strings.Builder
	text.WriteString("applications:\n- name: shop\n  routes:\n  - route: shop.dew.localhost\n")
	for i := range extraRoutes {
		fmt.Fprintf(&text, "  - route: host-%d.dew.localhost/p%d\n", i/4, i%4)
	}
	file := filepath.Join(b.TempDir(), "routes.yml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	w.dew("apply-manifest", "-f", file)
	w.awaitResponse("host-0", "/p0", "web 0")
	var after []wrkResult
	for range routerRounds {
		after = append(after, wrk(b, w.front, "/", roundTime))
	}
	rate := func(r wrkResult) float64 { return r.rate }
	b.ReportMetric(middle(after, rate)/middle(before, rate), "rate-1000-routes/rate")
}

// flood sends a million requests, and measures dewd's memory after each half.
func (w *routeTest) flood(b *testing.B) {
	b.Helper()
	var held []float64
	for range 2 {
		for asked := 0.0; asked < floodRequests/2; {
			asked += wrk(b, w.front, "/", roundTime).rate * roundTime.Seconds()
		}
		held = append(held, w.resident())
	}
	b.ReportMetric(held[1]/held[0], "memory-2nd/1st-half")
	b.ReportMetric(held[1], "MB-after-flood")
}
