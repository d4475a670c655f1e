package supervisor_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/runtimetest"
)

// The fake fulfills the contract of an engine, so that tests with it are valid.
func TestFakeKeepsTheContract(t *testing.T) {
	config := func(*testing.T) runtimetest.SuiteConfig {
		fake := runtimetest.NewFake()
		n := 0
		return runtimetest.SuiteConfig{
			Engine: func() runtime.Engine {
				fake = fake.NextDaemon()
				return fake
			},
			Lines: fake.Lines,
			Spec: func() runtime.Spec {
				n++
				return runtime.Spec{
					Kind: runtime.KindInstance, Instance: runtime.NewInstanceID(),
					Slot: runtime.SlotID{Process: fmt.Sprintf("p%d", n), Index: n},
					App:  "a1", Type: "web", Version: "v1", Cell: "c1",
					Address: netip.MustParsePrefix(fmt.Sprintf("10.201.0.%d/20", n+1)),
					Ports:   []int{8080},
					Processes: []runtime.ProcessSpec{{
						Exec: runtime.MainExec, Source: "APP/PROC/WEB", Memory: 64 << 20,
					}},
				}
			},
		}
	}
	runtimetest.EngineSuite(t, config)
	runtimetest.PreparingSuite(t, config)
}
