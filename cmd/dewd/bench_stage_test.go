//go:build bench

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkStage stages a changed app and compares with the start of an instance. It
// uses the binary buildpack, and a buildpack that does nothing in a container.
func BenchmarkStage(b *testing.B) {
	c := newCell(b)
	c.start()
	dir := filepath.Join(filepath.Dir(c.root), "stage")
	pack := filepath.Join(dir, "pack")
	app := filepath.Join(dir, "app")
	for name, text := range map[string]string{
		"bin/compile": "exit 0", "bin/release": "echo 'default_process_types: {web: sleep 1000}'",
	} {
		name = filepath.Join(pack, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	for up := pack; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil { // all users can read it
			b.Fatal(err)
		}
	}
	if err := os.MkdirAll(app, 0o755); err != nil {
		b.Fatal(err)
	}
	staged := map[string][]time.Duration{}
	var start []time.Duration
	for i := range max(b.N, 10) {
		for _, with := range []string{"binary_buildpack", pack} {
			if err := os.WriteFile(filepath.Join(app, "number"), fmt.Append(nil, i, with), 0o644); err != nil {
				b.Fatal(err)
			}
			c.dew("push", "bench", "--no-manifest", "--no-route", "-p", app, "-b", with, "-c", "sleep 1000", "-u", "process", "-m", "32M")
			staged[with] = append(staged[with], c.between("Staging package", "Created image"))
			start = append(start, c.between("Creating container", "Successfully created container"))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(median(start)), "ms/start")
	b.ReportMetric(ms(median(staged["binary_buildpack"])), "ms/binary")
	b.ReportMetric(ms(median(staged[pack])), "ms/buildpack")
	b.ReportMetric(ms(median(staged["binary_buildpack"]))/ms(median(start)), "binary/start") // goal: under 2
	c.kill(syscall.SIGKILL)
}

// between returns the time between two lines of the last push.
func (c *cell) between(from, to string) time.Duration {
	c.t.Helper()
	out, err := c.dewCommand("logs", "bench", "--recent", "-n", "200").Output()
	if err != nil {
		c.t.Fatal(err)
	}
	at := map[string]time.Time{}
	for line := range strings.Lines(string(out)) {
		stamp, rest, _ := strings.Cut(line, " ")
		for _, what := range []string{from, to} {
			if t, err := time.Parse(time.RFC3339, stamp); err == nil && strings.Contains(rest, what) {
				at[what] = t
			}
		}
	}
	return at[to].Sub(at[from])
}
