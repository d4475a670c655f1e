package logstream

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/logstream/disk"
	"github.com/dewrun/dew/testkit"
)

// frozen records the freeze requests for a process.
type frozen struct {
	mu    sync.Mutex
	calls []bool
	now   chan bool
}

func newFrozen() *frozen { return &frozen{now: make(chan bool, 100)} }

func (f *frozen) set(on bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, on)
	f.now <- on
	return nil
}

// shim prints numbered lines into a capture file, as a process with a shim does. It
// pauses while frozen, and it fails permanently on a full disk.
type shim struct {
	f     *os.File
	n     int // lines printed
	at    int64
	pause time.Duration // after every 32 KiB

	mu      sync.Mutex // guards frozen and freezes
	frozen  bool
	freezes int // how often it was frozen or thawed
	moved   sync.Cond
}

func newShim(f *os.File) *shim {
	s := &shim{f: f}
	s.moved.L = &s.mu
	return s
}

func (s *shim) freeze(frozen bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = frozen
	s.freezes++
	s.moved.Broadcast()
	return nil
}

// print prints until the file has until bytes.
func (s *shim) print(until int64) error {
	for s.at < until {
		s.mu.Lock()
		for s.frozen {
			s.moved.Wait()
		}
		s.mu.Unlock()
		var b []byte
		first := s.n
		for len(b) < 32<<10 {
			b = fmt.Appendf(b, "%d %s\n", s.n, strings.Repeat("x", 100+s.n%200))
			s.n++
		}
		n, err := s.f.Write(b)
		s.at += int64(n)
		if err != nil {
			s.n = first + strings.Count(string(b[:n]), "\n")
			return err
		}
		time.Sleep(s.pause) // a program that prints slowly
	}
	return nil
}

// A process with too many unread bytes is frozen, recorded once, read to the end and
// thawed. Both of its files freeze the same process.
func TestBacklogFreezes(t *testing.T) {
	t.Parallel()
	d := &fullDisk{free: 1 << 40, size: 1 << 41}
	ls := newLogsOn(t, t.TempDir(), Options{Backlog: 1 << 20}, d.disk())
	l := newApp(t, ls)
	f := capture(t, l, Out)
	const lines = 12000
	put(t, f, strings.Repeat(strings.Repeat("x", 99)+"\n", lines))
	leaf := newFrozen()
	follow(t, l, Capture{Freeze: leaf.set})
	follow(t, l, Capture{Stream: Err, Freeze: leaf.set})
	if on := <-leaf.now; !on {
		t.Error("thawed before it was frozen")
	}
	if on := <-leaf.now; on {
		t.Error("frozen twice")
	}
	said := 0
	for _, e := range take(t, l.Cursor(0), lines+1) {
		if e.Source.Type == "CELL" {
			said++
			if want := "APP/PROC/WEB/3 is paused until its output is stored: 1200000 bytes are waiting, more than the limit of 1048576"; string(e.Text) != want {
				t.Errorf("said %q, want %q", e.Text, want)
			}
		}
	}
	if said != 1 || ls.Stats().Frozen != 0 {
		t.Errorf("said %d times, %d frozen", said, ls.Stats().Frozen)
	}
	verify(t, l)
}

// On a low disk, a process that prints much is frozen and read. It continues when its
// output is synced and punched, even if the disk is as low as before. A process that
// prints little is not affected.
func TestLowDiskFreezes(t *testing.T) {
	t.Parallel()
	d := &fullDisk{free: 64 << 20, size: 1 << 41}
	l, tail, leaf, f := manual(t, d, Options{})
	put(t, f, "little\n")
	tail.step()
	if got := fmt.Sprint(leaf.calls); got != "[]" || d.syncs != 0 {
		t.Errorf("for a line: calls %s, %d syncs", got, d.syncs)
	}
	for range 2 {
		d.punched = 0
		put(t, f, strings.Repeat(strings.Repeat("x", 1023)+"\n", 1025))
		tail.step()
		if d.punched < 1<<20 || d.syncs == 0 {
			t.Errorf("%d bytes punched after %d syncs", d.punched, d.syncs)
		}
	}
	if got := fmt.Sprint(leaf.calls); got != "[true false true false]" || tail.needsCheck() {
		t.Errorf("calls %s, to be looked at again: %v", got, tail.needsCheck())
	}
	if got := l.LastSeq(); got != 1+2*1025+1 {
		t.Errorf("%d lines, want the printed ones and one sentence", got)
	}
	verify(t, l)
}

// Bytes read from a process that prints in small amounts count until they are freed.
// The syncer frees them in time for a process that prints little.
func TestLowDiskFreesDrops(t *testing.T) {
	t.Parallel()
	d := &fullDisk{free: 64 << 20, size: 1 << 41}
	l, tail, leaf, f := manual(t, d, Options{})
	d.punched = 0
	drop := strings.Repeat(strings.Repeat("x", 8191)+"\n", 32)
	for range 10 {
		put(t, f, drop)
		tail.step()
		l.logs.tick()
	}
	if got := fmt.Sprint(leaf.calls); got != "[]" || d.punched != int64(10*len(drop)) {
		t.Errorf("calls %s, %d bytes punched", got, d.punched)
	}
	for range 5 {
		put(t, f, drop)
		tail.step()
	}
	if got := fmt.Sprint(leaf.calls); got != "[true false]" || d.punched != int64(15*len(drop)) {
		t.Errorf("without the syncer: calls %s, %d bytes punched", got, d.punched)
	}
}

// A full disk that the logs cannot clear keeps a printing process frozen and keeps all
// segments. The process continues before the whole reserve is free.
func TestFullDiskHolds(t *testing.T) {
	t.Parallel()
	d := &fullDisk{size: 1 << 41}
	l, tail, leaf, f := manual(t, d, Options{SegmentBytes: disk.Block})
	for range 20 {
		put(t, f, strings.Repeat("x", 1023)+"\n")
		tail.step()
	}
	if got := fmt.Sprint(leaf.calls); got != "[true]" || !tail.needsCheck() {
		t.Errorf("calls %s, to be looked at again: %v", got, tail.needsCheck())
	}
	if got := take(t, l.Cursor(0), 1)[0].Seq; got != 1 {
		t.Errorf("the oldest line is %d", got)
	}
	d.free = l.logs.floor
	tail.step()
	if got := fmt.Sprint(leaf.calls); got != "[true false]" || tail.needsCheck() {
		t.Errorf("with room: calls %s, to be looked at again: %v", got, tail.needsCheck())
	}
	verify(t, l)
}

// On a full disk that the logs can clear, the oldest segments of the largest log are
// dropped, and no more than the floor needs.
func TestFullDiskClears(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := &fullDisk{free: 1 << 40, size: 1 << 41, dir: dir}
	ls, err := prepare(dir, Options{Reserve: 64 << 10, SegmentBytes: disk.Block}, d.disk())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ls.Close() })
	large := newApp(t, ls)
	little, err := ls.App("app-2")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		if err := large.Append(line(strings.Repeat("x", 2000))); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 {
			if err := little.Append(line(strings.Repeat("x", 2000))); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := capture(t, large, Out)
	leaf := newFrozen()
	tail := follow(t, large, Capture{Freeze: leaf.set})
	put(t, f, "wakes\n")
	tail.step() // enough space
	if got := take(t, large.Cursor(0), 1)[0].Seq; got != 1 {
		t.Fatalf("dropped up to line %d on an empty disk", got)
	}
	free, _ := ls.low()
	d.free -= free - ls.floor/2 // other data takes all but this
	put(t, f, strings.Repeat("x", 1023)+"\n")
	tail.step()
	free, _ = ls.low()
	if over := free - ls.floor; over < 0 || over > 2*disk.Block { // the size of a segment
		t.Errorf("%d bytes free, the floor is %d", free, ls.floor)
	}
	if got := take(t, large.Cursor(0), 1)[0].Seq; got == 1 {
		t.Error("nothing was dropped")
	}
	if got := take(t, little.Cursor(0), 1)[0].Seq; got != 1 {
		t.Error("dropped from the smaller log")
	}
	if got := fmt.Sprint(leaf.calls); got != "[true false]" {
		t.Errorf("calls %s", got)
	}
	verify(t, large)
}

// Other data fills the disk: no segment is dropped, and the app keeps printing with
// pauses.
func TestForeignDataFillsDisk(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, free := range map[string]int64{"below the reserve": 60 * mib, "at the floor": 9 * mib} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &fullDisk{free: free, size: 500 << 30}
			ls := newLogsOn(t, t.TempDir(), Options{SegmentBytes: mib / 4}, d.disk())
			l := newApp(t, ls)
			s := newShim(capture(t, l, Out))
			if err := s.print(mib); err != nil { // at once, so that it is frozen
				t.Fatal(err)
			}
			tail := follow(t, l, Capture{Freeze: s.freeze})
			testkit.EventuallyTrue(t, "the process is frozen", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.freezes > 0
			})
			done := make(chan error, 1)
			go func() { done <- s.print(2 * mib) }()
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(testkit.Patience):
				t.Fatalf("the process hangs: %+v", ls.Stats())
			}
			last, err := tail.Finish(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Append(last...); err != nil {
				t.Fatal(err)
			}
			ls.tick()
			printed, said := 0, 0
			for _, e := range take(t, l.Cursor(1), int(l.LastSeq())) {
				if e.Source.Type == "CELL" {
					said++
				} else {
					printed++
				}
			}
			if printed != s.n || said != 1 {
				t.Errorf("%d of %d lines kept, %d others", printed, s.n, said)
			}
			if r := verify(t, l); r.First != 1 {
				t.Errorf("the oldest line is %d", r.First)
			}
		})
	}
}

// A process with two capture files is thawed when the last one no longer requests the
// freeze.
func TestLeafIsShared(t *testing.T) {
	t.Parallel()
	l := &Log{leaves: map[leafKey]int{}}
	leaf := newFrozen()
	out := &Tail{log: l, c: Capture{Freeze: leaf.set}, key: streamKey{"i", "main", Out}}
	err := &Tail{log: l, c: Capture{Freeze: leaf.set}, key: streamKey{"i", "main", Err}}
	for _, s := range []struct {
		t    *Tail
		next cause
	}{{out, lowDisk}, {err, overBacklog}, {out, notFrozen}, {err, notFrozen}} {
		if e := l.setLeaf(s.t, s.next); e != nil {
			t.Fatal(e)
		}
		s.t.frozen = s.next
	}
	if got := fmt.Sprint(leaf.calls); got != "[true false]" || l.frozenLeaves() != 0 {
		t.Errorf("calls %s, %d frozen", got, l.frozenLeaves())
	}
}

// Read bytes are freed only after the sync.
func TestPunchAfterSync(t *testing.T) {
	t.Parallel()
	for _, fail := range []bool{false, true} {
		d := &fullDisk{free: 1 << 40, size: 1 << 41, failSync: fail}
		ls := newLogsOn(t, t.TempDir(), Options{}, d.disk())
		l := newApp(t, ls)
		f := capture(t, l, Out)
		d.set(func(d *fullDisk) { d.punched = 0 }) // Open punched one as a check
		follow(t, l, Capture{})
		put(t, f, strings.Repeat(strings.Repeat("x", 1023)+"\n", 3000))
		take(t, l.Cursor(0), 3000)
		d.set(func(d *fullDisk) {
			if d.punched > 0 && d.syncs == 0 {
				t.Errorf("punched %d bytes before a sync", d.punched)
			}
		})
		ls.tick()
		var st unix.Stat_t
		if err := unix.Stat(f.Name(), &st); err != nil {
			t.Fatal(err)
		}
		if whole := st.Blocks*512 >= 2<<20; whole != fail {
			t.Errorf("sync failing %v: %d blocks of %d bytes left", fail, st.Blocks, st.Size)
		}
		put(t, f, "goes on\n")
		if e := take(t, l.Cursor(3001), 1)[0]; string(e.Text) != "goes on" {
			t.Errorf("after the hole: %v", e)
		}
		d.set(func(d *fullDisk) { d.failSync = false })
	}
}

// Thawing a process is retried every second. A process that has exited is forgotten,
// whatever the freezer returns.
func TestFreezeFails(t *testing.T) {
	t.Parallel()
	d := &fullDisk{free: 1 << 20, size: 1 << 41}
	ls, err := prepare(t.TempDir(), Options{}, d.disk())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ls.Close() })
	l := newApp(t, ls)
	f := capture(t, l, Out)
	var calls []bool
	var broken error
	tail := follow(t, l, Capture{Late: true, Freeze: func(on bool) error {
		calls = append(calls, on)
		return broken
	}})
	broken = errors.New("no freezer")
	tail.step()
	if !tail.needsCheck() {
		t.Error("a process that may be frozen is not looked at again")
	}
	broken = nil
	tail.step()
	put(t, f, strings.Repeat("a\n", 1<<20/lowShare))
	tail.step()
	if got := fmt.Sprint(calls); got != "[false false true]" || ls.Stats().Frozen != 1 {
		t.Errorf("calls %s, %d frozen", got, ls.Stats().Frozen)
	}
	broken = errors.New("no such process")
	if _, err := tail.Finish(t.Context()); err != nil {
		t.Error(err)
	}
	if got := ls.Stats().Frozen; got != 0 {
		t.Errorf("%d frozen after the end", got)
	}
}

// A daemon that stops thaws a process that waits for its backlog, but not one that
// waits on a full disk.
func TestCloseThaws(t *testing.T) {
	t.Parallel()
	for free, want := range map[int64]string{1 << 40: "[true false]", 100 << 20: "[true false]", 0: "[true]"} {
		d := &fullDisk{free: free, size: 1 << 41}
		ls, err := prepare(t.TempDir(), Options{Backlog: 1 << 20}, d.disk())
		if err != nil {
			t.Fatal(err)
		}
		l := newApp(t, ls)
		put(t, capture(t, l, Out), strings.Repeat("x\n", 1<<20))
		leaf := newFrozen()
		tail := follow(t, l, Capture{Freeze: leaf.set})
		tail.bound(tail.pressure(2 << 20))
		if err := ls.Close(); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(leaf.calls); got != want {
			t.Errorf("with %d bytes free: %s, want %s", free, got, want)
		}
	}
}

// A process that is frozen and thawed repeatedly is recorded once.
func TestFreezeIsRecordedOnce(t *testing.T) {
	t.Parallel()
	d := &fullDisk{size: 1 << 41}
	ls, err := prepare(t.TempDir(), Options{}, d.disk())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ls.Close() })
	l := newApp(t, ls)
	f := capture(t, l, Out)
	tail := follow(t, l, Capture{Freeze: newFrozen().set})
	for range 5 {
		d.set(func(d *fullDisk) { d.free = 0 })
		put(t, f, "a\n")
		tail.step()
		d.set(func(d *fullDisk) { d.free = 1 << 40 })
		tail.step()
	}
	if got := l.LastSeq(); got != 6 {
		t.Errorf("%d lines for 5 lines and 1 sentence", got)
	}
}

// A process that was found paused is recorded once, even with two capture files. It
// continues when its output is stored and freed.
func TestPausedProcessIsRecordedOnce(t *testing.T) {
	t.Parallel()
	d := &fullDisk{free: 1 << 40, size: 1 << 41}
	ls := newLogsOn(t, t.TempDir(), Options{Backlog: 1 << 20}, d.disk())
	l := newApp(t, ls)
	f := capture(t, l, Out)
	const lines = 60000 // more than half the ceiling
	put(t, f, strings.Repeat(strings.Repeat("x", 99)+"\n", lines))
	leaf := newFrozen()
	follow(t, l, Capture{Late: true, Paused: true, Freeze: leaf.set})
	follow(t, l, Capture{Stream: Err, Late: true, Paused: true, Freeze: leaf.set})
	var said []string
	for _, e := range take(t, l.Cursor(0), lines+1) {
		if e.Source.Type == "CELL" {
			said = append(said, string(e.Text))
		}
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "APP/PROC/WEB/3 was paused while dewd was not running") {
		t.Errorf("said %q, want the pause once", said)
	}
	for on := true; on; { // the last request is to continue
		on = <-leaf.now
	}
	if unread, _ := ls.Ceiling(); d.punched < unread/2 {
		t.Errorf("%d bytes were given back before it went on: PID 1 would pause it again", d.punched)
	}
	verify(t, l)
}

// The limit without a daemon is above that of the daemon, and fits on the disk.
func TestCeiling(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ backlog, size, want int64 }{
		{0, 1 << 40, 256 << 20},
		{0, 512 << 20, 128 << 20},
		{0, 32 << 20, 8 << 20},
		{0, 1 << 20, minCeiling},
		{1 << 10, 1 << 40, minCeiling},
		{1 << 30, 1 << 40, 4 << 30},
	} {
		o := Options{Backlog: c.backlog}.scaled(c.size)
		if got := o.ceiling(c.size); got != c.want || got < o.Backlog {
			t.Errorf("backlog %d on %d bytes: %d, want %d", c.backlog, c.size, got, c.want)
		}
	}
}
