//go:build bench

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkApps lists 100 apps with 300 processes, with dew, and with the cf CLI if
// CF_BIN names it. For comparison, it also lists an empty space, which measures the
// programs themselves.
func BenchmarkApps(b *testing.B) {
	c := newCell(b)
	c.start()
	c.dew("create-space", "empty", "-o", "local")
	c.dew("apply-manifest", "-f", c.manyApps(100))
	clients := map[string]func(space string) *exec.Cmd{"dew": func(space string) *exec.Cmd {
		c.dew("target", "-o", "local", "-s", space)
		return c.dewCommand("apps")
	}}
	if bin := os.Getenv("CF_BIN"); bin != "" {
		clients["cf"] = c.cfApps(bin)
	} else {
		b.Log("not compared with cf: CF_BIN names no program")
	}
	for name, apps := range clients {
		full, empty := c.list(max(b.N, 10), apps("dev")), c.list(max(b.N, 10), apps("empty"))
		b.ReportMetric(ms(full), "ms/"+name)
		b.ReportMetric(ms(empty), "ms/"+name+"-empty")
		b.ReportMetric(ms(full)/ms(empty), name+"/empty")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(c.resident(), "MB-100-apps")
	c.kill(syscall.SIGKILL)
}

// manyApps writes a manifest of n apps with three processes each.
func (c *cell) manyApps(n int) string {
	c.t.Helper()
	var text strings.Builder
	text.WriteString("applications:\n")
	for i := range n {
		fmt.Fprintf(&text, "- {name: app-%03d, memory: 64M, default-route: true, processes: [{type: web, instances: 1, memory: 64M}, {type: worker, instances: 2, memory: 64M}, {type: clock, instances: 1, memory: 64M}]}\n", i)
	}
	file := filepath.Join(filepath.Dir(c.root), "many.yml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return file
}

// cfApps logs in with the cf CLI and returns its command that lists a space.
func (c *cell) cfApps(bin string) func(space string) *exec.Cmd {
	c.t.Helper()
	out, err := c.dewCommand("credentials", "--json").Output()
	var v struct{ API, Username, Password string }
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	cf := func(args ...string) *exec.Cmd {
		cmd := exec.Command(bin, args...)
		cmd.Env = append(os.Environ(), "CF_HOME="+filepath.Dir(c.root))
		return cmd
	}
	must := func(cmd *exec.Cmd) {
		c.t.Helper()
		if out, err := cmd.CombinedOutput(); err != nil {
			c.t.Fatalf("cannot log in: %v\n%s", err, out)
		}
	}
	must(cf("api", v.API))
	must(cf("auth", v.Username, v.Password))
	return func(space string) *exec.Cmd {
		must(cf("target", "-o", "local", "-s", space))
		return cf("apps")
	}
}

// list runs the command many times and returns the median time.
func (c *cell) list(times int, cmd *exec.Cmd) time.Duration {
	c.t.Helper()
	var took []time.Duration
	for range times {
		again := exec.Command(cmd.Path, cmd.Args[1:]...)
		again.Env = cmd.Env
		began := time.Now()
		if out, err := again.CombinedOutput(); err != nil {
			c.t.Fatalf("cannot list apps: %v\n%s", err, out)
		}
		took = append(took, time.Since(began))
	}
	return median(took)
}
