//go:build bench

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
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

	"github.com/dewrun/dew/testkit"
)

const (
	routerRounds  = 3 // rounds of each proxy, in turn
	roundTime     = 8 * time.Second
	roundConns    = 64
	extraRoutes   = 1000
	floodRequests = 1_000_000
)

// BenchmarkRouter compares the router with Debian's caddy and nginx as reverse proxies
// for the same instance, with keep-alive on both sides. wrk measures each of them
// several times, one after the other, and the medians count. It also measures the cost
// of 1000 routes, and the growth of dewd's memory after a million requests.
func BenchmarkRouter(b *testing.B) {
	for _, program := range []string{"wrk", "caddy", "nginx"} {
		if _, err := exec.LookPath(program); err != nil {
			b.Skipf("there is no %s (dist/need.sh --no-start caddy=caddy nginx=nginx-light wrk=wrk)", program)
		}
	}
	w := newRouteTest(b, "--log-level", "info")
	w.push("shop", "")
	w.awaitResponse("shop", "/", "web 0")
	_, address := w.get("shop", "/address")
	to := net.JoinHostPort(address, "8080")
	targets := []benchTarget{
		{"dew", w.front}, {"caddy", w.rival(b, to, startCaddy)}, {"nginx", w.rival(b, to, startNginx)},
	}
	got := map[string][]measure{}
	for range routerRounds {
		for _, d := range targets {
			got[d.name] = append(got[d.name], wrk(b, d.address, roundTime))
		}
	}
	b.ReportMetric(0, "ns/op")
	mid := map[string]measure{}
	for name, ms := range got {
		mid[name] = medianOf(ms)
		b.ReportMetric(mid[name].rate, name+"-req/s")
		b.ReportMetric(mid[name].p99.Seconds()*1000, name+"-p99-ms")
	}
	b.ReportMetric(mid["dew"].rate/mid["caddy"].rate, "rate/caddy")
	b.ReportMetric(mid["dew"].rate/mid["nginx"].rate, "rate/nginx")
	b.ReportMetric(mid["dew"].p99.Seconds()/mid["caddy"].p99.Seconds(), "p99/caddy")
	w.manyRoutes(b)
	w.flood(b)
	w.kill(syscall.SIGKILL)
}

type benchTarget struct{ name, address string }

type measure struct {
	rate float64
	p99  time.Duration
}

func medianOf(ms []measure) measure {
	var rates []float64
	var p99s []time.Duration
	for _, m := range ms {
		rates, p99s = append(rates, m.rate), append(p99s, m.p99)
	}
	slices.Sort(rates)
	slices.Sort(p99s)
	return measure{rates[len(rates)/2], p99s[len(p99s)/2]}
}

var (
	wrkRate = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	wrkP99  = regexp.MustCompile(`\s99%\s+([0-9.]+(?:us|ms|s))`)
	wrkBad  = regexp.MustCompile(`Non-2xx|Socket errors.*`)
)

// wrk sends requests for a while. None of them must fail.
func wrk(b *testing.B, address string, d time.Duration) measure {
	b.Helper()
	out, err := exec.Command("wrk", "-t1", "-c"+strconv.Itoa(roundConns), "-d"+strconv.Itoa(int(d.Seconds()))+"s", "--latency", "--timeout", "10s",
		"-H", "Host: shop.dew.localhost", "http://"+address+"/").CombinedOutput()
	rate, p99 := wrkRate.FindSubmatch(out), wrkP99.FindSubmatch(out)
	if err != nil || rate == nil || p99 == nil || wrkBad.Match(out) {
		b.Fatalf("wrk: %v\n%s", err, out)
	}
	var m measure
	var perr error
	if m.rate, err = strconv.ParseFloat(string(rate[1]), 64); err == nil {
		m.p99, perr = time.ParseDuration(string(p99[1]))
	}
	if err := errors.Join(err, perr); err != nil {
		b.Fatal(err)
	}
	return m
}

// rival starts another proxy for the same instance, on loopback.
func (w *routeTest) rival(b *testing.B, to string, command func(dir, at, to string) (*exec.Cmd, error)) string {
	b.Helper()
	at := "127.0.0.1:" + strconv.Itoa(testkit.FreePorts(b, 1))
	cmd, err := command(b.TempDir(), at, to)
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // its exit status does not matter
	})
	w.eventually(cmd.Path+" answers", func() error {
		res, err := http.Get("http://" + at + "/")
		if err != nil {
			return err
		}
		return res.Body.Close()
	})
	return at
}

func startCaddy(dir, at, to string) (*exec.Cmd, error) {
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "Caddyfile")
	text := fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n}\nhttp://:%s {\n\tbind 127.0.0.1\n\treverse_proxy %s\n}\n", port, to)
	cmd := exec.Command("caddy", "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+dir)
	return cmd, os.WriteFile(file, []byte(text), 0o600)
}

func startNginx(dir, at, to string) (*exec.Cmd, error) {
	file := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off;
user root;
worker_processes auto;
pid %[1]s/pid;
error_log %[1]s/error.log;
events { worker_connections 1024; }
http {
	access_log %[1]s/access.log;
	upstream app { server %[2]s; keepalive %[4]d; }
	server {
		listen %[3]s;
		location / {
			proxy_pass http://app;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
		}
	}
}
`, dir, to, at, roundConns)
	return exec.Command("nginx", "-c", file, "-e", filepath.Join(dir, "error.log")), os.WriteFile(file, []byte(text), 0o600)
}

// manyRoutes compares with 1000 additional routes without requests.
func (w *routeTest) manyRoutes(b *testing.B) {
	b.Helper()
	var before []measure
	for range routerRounds {
		before = append(before, wrk(b, w.front, roundTime))
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
	var after []measure
	for range routerRounds {
		after = append(after, wrk(b, w.front, roundTime))
	}
	b.ReportMetric(medianOf(after).rate/medianOf(before).rate, "rate-1000-routes/rate")
}

// flood sends a million requests, and measures dewd's memory after each half.
func (w *routeTest) flood(b *testing.B) {
	b.Helper()
	var held []float64
	for range 2 {
		for asked := 0.0; asked < floodRequests/2; {
			asked += wrk(b, w.front, roundTime).rate * roundTime.Seconds()
		}
		held = append(held, w.resident())
	}
	b.ReportMetric(held[1]/held[0], "memory-2nd/1st-half")
	b.ReportMetric(held[1], "MB-after-flood")
}
