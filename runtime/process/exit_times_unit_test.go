package process

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// message returns the kernel's message about a thread.
func message(what, pid, tgid uint32, at time.Duration) []byte {
	b := make([]byte, eventLen+16)
	ne := binary.NativeEndian
	ne.PutUint32(b[whatAt:], what)
	ne.PutUint64(b[timeAt:], uint64(at))
	ne.PutUint32(b[pidAt:], pid)
	ne.PutUint32(b[tgidAt:], tgid)
	return b
}

func TestParseEvent(t *testing.T) {
	t.Parallel()
	e, ok := parseEvent(message(exitWord, 7, 7, time.Hour))
	if want := (event{what: exitWord, pid: 7, at: time.Hour}); e != want || !ok {
		t.Errorf("got %+v, %v, want %+v", e, ok, want)
	}
	if _, ok := parseEvent(message(exitWord, 8, 7, time.Hour)); ok {
		t.Error("the end of a second thread was taken for that of its process")
	}
	if _, ok := parseEvent(message(1, 7, 7, time.Hour)); ok {
		t.Error("a fork was taken for an end")
	}
	if _, ok := parseEvent(message(exitWord, 7, 7, time.Hour)[:eventLen-1]); ok {
		t.Error("a short message was read")
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add(message(exitWord, 7, 7, time.Hour))
	f.Add(message(execWord, 7, 7, time.Hour))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, ok := parseEvent(b); ok && e.what != exitWord && e.what != execWord {
			t.Errorf("took %+v", e)
		}
	})
}

// The kernel's time is used if it is earlier, otherwise containerd's.
func TestEarlierDeathTime(t *testing.T) {
	t.Parallel()
	d := &ExitTimes{watched: map[int]*ExitTime{}}
	w := d.Watch(7)
	d.note(event{what: exitWord, pid: 8}) // not watched
	d.note(event{what: exitWord, pid: 7}) // at boot
	reaped := time.Now()
	if got, exact := w.Earlier(t.Context(), reaped); !got.Before(reaped) || !exact {
		t.Errorf("time = %v, exact %v, want the kernel's, before %v", got, exact, reaped)
	}
	long := time.Unix(1, 0)
	if got, _ := w.Earlier(t.Context(), long); !got.Equal(long) {
		t.Errorf("time = %v, want containerd's %v", got, long)
	}
	d.Forget(7)
	if len(d.watched) != 0 {
		t.Errorf("still watched: %v", d.watched)
	}
}

// Without an event containerd's time is used, even if an exec has deleted one.
func TestNoDeathIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &ExitTimes{watched: map[int]*ExitTime{}}
		taken := d.Watch(9)
		d.note(event{what: exitWord, pid: 9})
		d.note(event{what: execWord, pid: 9})
		at := time.Now()
		for name, w := range map[string]*ExitTime{"no connector": (*ExitTimes)(nil).Watch(7), "no note": d.Watch(8), "taken back": taken} {
			if got, _ := w.Earlier(t.Context(), at); !got.Equal(at) {
				t.Errorf("%s: time = %v, want containerd's", name, got)
			}
		}
	})
}

// A reader that is interrupted between the two clocks does not change the exit time.
func TestClockTime(t *testing.T) {
	t.Parallel()
	boot := time.Unix(1_000_000, 0)
	const died, read = time.Hour, time.Hour + time.Second
	for name, pauses := range map[string][]time.Duration{ // before each reading of a clock
		"never":                {0, 0, 0},
		"before the clock":     {0, 30 * time.Millisecond, 0},
		"behind the clock":     {0, 0, 30 * time.Millisecond},
		"again and again":      {0, 30 * time.Millisecond, 0, 0, 20 * time.Millisecond, 20 * time.Millisecond},
		"a little, every time": slices.Repeat([]time.Duration{0, 50 * time.Microsecond, 50 * time.Microsecond}, 20),
	} {
		passed := read
		look := func() time.Duration {
			if len(pauses) > 0 {
				passed += pauses[0]
				pauses = pauses[1:]
			}
			return passed
		}
		got := clockTime(died, func() (time.Duration, error) { return look(), nil }, func() time.Time { return boot.Add(look()) })
		if off := got.Sub(boot.Add(died)).Abs(); off > 100*time.Microsecond {
			t.Errorf("interrupted %s: wrong by %v", name, off)
		}
	}
	if got := clockTime(died, func() (time.Duration, error) { return 0, errors.New("no clock") }, time.Now); !got.IsZero() {
		t.Errorf("without a clock: %v", got)
	}
}
