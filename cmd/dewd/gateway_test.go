//go:build integration

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v3 "github.com/dewrun/dew/api/v3"
)

// gatewayReader reads a stream of the log stream gateway, as a nozzle does: through the
// router, at the gateway's own host name.
type gatewayReader struct {
	w         *routeTest
	envelopes chan v3.GatewayEnvelope // closed at the end of the stream
	stop      context.CancelFunc
}

// adminToken returns a token of the administrator.
func (w *routeTest) adminToken() string {
	w.t.Helper()
	password, err := os.ReadFile(filepath.Join(w.root, "admin-password"))
	if err != nil {
		w.t.Fatal(err)
	}
	form := url.Values{"grant_type": {"password"}, "client_id": {"cf"}, "username": {"admin"}, "password": {strings.TrimSpace(string(password))}}
	var token struct {
		Access string `json:"access_token"`
	}
	body := read(w.t)(http.PostForm(w.status.API+"/uaa/oauth/token", form))
	if err := json.Unmarshal([]byte(body), &token); err != nil || token.Access == "" {
		w.t.Fatalf("no token: %v %s", err, body)
	}
	return token.Access
}

// nozzle opens a stream.
func (w *routeTest) nozzle(query string) *gatewayReader {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.front+"/v2/read?"+query, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Host = "log-stream.dew.localhost"
	req.Header.Set("Authorization", "Bearer "+w.adminToken())
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		w.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		w.t.Fatalf("/v2/read?%s: %d %v", query, res.StatusCode, res.Header)
	}
	g := &gatewayReader{w: w, envelopes: make(chan v3.GatewayEnvelope, 1<<16), stop: cancel}
	w.t.Cleanup(cancel)
	go g.read(res)
	return g
}

func (g *gatewayReader) read(res *http.Response) {
	defer close(g.envelopes)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "data: {")
		var batch v3.GatewayBatch
		if ok && json.Unmarshal([]byte("{"+text), &batch) == nil {
			for _, e := range batch.Batch {
				g.envelopes <- e
			}
		}
	}
}

// until reads envelopes until one of them is the last one, and returns all of them.
func (g *gatewayReader) until(what string, last func(e v3.GatewayEnvelope) bool) (all []v3.GatewayEnvelope) {
	g.w.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e, ok := <-g.envelopes:
			if !ok {
				g.w.t.Fatalf("%s: the stream ended after %+v", what, all)
			}
			if all = append(all, e); last(e) {
				return all
			}
		case <-timeout:
			g.w.t.Fatalf("%s: not among %+v", what, all)
		}
	}
}

// prints makes an app print lines, and returns them.
func (w *routeTest) prints(host, name string, n int) (lines []string) {
	w.t.Helper()
	for i := range n {
		lines = append(lines, fmt.Sprintf("%s-%d", name, i))
		if status, body := w.get(host, "/print?text="+lines[i]); status != http.StatusOK {
			w.t.Fatalf("%s: %d %s", lines[i], status, body)
		}
	}
	return lines
}

// appLines returns the lines that apps printed.
func appLines(all []v3.GatewayEnvelope) (out []string) {
	for _, e := range all {
		if e.Log != nil && e.Tags["source_type"] == "APP/PROC/WEB" {
			out = append(out, string(e.Log.Payload))
		}
	}
	return out
}

func isLine(text string) func(e v3.GatewayEnvelope) bool {
	return func(e v3.GatewayEnvelope) bool { return e.Log != nil && string(e.Log.Payload) == text }
}

// The log stream gateway sends the lines, container metrics and requests of real apps,
// through the router. A client that reconnects gets all lines that follow.
func TestLogStreamGateway(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	w.push("shop", "")
	w.push("other", "")
	w.awaitResponse("shop", "/", "web 0")
	w.awaitResponse("other", "/", "web 0")
	shop := w.appGUID("shop")
	one, all := w.nozzle("log&timer&source_id="+shop), w.nozzle("log")
	w.prints("other", "theirs", 3)
	want := w.prints("shop", "mine", 40)
	timed, seen := false, false
	got := one.until("the last line and its request", func(e v3.GatewayEnvelope) bool {
		seen = seen || isLine("mine-39")(e)
		timed = timed || e.Timer != nil && e.Timer.Name == "http" && e.Timer.Stop > e.Timer.Start && strings.HasSuffix(e.Tags["uri"], "/print?text=mine-39")
		return seen && timed
	})
	if lines := appLines(got); !slices.Equal(lines, want) {
		t.Errorf("lines = %q, want %q", lines, want)
	}
	for _, e := range got {
		if e.SourceID != shop || e.InstanceID != "0" || e.Tags["app_name"] != "shop" || e.Timestamp == 0 {
			t.Errorf("envelope = %+v", e)
		}
	}
	if lines := appLines(all.until("the last line of all apps", isLine("mine-39"))); !slices.Contains(lines, "mine-0") || !slices.Contains(lines, "theirs-2") {
		t.Errorf("lines of all apps = %q", lines)
	}
	t.Run("metrics", w.sendsMetrics)
	t.Run("new app", func(t *testing.T) {
		w.push("late", "")
		w.awaitResponse("late", "/", "web 0")
		w.prints("late", "late", 1)
		all.until("a line of a new app", isLine("late-0"))
	})
	t.Run("reconnect", func(t *testing.T) {
		one.stop()
		w.prints("shop", "missed", 1)
		one = w.nozzle("log&source_id=" + shop)
		want := w.prints("shop", "again", 5)
		if lines := appLines(one.until("the last line", isLine("again-4"))); !slices.Equal(lines, want) {
			t.Errorf("lines = %q, want %q", lines, want)
		}
		w.kill(syscall.SIGKILL)
		for range one.envelopes { // until the stream ends
		}
		w.startDewd()
		w.awaitResponse("shop", "/", "web 0")
		one = w.nozzle("log&source_id=" + shop)
		want = w.prints("shop", "restarted", 5)
		if lines := appLines(one.until("the last line", isLine("restarted-4"))); !slices.Equal(lines, want) {
			t.Errorf("lines after a restart of dewd = %q, want %q", lines, want)
		}
	})
}

// sendsMetrics reads the container metrics of a real instance, from the gateway and with
// PromQL.
func (w *routeTest) sendsMetrics(t *testing.T) {
	shop := w.appGUID("shop")
	g := w.nozzle("gauge&source_id=" + shop)
	found := g.until("container metrics", func(e v3.GatewayEnvelope) bool {
		if e.Gauge == nil {
			return false
		}
		m := e.Gauge.Metrics
		return m["memory"].Value > 0 && m["memory_quota"].Value == 128<<20 && m["disk_quota"].Value > 0 && m["cpu"].Unit == "percentage" && m["disk"].Unit == "bytes"
	})
	if e := found[len(found)-1]; e.InstanceID != "0" || e.Tags["process_type"] != "web" {
		t.Errorf("envelope = %+v", e)
	}
	token := w.adminToken()
	ask := func(path string, values url.Values) (v3.PromQLResponse, error) {
		var out v3.PromQLResponse
		res, body, err := w.fetch("log-cache", path+"?"+values.Encode(), "Authorization", "bearer "+token)
		if err == nil && res.StatusCode != http.StatusOK {
			err = errors.New(body)
		}
		if err == nil {
			err = json.Unmarshal([]byte(body), &out)
		}
		if err == nil && (out.Status != "success" || !strings.Contains(body, shop)) {
			err = fmt.Errorf("no values in %s", body)
		}
		return out, err
	}
	queries := map[string]url.Values{
		"/api/v1/query": {"query": {fmt.Sprintf("memory{source_id=%q}", shop)}},
		"/api/v1/query_range": {
			"query": {fmt.Sprintf("cpu{source_id=%q}", shop)}, "step": {"1s"},
			"start": {fmt.Sprint(time.Now().Add(-time.Minute).Unix())}, "end": {fmt.Sprint(time.Now().Add(time.Minute).Unix())},
		},
	}
	for _, path := range slices.Sorted(maps.Keys(queries)) {
		w.eventually("values of "+path, func() error {
			out, err := ask(path, queries[path])
			if want := map[string]string{"/api/v1/query": "vector", "/api/v1/query_range": "matrix"}[path]; err == nil && string(out.Data.ResultType) != want {
				err = fmt.Errorf("%s instead of %s", out.Data.ResultType, want)
			}
			return err
		})
	}
}

// Requests with the same header value reach the same instance. After scaling, only the
// keys of instances that came or left go elsewhere.
func TestHashRouting(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	w.dew("enable-feature-flag", "hash_based_routing")
	w.push("shop", "  instances: 3\n  routes:\n  - route: shop.dew.localhost\n    options: {loadbalancing: hash, hash_header: X-Key}\n")
	const keys = 120
	// places returns the instance of each key, after n instances answer. It compares two
	// passes, because an instance can start during the first one.
	places := func(n int) (out map[string]string) {
		t.Helper()
		w.eventually(fmt.Sprintf("%d instances answer", n), func() error {
			previous := out
			out = map[string]string{}
			used := map[string]bool{}
			for i := range keys {
				key := fmt.Sprint("key-", i)
				res, body, err := w.fetch("shop", "/", "X-Key", key)
				if err != nil {
					return fmt.Errorf("%s: %w", key, err)
				}
				if res.StatusCode != http.StatusOK {
					return fmt.Errorf("%s: %s %s", key, res.Status, body)
				}
				out[key], used[body] = body, true
			}
			if len(used) != n {
				return fmt.Errorf("%d instances: %v", len(used), used)
			}
			if !maps.Equal(out, previous) {
				return errors.New("the instances changed during the last requests")
			}
			return nil
		})
		for key, want := range out {
			for range 3 {
				if _, body, err := w.fetch("shop", "/", "X-Key", key); err != nil || body != want {
					t.Errorf("%s reaches %q and %q (%v)", key, want, body, err)
				}
			}
		}
		return out
	}
	moved := func(before, after map[string]string) (n int) {
		for key := range before {
			if before[key] != after[key] {
				n++
			}
		}
		return n
	}
	three := places(3)
	w.dew("scale", "shop", "-i", "5")
	five := places(5)
	if n := moved(three, five); n > keys*6/10 { // two of five instances are new: about 40 %
		t.Errorf("%d of %d keys moved to other instances", n, keys)
	}
	w.dew("scale", "shop", "-i", "2")
	two := places(2)
	for key, place := range five {
		if (strings.HasPrefix(place, "web 0") || strings.HasPrefix(place, "web 1")) && two[key] != place {
			t.Errorf("%s left %q, which still runs, for %q", key, place, two[key])
		}
	}
}
