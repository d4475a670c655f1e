//go:build integration

package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// The uid that the servers run as, because they refuse root.
const nobody = 65534

// A test with real servers: an error before the migration, then add, list and delete.
func TestUsers(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) settings{"postgres": startPostgres, "mariadb": startMariaDB} {
		t.Run(name, func(t *testing.T) {
			db, err := openUsers(start(t))
			if err != nil {
				t.Fatal(err)
			}
			defer db.close()
			h := handler(db)
			wantFailure(t, h, "/users", http.StatusInternalServerError)
			for range 2 {
				if code, body := ask(t, h, "/migrate"); code != http.StatusOK || body["migrated"] != true {
					t.Fatalf("GET /migrate = %d %v", code, body)
				}
			}
			wantUsers(t, h, 0)
			code, body := ask(t, h, "/users/add/250")
			added, _ := body["users added"].([]any)
			if code != http.StatusOK || body["amount"] != 250.0 || len(added) != 250 {
				t.Fatalf("GET /users/add/250 = %d, amount %v, %d added", code, body["amount"], len(added))
			}
			listed := wantUsers(t, h, 250)
			for i := range listed {
				if fmt.Sprint(listed[i]) != fmt.Sprint(added[i]) {
					t.Fatalf("user %d is listed as %v, was added as %v", i, listed[i], added[i])
				}
			}
			if code, body := ask(t, h, "/users/delete"); code != http.StatusOK || fmt.Sprint(body) != "map[users:[]]" {
				t.Errorf("GET /users/delete = %d %v", code, body)
			}
			wantUsers(t, h, 0)
		})
	}
}

func wantUsers(t *testing.T, h http.Handler, count int) []any {
	t.Helper()
	code, body := ask(t, h, "/users")
	users, ok := body["users"].([]any)
	if code != http.StatusOK || !ok || len(users) != count || body["count"] != float64(count) {
		t.Fatalf("GET /users = %d, count %v with %d users; want %d", code, body["count"], len(users), count)
	}
	return users
}

func startPostgres(t *testing.T) settings {
	bins, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(bins) == 0 {
		t.Fatal("there is no PostgreSQL: make setup-test installs it")
	}
	bin, dir, port := bins[len(bins)-1], serverDir(t), freePort(t)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("p:/@ w\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	run(t, as(exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "me", "--pwfile", secret, "--auth", "scram-sha-256", "--no-sync")))
	serveUntilEnd(t, exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-h", "127.0.0.1", "-p", port, "-k", dir), func() error {
		// It listens before it accepts logins.
		return exec.Command(filepath.Join(bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", port).Run()
	})
	return settings{Driver: "postgres", Host: "127.0.0.1", Port: port, Database: "postgres", Username: "me", Password: "p:/@ w"}
}

func startMariaDB(t *testing.T) settings {
	dir, port := serverDir(t), freePort(t)
	data := filepath.Join(dir, "data")
	run(t, as(exec.Command("mariadb-install-db", "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")))
	sql := filepath.Join(dir, "init.sql")
	if err := os.WriteFile(sql, []byte("CREATE DATABASE users;\nCREATE USER me@localhost IDENTIFIED BY 'p:/@ w';\nGRANT ALL ON users.* TO me@localhost;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	serveUntilEnd(t, exec.Command("mariadbd", "--no-defaults", "--datadir="+data, "--bind-address=127.0.0.1", "--port="+port,
		"--socket="+filepath.Join(dir, "s"), "--init-file="+sql), func() error {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return settings{Driver: "mariadb", Host: "127.0.0.1", Port: port, Database: "users", Username: "me", Password: "p:/@ w"}
}

// serverDir returns a short folder of the servers' user, because the path of a socket
// is limited.
func serverDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "udb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	return dir
}

// nextPort is below the kernel's range for outgoing connections, so that no connection
// takes a port that was free. It starts at a different number in every test process.
var nextPort = 15000 + os.Getpid()%1000*5

// freePort returns a port that no program listens on. No two calls return the same.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		nextPort++
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(nextPort))
		if err == nil {
			_ = l.Close()
			return strconv.Itoa(nextPort)
		}
	}
	t.Fatal("no port is free")
	return ""
}

func as(c *exec.Cmd) *exec.Cmd {
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	return c
}

func run(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", c.Path, err, out)
	}
}

func serveUntilEnd(t *testing.T, c *exec.Cmd, ready func() error) {
	t.Helper()
	if err := as(c).Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGQUIT) // immediate shutdown, because the test deletes the data
		time.AfterFunc(10*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait()
	})
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := ready()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s does not serve: %v", c.Path, err)
		}
	}
}
