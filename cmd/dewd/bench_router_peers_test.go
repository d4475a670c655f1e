//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/testkit"
)

// rivals starts the other proxies, and logs why some are left out.
func (w *routeTest) rivals(b *testing.B, to string) []benchTarget {
	b.Helper()
	var out []benchTarget
	for _, r := range []struct {
		name, program string
		command       func(program, dir, at, to string) (*exec.Cmd, error)
	}{
		{"caddy", "caddy", startCaddy}, {"nginx", "nginx", startNginx}, {"traefik", os.Getenv("TRAEFIK_BIN"), startTraefik},
	} {
		program, err := exec.LookPath(r.program)
		if r.program == "" {
			err = errors.New("TRAEFIK_BIN names no program")
		}
		if err != nil {
			b.Logf("not compared with %s: %v", r.name, err)
			continue
		}
		out = append(out, benchTarget{r.name, w.rival(b, program, to, r.command)})
	}
	b.Log("not compared with gorouter: it does not run without the other parts of Cloud Foundry")
	return out
}

// rival starts another proxy for the same instance, on loopback.
func (w *routeTest) rival(b *testing.B, program, to string, command func(program, dir, at, to string) (*exec.Cmd, error)) string {
	b.Helper()
	at := "127.0.0.1:" + strconv.Itoa(testkit.FreePorts(b, 1))
	cmd, err := command(program, b.TempDir(), at, to)
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
		if res.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d", res.StatusCode)
		}
		return errors.Join(err, res.Body.Close())
	})
	return at
}

func startCaddy(program, dir, at, to string) (*exec.Cmd, error) {
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "Caddyfile")
	text := fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n}\nhttp://:%s {\n\tbind 127.0.0.1\n\treverse_proxy %s\n}\n", port, to)
	cmd := exec.Command(program, "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+dir)
	return cmd, os.WriteFile(file, []byte(text), 0o600)
}

func startNginx(program, dir, at, to string) (*exec.Cmd, error) {
	file := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off;
user root;
worker_processes auto;
pid %[1]s/pid;
error_log %[1]s/error.log;
events { worker_connections 1024; }
http {
	access_log %[1]s/access.log;
	map $http_upgrade $connection_of_app { default upgrade; '' ''; }
	upstream app { server %[2]s; keepalive %[4]d; }
	server {
		listen %[3]s;
		location / {
			proxy_pass http://app;
			proxy_http_version 1.1;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection $connection_of_app;
			proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
		}
	}
}
`, dir, to, at, roundConns)
	return exec.Command(program, "-c", file, "-e", filepath.Join(dir, "error.log")), os.WriteFile(file, []byte(text), 0o600)
}

func startTraefik(program, dir, at, to string) (*exec.Cmd, error) {
	routes := filepath.Join(dir, "routes.yml")
	text := fmt.Sprintf("http:\n  routers:\n    app: {rule: 'PathPrefix(`/`)', service: app}\n  services:\n    app: {loadBalancer: {servers: [{url: 'http://%s'}]}}\n", to)
	cmd := exec.Command(program, "--entryPoints.web.address="+at, "--providers.file.filename="+routes, "--serversTransport.maxIdleConnsPerHost="+strconv.Itoa(roundConns),
		"--accessLog=true", "--accessLog.filePath="+filepath.Join(dir, "access.log"), "--global.checkNewVersion=false", "--global.sendAnonymousUsage=false")
	return cmd, os.WriteFile(routes, []byte(text), 0o600)
}

// messages sends WebSocket messages on several connections for a while, each after the
// answer to the one before, and returns their number per second.
func messages(b *testing.B, address string, d time.Duration) float64 {
	b.Helper()
	end := time.Now().Add(d)
	ctx, cancel := context.WithDeadline(b.Context(), end.Add(testkit.Patience))
	defer cancel()
	var count atomic.Int64
	var g errgroup.Group
	for range 16 {
		g.Go(func() error {
			conn, _, err := websocket.Dial(ctx, "ws://"+address+"/ws", &websocket.DialOptions{Host: "shop.dew.localhost"})
			if err != nil {
				return err
			}
			defer func() { _ = conn.CloseNow() }()
			for text := make([]byte, 100); time.Now().Before(end); count.Add(1) {
				if err := conn.Write(ctx, websocket.MessageBinary, text); err != nil {
					return err
				}
				if _, _, err := conn.Read(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatalf("WebSocket messages through %s: %v", address, err)
	}
	return float64(count.Load()) / d.Seconds()
}
