package console

import (
	"testing"
	"time"
)

func TestMinutes(t *testing.T) {
	for text, want := range map[string]time.Duration{"": time.Hour, "x": time.Hour, "-1": time.Hour, "2": 2 * time.Minute, "0.5": 30 * time.Second} {
		t.Setenv("CF_X", text)
		if got := MinutesFromEnv("CF_X", time.Hour); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}
