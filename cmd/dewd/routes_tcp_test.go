//go:build integration

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// askPort sends a request to the port of a TCP route. The app uses HTTP; the router
// forwards only bytes.
func askPort(port int) (string, error) {
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.Header.Get("X-Vcap-Request-Id") != "" {
		err = fmt.Errorf("the router spoke HTTP on the port")
	}
	return string(b), err
}

// answered sends a request on a connection that stays open.
func answered(t *testing.T, c net.Conn, in *bufio.Reader) {
	t.Helper()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || !strings.HasPrefix(string(b), "web 0") {
		t.Fatalf("%q, %v", b, err)
	}
}

// TCP routes have their own ports, created by dew, by cf and by manifest. A port that
// another program has is reported and opened later. Connections close with their
// instance.
func TestTCPRoutes(t *testing.T) {
	runParallel(t)
	first := testkit.FreePorts(t, 5)
	w := newRouteTest(t, "--tcp-ports", fmt.Sprintf("%d-%d", first, first+4))
	reached := func(port int) {
		t.Helper()
		w.eventually(fmt.Sprintf("port %d leads to the app", port), func() error {
			got, err := askPort(port)
			if err == nil && !strings.HasPrefix(got, "web 0") {
				err = fmt.Errorf("%q", got)
			}
			return err
		})
	}
	w.dew("create-shared-domain", "tcp.dew.localhost", "--router-group", "default-tcp")
	w.push("shop", fmt.Sprintf("  routes: [{route: shop.dew.localhost}, {route: \"tcp.dew.localhost:%d\"}]\n", first))
	reached(first)
	w.dew("map-route", "shop", "tcp.dew.localhost", "--port", strconv.Itoa(first+1))
	reached(first + 1)
	if bin := os.Getenv("CF_BIN"); bin != "" {
		w.stockTCP(bin, first+2)
		reached(first + 2)
	}
	foreign, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(first+3))
	if err != nil {
		t.Fatal(err)
	}
	w.dew("map-route", "shop", "tcp.dew.localhost", "--port", strconv.Itoa(first+3))
	w.eventually("dew routes tells", func() error {
		if out := w.dewOutput("routes"); !strings.Contains(out, "address already in use") {
			return fmt.Errorf("routes:\n%s", out)
		}
		return nil
	})
	foreign.Close()
	reached(first + 3)
	c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(first))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(c)
	answered(t, c, in) // an open connection alone does not prove that it reaches the instance
	w.dew("restart", "shop")
	if b, err := io.ReadAll(in); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("an idle connection after the restart: %q, %v", b, err)
	}
	reached(first)
	w.dew("delete-route", "tcp.dew.localhost", "--port", strconv.Itoa(first), "-f")
	w.eventually("the port is closed", func() error {
		if got, err := askPort(first); err == nil {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

// stockTCP creates a domain and maps a port to the app with the cf CLI.
func (w *routeTest) stockTCP(bin string, port int) {
	w.t.Helper()
	password, err := os.ReadFile(filepath.Join(w.root, "admin-password"))
	if err != nil {
		w.t.Fatal(err)
	}
	home := w.t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"api", w.status.API}, "OK"},
		{[]string{"auth", "admin", strings.TrimSpace(string(password))}, "OK"},
		{[]string{"target", "-o", "local", "-s", "dev"}, ""},
		{[]string{"router-groups"}, "default-tcp"},
		{[]string{"create-shared-domain", "stock.dew.localhost", "--router-group", "default-tcp"}, "OK"},
		{[]string{"domains"}, "stock.dew.localhost"},
		{[]string{"create-route", "stock.dew.localhost", "--port", strconv.Itoa(port)}, fmt.Sprintf("Route stock.dew.localhost:%d has been created.", port)},
		{[]string{"map-route", "shop", "stock.dew.localhost", "--port", strconv.Itoa(port)}, "OK"},
		{[]string{"routes"}, "stock.dew.localhost"},
		{[]string{"unmap-route", "shop", "stock.dew.localhost", "--port", strconv.Itoa(port)}, "OK"},
		{[]string{"delete-route", "stock.dew.localhost", "--port", strconv.Itoa(port), "-f"}, "OK"},
		{[]string{"create-route", "stock.dew.localhost"}, "has been created."},
		{[]string{"delete-orphaned-routes", "-f"}, "OK"},
		{[]string{"map-route", "shop", "stock.dew.localhost", "--port", strconv.Itoa(port)}, "OK"},
	} {
		cmd := exec.Command(bin, c.args...)
		cmd.Env = append(os.Environ(), "CF_HOME="+home)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			w.t.Fatalf("cf %s: %v\n%s", strings.Join(c.args[:1], " "), err, out)
		}
		w.t.Logf("cf %s\n%s", c.args[0], out)
	}
}
