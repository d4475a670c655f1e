package console

import (
	"testing"
	"time"
)

func TestNextStart(t *testing.T) {
	now := time.Unix(1763160000, 0)
	for after, want := range map[time.Duration]string{
		12 * time.Second: "next start in 12s", 11200 * time.Millisecond: "next start in 12s", 90 * time.Second: "next start in 1m30s", 0: "starts now", -time.Hour: "starts now",
	} {
		if got := NextStart(now.Add(after), now); got != want {
			t.Errorf("%s: %q, want %q", after, got, want)
		}
	}
}
