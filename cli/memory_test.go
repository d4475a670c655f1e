package cli

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/apps"
	"github.com/dewrun/dew/cli/console"
)

// liveShop returns the app shop with a sidecar, running for an hour.
func liveShop() v3.LiveApps {
	now := time.Now()
	return v3.LiveApps{Time: now, Resources: []v3.LiveApp{{
		GUID: "app-1", Name: "shop", State: v3.AppStarted,
		Instances: []v3.LiveInstance{{
			Type: "web", State: v3.StateRunning, Since: now.Add(-time.Hour), MemQuota: 512 << 20,
			Processes: []v3.LivePart{
				{MemQuota: 256 << 20, Mem: 100 << 20, Cache: 10 << 20, Peak: 180 << 20, PeakEver: 190 << 20},
				{Sidecar: "agent", MemQuota: 256 << 20, Mem: 60 << 20, Peak: 70 << 20, PeakEver: 70 << 20},
			},
		}},
	}}}
}

// The table has a row for each process, and the advice names the change of the manifest.
func TestMemory(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.live = liveShop()
	r := d.dew("memory", "shop")
	r.must(t, 0, "web/0", "agent", "180.0M", "190.0M", "66.0M", "74%", "`memory: 96M` for sidecar agent")
	r = d.dew("memory", "shop", "--json")
	r.must(t, 0)
	var got apps.MemoryReport
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || len(got.Processes) != 2 || len(got.Advice) != 1 || got.Processes[0].Headroom != 66<<20 {
		t.Errorf("report = %+v, %v", got, err)
	}
}

func TestMemoryRefused(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	for _, tt := range []struct {
		name, app string
		change    func()
		want      string
	}{
		{"unknown app", "shp", func() { d.live = liveShop() }, "shop"},
		{"stopped app", "shop", func() { d.live.Resources[0].State = v3.AppStopped }, "dew start shop"},
		{"nothing runs", "shop", func() {
			d.live = liveShop()
			d.live.Resources[0].Instances[0].Processes, d.live.Resources[0].Instances[0].State = nil, "CRASHED"
		}, "dew why shop"},
		{"deleted meanwhile", "shop", func() { d.live.Resources = nil }, "it was deleted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.change()
			d.dew("memory", tt.app).must(t, console.StatusFailed, tt.want)
		})
	}
}

// Ctrl-C ends --watch without an error.
func TestMemoryWatch(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.live = liveShop()
	ctx, stop := context.WithCancel(t.Context())
	lines := &channelWriter{lines: make(chan string, 1000)}
	ended := make(chan error, 1)
	go func() {
		c := &console.Console{Out: lines, Err: io.Discard, In: strings.NewReader("")}
		ended <- newApp("dev", c).RunContext(ctx, []string{"dew", "--run", d.run, "memory", "shop", "--watch"})
	}()
	for range 2 {
		lines.until(t, "for sidecar agent")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the end = %v", err)
	}
}
