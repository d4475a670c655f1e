//go:build bench

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkReady kills a dewd with 100 running apps and measures how long the next one
// needs until it answers.
func BenchmarkReady(b *testing.B) {
	c := newCell(b)
	c.start()
	dir := filepath.Join(filepath.Dir(c.root), "app")
	c.writeFile(filepath.Join(dir, "testapp"), c.testapp())
	var text strings.Builder
	text.WriteString("applications:\n")
	for i := range 100 {
		fmt.Fprintf(&text, "- {name: app-%03d, path: %s, buildpacks: [binary_buildpack], command: ./testapp serve 0.0.0.0:8080, memory: 32M, disk_quota: 64M, health-check-type: process}\n", i, dir)
	}
	file := filepath.Join(filepath.Dir(c.root), "hundred.yml")
	c.writeFile(file, text.String())
	c.dew("push", "-f", file)
	var ready []time.Duration
	for range max(b.N, 5) {
		c.kill(syscall.SIGKILL)
		began := time.Now()
		c.start()
		c.dew("apps")
		ready = append(ready, time.Since(began))
	}
	b.ReportMetric(0, "ns/op")
	reportTimes(b, "ms/ready", ready)
	b.ReportMetric(c.resident(), "MB-100-running")
	c.kill(syscall.SIGKILL)
}
