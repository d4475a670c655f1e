//go:build integration || bench

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v3 "github.com/dewrun/dew/api/v3"
)

// routeTest is a cell whose apps have routes.
type routeTest struct {
	*cell
	front  string // host:port of the router
	status v3.Status
	client *http.Client
}

// newRouteTest starts a dewd.
func newRouteTest(t testing.TB, flags ...string) *routeTest {
	t.Helper()
	w := &routeTest{cell: newCell(t, flags...), client: &http.Client{
		Timeout:   patience,
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
	}}
	w.startDewd()
	return w
}

// startDewd starts dewd and finds its addresses.
func (w *routeTest) startDewd() {
	w.t.Helper()
	w.start()
	if err := json.Unmarshal([]byte(w.dewOutput("status", "--json")), &w.status); err != nil {
		w.t.Fatal(err)
	}
	w.front = strings.TrimPrefix(w.status.Router, "http://")
}

// dewOutput runs a command that must succeed and returns its stdout.
func (w *routeTest) dewOutput(args ...string) string {
	w.t.Helper()
	cmd := w.dewCommand(args...)
	var talk strings.Builder
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("dew %s: %v\n%s%s", strings.Join(args, " "), err, out, &talk)
	}
	return string(out)
}

// push pushes routeapp as an app. more has further lines of its manifest.
func (w *routeTest) push(name, more string) {
	w.t.Helper()
	dir := filepath.Join(filepath.Dir(w.root), "routeapp")
	program, err := os.ReadFile(filepath.Join(programs, "routeapp"))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "routeapp"), program, 0o755)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	text := fmt.Sprintf("applications:\n- name: %s\n  path: %s\n  command: ./routeapp web\n  memory: 128M\n  buildpacks: [binary_buildpack]\n%s", name, dir, more)
	file := filepath.Join(filepath.Dir(w.root), name+".yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.dew("push", "-f", file)
}

// get sends a request to a route; the host is below the domain.
func (w *routeTest) get(host, path string) (int, string) {
	w.t.Helper()
	res, body, err := w.fetch(host, path)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, body
}

func (w *routeTest) fetch(host, path string, headers ...string) (*http.Response, string, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+w.front+path, nil)
	if err != nil {
		return nil, "", err
	}
	req.Host = host + ".dew.localhost"
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := w.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res, string(b), err
}

// awaitResponse sends requests to a route until it gets the wanted response.
func (w *routeTest) awaitResponse(host, path, want string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s%s answers %q", host, path, want), func() error {
		if status, body := w.get(host, path); !strings.HasPrefix(body, want) {
			return fmt.Errorf("%d %q", status, body)
		}
		return nil
	})
}

// appGUID returns the guid of an app, routeGUID that of a route.
func (w *routeTest) appGUID(name string) string { return w.guid("/v3/apps?names=" + name) }

func (w *routeTest) routeGUID(host string) string { return w.guid("/v3/routes?hosts=" + host) }

func (w *routeTest) guid(path string) string {
	w.t.Helper()
	var list struct{ Resources []struct{ GUID string } }
	if err := json.Unmarshal([]byte(w.getBody(path)), &list); err != nil || len(list.Resources) != 1 {
		w.t.Fatalf("%s: %+v, %v", path, list, err)
	}
	return list.Resources[0].GUID
}

// getBody returns the response to GET, whatever its status is.
func (w *routeTest) getBody(path string) string {
	w.t.Helper()
	_, body := w.ask(http.MethodGet, path, "")
	return body
}

// rawConn opens a connection to the router and sends a text.
func (w *routeTest) rawConn(text string) (net.Conn, *bufio.Reader) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.front)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(patience))
	}
	if err == nil {
		_, err = io.WriteString(c, text)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// ask sends a request to the local socket, as dew does, without starting a program each
// time.
func (w *routeTest) ask(method, path, body string) (int, string) {
	w.t.Helper()
	res := w.socketRequest(method, path, body)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func (w *routeTest) socketRequest(method, path, body string) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://dew"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(w.run, socketName))
	}}
	res, err := transport.RoundTrip(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v\n%s", method, path, err, w.said)
	}
	return res
}
