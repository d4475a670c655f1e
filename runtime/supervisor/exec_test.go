package supervisor

import (
	"errors"
	"testing"

	"github.com/dewrun/dew/runtime"
)

func TestExecOf(t *testing.T) {
	s := runtime.Spec{Processes: []runtime.ProcessSpec{{Exec: runtime.MainExec}, {Exec: runtime.SidecarExec(0), Name: "config server"}}}
	for sidecar, want := range map[string]string{"": runtime.MainExec, "config server": "sidecar-0"} {
		if got, err := execOf(s, sidecar); got != want || err != nil {
			t.Errorf("execOf(%q) = %q, %v; want %q", sidecar, got, err, want)
		}
	}
	_, err := execOf(s, "proxy")
	if want := "sidecar 'proxy': instance or process not found (available: 'config server', main)"; !errors.Is(err, runtime.ErrNoInstance) || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}
