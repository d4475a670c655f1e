package runtime

import "testing"

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
