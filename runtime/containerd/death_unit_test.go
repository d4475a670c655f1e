package containerd

import (
	"encoding/binary"
	"testing"
	"time"
)

// exitMessage is what the kernel sends at the end of a thread.
func exitMessage(pid, tgid uint32, at time.Duration) []byte {
	b := make([]byte, eventLen+16)
	ne := binary.NativeEndian
	ne.PutUint32(b[whatAt:], exitWord)
	ne.PutUint64(b[timeAt:], uint64(at))
	ne.PutUint32(b[pidAt:], pid)
	ne.PutUint32(b[tgidAt:], tgid)
	return b
}

func TestParseExit(t *testing.T) {
	t.Parallel()
	pid, at, ok := parseExit(exitMessage(7, 7, time.Hour))
	if pid != 7 || at != time.Hour || !ok {
		t.Errorf("got %d, %v, %v, want 7 after an hour", pid, at, ok)
	}
	if _, _, ok := parseExit(exitMessage(8, 7, time.Hour)); ok {
		t.Error("the end of a second thread was taken for that of its process")
	}
	if _, _, ok := parseExit(exitMessage(7, 7, time.Hour)[:eventLen-1]); ok {
		t.Error("a short message was read")
	}
}

func FuzzParseExit(f *testing.F) {
	f.Add(exitMessage(7, 7, time.Hour))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if pid, _, ok := parseExit(b); ok && pid == 0 && len(b) < eventLen {
			t.Error("read more than there is")
		}
	})
}

// The kernel's time is used where it is the earlier one, containerd's otherwise.
func TestEarlierDeathTime(t *testing.T) {
	t.Parallel()
	d := &deaths{watched: map[int]*death{}}
	w := d.watch(7)
	d.note(8, 0) // nobody asked
	d.note(7, 0) // at the boot
	reaped := time.Now()
	if got := w.earlier(reaped); !got.Before(reaped) {
		t.Errorf("time = %v, want the kernel's, before %v", got, reaped)
	}
	long := time.Unix(1, 0)
	if got := w.earlier(long); !got.Equal(long) {
		t.Errorf("time = %v, want containerd's %v", got, long)
	}
	for name, w := range map[string]*death{"no connector": (*deaths)(nil).watch(7), "not watched": nil, "no note": d.watch(9)} {
		if got := w.earlier(reaped); !got.Equal(reaped) {
			t.Errorf("%s: time = %v, want containerd's", name, got)
		}
	}
	d.forget(9)
	if len(d.watched) != 0 {
		t.Errorf("still watched: %v", d.watched)
	}
}
