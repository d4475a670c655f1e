//go:build integration

package containerd

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/runtimetest"
)

// The real engine fulfills the same contract as the fake one.
func TestEngineSuite(t *testing.T) {
	config := func(t *testing.T) runtimetest.SuiteConfig {
		w := newWorld(t)
		stack, err := w.stack("")
		if err != nil {
			t.Fatal(err)
		}
		specs := 0
		return runtimetest.SuiteConfig{
			Engine: func() runtime.Engine {
				w.leave()
				w.open()
				return w.engine
			},
			Spec: func() runtime.Spec {
				specs++
				addr := w.prefix().Addr()
				for range specs + 1 {
					addr = addr.Next()
				}
				return runtime.Spec{
					Kind: runtime.KindInstance, Instance: runtime.NewInstanceID(), Slot: runtime.SlotID{Process: fmt.Sprintf("process-%d", specs)},
					App: guidOf("suite"), Type: "web", Version: "v1", Cell: "cell-of-the-test", Stack: stack, Image: w.image,
					Memory: 128 << 20, Disk: 1 << 30, Address: netip.PrefixFrom(addr, 24), Ports: []int{8080},
					Processes: []runtime.ProcessSpec{{
						Exec: runtime.MainExec, Source: "APP/PROC/WEB", Dir: "/home/vcap/app", Env: []string{"PATH=/bin:/usr/bin"},
					}},
				}
			},
			Lines: func(app string) []logstream.Envelope { return w.lines(app) },
		}
	}
	runtimetest.EngineSuite(t, config)
	runtimetest.PreparingSuite(t, config)
}
