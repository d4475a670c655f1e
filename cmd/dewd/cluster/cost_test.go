//go:build k8stest

package cluster_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/testkit"
)

// counted returns the kubeconfig file of a proxy that counts the calls to the API
// server.
func counted(t testing.TB, kubeconfig string, calls *atomic.Int64) string {
	t.Helper()
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct{ User struct{ Token string } }
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Clusters[0].Cluster.Server)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(config.Clusters[0].Cluster.CA)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.Out.Header.Set("Authorization", "Bearer "+config.Users[0].User.Token) // dewd sends it only with TLS
		},
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true},
		FlushInterval: -1,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.CloseClientConnections)
	out, err := json.Marshal(kubetest.Object{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []kubetest.Object{{"name": "test", "cluster": kubetest.Object{"server": s.URL}}},
		"users":    []kubetest.Object{{"name": "dewd", "user": kubetest.Object{}}},
		"contexts": []kubetest.Object{{"name": "test", "context": kubetest.Object{"cluster": "test", "user": "dewd"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return testkit.WriteFile(t, filepath.Join(t.TempDir(), "kubeconfig"), string(out))
}

// processCost is what a process uses.
type processCost struct {
	memory int64 // resident bytes
	files  int
	cpu    time.Duration
}

func costOf(pid int) (c processCost, err error) {
	dir := fmt.Sprintf("/proc/%d", pid)
	status, err1 := os.ReadFile(dir + "/status")
	stat, err2 := os.ReadFile(dir + "/stat")
	files, err3 := os.ReadDir(dir + "/fd")
	if err := errors.Join(err1, err2, err3); err != nil {
		return c, err
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
			if err != nil {
				return c, err
			}
			c.memory = n << 10
		}
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	var ticks int64
	for _, field := range strings.Fields(rest)[11:13] { // user and system time
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return c, err
		}
		ticks += n
	}
	c.files, c.cpu = len(files), time.Duration(ticks)*10*time.Millisecond
	return c, nil
}

// quiet is how long the cost of running instances is measured.
const quiet = 30 * time.Second

// BenchmarkInstances measures what dewd uses for 1, 100 and 1,000 instances with a
// sidecar, on hollow nodes.
func BenchmarkInstances(b *testing.B) {
	var calls atomic.Int64
	w := newWorldAt(b, func(kubeconfig string) string { return counted(b, kubeconfig, &calls) })
	manifest := strings.ReplaceAll(w.manifestText(), "health-check-type: http\n  health-check-http-endpoint: /config", "health-check-type: process")
	w.must("push", "-f", testkit.WriteFile(b, filepath.Join(b.TempDir(), "manifest.yml"), manifest))
	newHollow(w, 5)
	before := 1
	for _, n := range []int{1, 100, 1000} {
		began, callsBefore := time.Now(), calls.Load()
		w.must("scale", "sample", "-i", strconv.Itoa(n))
		w.wantRunning(n)
		took := time.Since(began)
		w.wantReady(n, instanceReady)
		used := calls.Load() - callsBefore
		first, err := costOf(w.cmd.Process.Pid)
		if err != nil {
			b.Fatal(err)
		}
		callsBefore = calls.Load()
		timer := time.NewTimer(quiet)
		<-timer.C
		last, err := costOf(w.cmd.Process.Pid)
		if err != nil {
			b.Fatal(err)
		}
		report := func(value float64, unit string) { b.ReportMetric(value, fmt.Sprintf("%d-instances-%s", n, unit)) }
		report(float64(last.memory)/1e6, "MB")
		report(float64(last.files), "files")
		report((last.cpu-first.cpu).Seconds()/quiet.Seconds(), "cores-at-rest")
		report(float64(calls.Load()-callsBefore)/quiet.Seconds(), "calls/s-at-rest")
		if n > before {
			report(took.Seconds(), "start-s")
			report(float64(used)/float64(n-before), "calls/start")
		}
		before = n
	}
	b.ReportMetric(0, "ns/op")
}

// wantRunning waits until all instances of the sample app run.
func (w *world) wantRunning(n int) {
	w.Helper()
	testkit.Eventually(w, fmt.Sprintf("%d instances run", n), func() error {
		out, err := w.dew("app", "sample", "--json")
		if err == nil && strings.Count(out, `"RUNNING"`) < n {
			err = fmt.Errorf("%d run", strings.Count(out, `"RUNNING"`))
		}
		return err
	})
}
