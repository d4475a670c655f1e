package runtime

import (
	"errors"
	"testing"
)

func TestSpecCheck(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec Spec
		ok   bool
	}{
		{"instance", Spec{Kind: KindInstance}, true},
		{"task", Spec{Kind: KindTask, Task: "t1"}, true},
		{"staging", Spec{Kind: KindStaging, Build: "b1"}, true},
		{"service", Spec{Kind: KindService}, true},
		{"no kind", Spec{}, false},
		{"unknown kind", Spec{Kind: "job"}, false},
		{"task without guid", Spec{Kind: KindTask}, false},
		{"staging without build", Spec{Kind: KindStaging}, false},
		{"instance with task", Spec{Kind: KindInstance, Task: "t1"}, false},
		{"service with build", Spec{Kind: KindService, Build: "b1"}, false},
	} {
		if err := tt.spec.Check(); (err == nil) != tt.ok {
			t.Errorf("%s: Check = %v, want ok %v", tt.name, err, tt.ok)
		}
	}
}

func TestExecOf(t *testing.T) {
	s := Spec{Processes: []ProcessSpec{{Exec: MainExec}, {Exec: SidecarExec(0), Name: "config server"}}}
	for sidecar, want := range map[string]string{"": MainExec, "config server": "sidecar-0"} {
		if got, err := s.ExecOf(sidecar); got != want || err != nil {
			t.Errorf("ExecOf(%q) = %q, %v; want %q", sidecar, got, err, want)
		}
	}
	_, err := s.ExecOf("proxy")
	if want := "sidecar 'proxy': instance or process not found (available: 'config server', main)"; !errors.Is(err, ErrNoInstance) || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}
