package registry

import (
	"testing"

	"github.com/dewrun/dew/app"
)

// Another limit is another container; no limit is a wish like any other.
func TestLogRateIsPartOfTheWish(t *testing.T) {
	slow, same, fast := int64(10), int64(10), int64(11)
	for _, tt := range []struct {
		a, b    *int64
		differs bool
	}{{nil, nil, false}, {nil, &slow, true}, {&slow, nil, true}, {&slow, &same, false}, {&slow, &fast, true}} {
		if got := processDiffers(app.Process{LogRate: tt.a}, app.Process{LogRate: tt.b}); got != tt.differs {
			t.Errorf("%v and %v differ: %v", tt.a, tt.b, got)
		}
	}
	bad := int64(-5)
	if err := app.ValidateProcess(app.Process{Type: "web", MemoryMB: 1, DiskMB: 1, HealthCheck: app.HealthCheck{Type: app.CheckProcess}, LogRate: &bad}); err == nil {
		t.Error("a negative limit was taken")
	}
}
