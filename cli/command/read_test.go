package command

import (
	"testing"
	"time"
)

func TestReadMoment(t *testing.T) {
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 3, 4, 12, 30, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"10m":                  now.Add(-10 * time.Minute),
		"1h30m":                now.Add(-90 * time.Minute),
		"3d":                   now.Add(-72 * time.Hour),
		"1.5d":                 now.Add(-36 * time.Hour),
		"12:00":                time.Date(2026, 3, 4, 12, 0, 0, 0, zone),
		"12:30:01":             time.Date(2026, 3, 3, 12, 30, 1, 0, zone), // yesterday: the time is later than now
		"2026-03-01":           time.Date(2026, 3, 1, 0, 0, 0, 0, zone),
		"2026-03-01 10:20":     time.Date(2026, 3, 1, 10, 20, 0, 0, zone),
		"2026-03-01T10:20:30Z": time.Date(2026, 3, 1, 10, 20, 30, 0, time.UTC),
	} {
		if got, err := ReadTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-5m", "tomorrow", "25:00", "2026-13-01", "1969-01-01", "9999-01-01", "99999999d"} {
		if got, err := ReadTime(text, now); err == nil {
			t.Errorf("%q = %v, want an error", text, got)
		}
	}
}

func FuzzReadMoment(f *testing.F) {
	for _, text := range []string{"10m", "3d", "12:00", "2026-03-01", "2026-03-01T10:20:30Z"} {
		f.Add(text)
	}
	now := time.Date(2026, 3, 4, 12, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		at, err := ReadTime(text, now)
		if err == nil && at.Year() > 2261 {
			t.Errorf("%q = %v", text, at)
		}
	})
}
