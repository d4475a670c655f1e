//go:build integration

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// Idle apps do not crash if the machine is busy, or if a restarted dewd checks them
// all. The long version can run by hand for any time:
//
//	DEW_PROOF=1 DEW_PROOF_TIME=1h go test -tags integration -timeout 2h -v -run TestIdleAppsDoNotCrash ./cmd/dewd
func TestIdleAppsDoNotCrash(t *testing.T) {
	apps, interval, lasts := rounds(4, 50), time.Second, time.Duration(0)
	if os.Getenv("DEW_PROOF") != "" {
		var err error
		if lasts, err = time.ParseDuration(cmp.Or(os.Getenv("DEW_PROOF_TIME"), "10m")); err != nil {
			t.Fatal(err)
		}
		interval = 0 // the default
	}
	c := newCell(t)
	guids := c.idleApps(apps, interval)
	keepBusy(t, goruntime.NumCPU())
	c.start()
	c.checksPass(apps)
	c.kill(syscall.SIGKILL)
	c.start()
	began := time.Now()
	c.checksPass(2 * apps)
	for time.Since(began) < lasts {
		time.Sleep(min(time.Minute, lasts-time.Since(began))) // the long version watches for this time
		t.Logf("after %s: checks %v", time.Since(began).Round(time.Second), c.checks())
	}
	checks := c.checks()
	c.kill(syscall.SIGKILL)
	crashes := 0
	c.read(func(b diskState) {
		for _, guid := range guids {
			rs, err := b.exits.Process(guid)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				crashes++
				t.Errorf("crash of %s at %s: %s", guid, r.CrashedAt.Format(time.TimeOnly), r.Description)
			}
		}
	})
	t.Logf("%d apps, %s, %d busy processes: checks %v, %d crashes", apps, time.Since(began).Round(time.Second), goruntime.NumCPU(), checks, crashes)
}

// idleApps stores n apps that wait for requests. Every second one has a port check.
func (c *cell) idleApps(n int, interval time.Duration) []string {
	c.t.Helper()
	var guids []string
	c.read(func(b diskState) {
		image, err := b.droplets.AddImage(bytes.NewReader(image(c.t)))
		if err != nil {
			c.t.Fatal(err)
		}
		for i := range n {
			guid := fmt.Sprintf("11111111-1111-4111-8111-%012d", i)
			_, appErr := b.reg.PutApp(app.App{GUID: guid, Name: "idle-" + strconv.Itoa(i), Space: "dev", State: app.Stopped, Droplet: "d" + guid})
			_, processErr := b.reg.UpdateProcess(guid, func(p *app.Process) error {
				p.Command, p.MemoryMB = "exec ./testapp serve 0.0.0.0:8080", 32
				p.HealthCheck = app.HealthCheck{Type: app.CheckPort, Interval: interval}
				if i%2 == 1 {
					p.HealthCheck.Type, p.HealthCheck.Endpoint = app.CheckHTTP, "/health"
				}
				return nil
			})
			_, startErr := b.reg.UpdateApp(guid, func(a *app.App) error { a.State = app.Started; return nil })
			if err := errors.Join(b.droplets.Put(droplet.Droplet{GUID: "d" + guid, App: guid, Stack: "host", Image: image}), appErr, processErr, startErr); err != nil {
				c.t.Fatal(err)
			}
			guids = append(guids, guid)
		}
	})
	return guids
}

// keepBusy runs n processes that never wait, each in its own session, because the
// kernel gives every session the same share.
func keepBusy(t *testing.T, n int) {
	t.Helper()
	for range n {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
}

// checksPass waits until the running dewd has counted this number of passed checks. The
// wait for each is limited by patience.
func (c *cell) checksPass(n int) {
	c.t.Helper()
	for passed := 0; passed < n; {
		c.eventually("another check passes", func() error {
			got := c.checks()
			if got["passed"] <= passed {
				return fmt.Errorf("checks: %v", got)
			}
			passed = got["passed"]
			return nil
		})
	}
}

// checks returns the counts of checks by outcome.
func (c *cell) checks() map[string]int {
	c.t.Helper()
	counts := map[string]int{}
	for line := range strings.Lines(c.output("curl", "/metrics")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		outcome, ok := strings.CutPrefix(name, `dew_health_checks_total{outcome="`)
		if n, err := strconv.Atoi(value); ok && err == nil {
			counts[strings.TrimSuffix(outcome, `"}`)] = n
		}
	}
	return counts
}
