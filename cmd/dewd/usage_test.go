//go:build integration

package main

import (
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// busySidecar uses 20 MB and as much CPU as it gets.
const busySidecar = `  sidecars:
  - {name: busy, process_types: [web], command: "x=$(head -c 20000000 /dev/zero | tr '\\0' a); while :; do :; done", memory: 80MB}
  - {name: idle, process_types: [web], command: "sleep 100000", memory: 8MB}
`

// GET /dew/v1/live shows memory and CPU of the process that uses them, and the requests
// of the instance.
func TestLiveUsage(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	w.push("shop", busySidecar)
	w.awaitResponse("shop", "/", "web 0")
	share := 1 / float64(4*goruntime.NumCPU()) // other tests and processes use the cores as well
	w.eventually("the live values are those of the processes", func() error {
		for range 5 {
			w.awaitResponse("shop", "/", "web 0")
		}
		var live v3.LiveApps
		text := w.dewOutput("curl", "/dew/v1/live")
		if err := json.Unmarshal([]byte(text), &live); err != nil {
			return err
		}
		if len(live.Resources) != 1 || len(live.Resources[0].Instances) != 1 || len(live.Resources[0].Instances[0].Processes) != 3 {
			return fmt.Errorf("not one instance with three processes: %s", text)
		}
		in := live.Resources[0].Instances[0]
		main, busy, idle := in.Processes[0], in.Processes[1], in.Processes[2]
		switch {
		case main.Sidecar != "" || busy.Sidecar != "busy" || idle.Sidecar != "idle":
			return fmt.Errorf("processes are mixed up: %s", text)
		case busy.Mem < 20_000_000 || busy.Peak < busy.Mem || busy.PeakEver < busy.Peak || busy.MemQuota != 80<<20:
			return fmt.Errorf("the busy sidecar has the wrong memory: %s", text)
		case idle.Mem > 10_000_000 || main.Mem <= 0 || main.Peak < main.Mem || main.PIDs < 1:
			return fmt.Errorf("main or the idle sidecar has the wrong memory: %s", text)
		case busy.CPU < share/2 || idle.CPU > busy.CPU/10 || in.CPU < busy.CPU*0.9:
			return fmt.Errorf("the CPU is not that of the busy sidecar: %s", text)
		case in.Requests <= 0 || in.LatencyMS <= 0:
			return fmt.Errorf("there are no requests: %s", text)
		}
		return nil
	})
	var history v3.UsageHistory
	w.eventually("there is a sample", func() error {
		if err := json.Unmarshal([]byte(w.dewOutput("curl", "/dew/v1/apps/"+w.appGUID("shop")+"/usage")), &history); err != nil {
			return err
		}
		if len(history.Resources) != 1 || len(history.Resources[0].Times) == 0 || len(history.Resources[0].Processes) != 3 {
			return fmt.Errorf("history = %+v", history)
		}
		return nil
	})
}
