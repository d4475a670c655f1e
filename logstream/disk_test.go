package logstream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fullDisk is a disk on which writes to segments can be made to fail.
type fullDisk struct {
	mu       sync.Mutex // guards all
	free     int64      // what the file system says
	size     int64
	refuse   int // so many of the next writes are torn and fail
	writes   int
	punched  int64
	syncs    int
	failSync bool
	dir      string // what it takes is taken from free
}

func (d *fullDisk) disk() disk {
	real := quickDisk()
	real.write = func(f *os.File, b []byte, at int64) (int, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.writes++
		if d.refuse == 0 {
			return f.WriteAt(b, at)
		}
		d.refuse--
		n, err := f.WriteAt(b[:len(b)/2], at)
		return n, errors.Join(err, unix.ENOSPC)
	}
	real.sync = func(*os.File) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.syncs++
		if d.failSync {
			return unix.EIO
		}
		return nil
	}
	punch := real.punch
	real.punch = func(f *os.File, from, to int64) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.punched += to - from
		return punch(f, from, to)
	}
	real.space = func(string) (int64, int64, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		free, err := d.free, error(nil)
		if d.dir != "" {
			err = filepath.WalkDir(d.dir, func(path string, _ os.DirEntry, err error) error {
				var st unix.Stat_t
				err = errors.Join(err, unix.Lstat(path, &st))
				free -= st.Blocks * 512
				return err
			})
		}
		return free, d.size, err
	}
	return real
}

// manual gives a tail that reads only when the test steps it.
func manual(t *testing.T, d *fullDisk, o Options) (*Log, *Tail, *frozen, *os.File) {
	t.Helper()
	ls, err := prepare(t.TempDir(), o, d.disk())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ls.Close() })
	l := newApp(t, ls)
	f := capture(t, l, Out)
	leaf := newFrozen()
	return l, follow(t, l, Capture{Freeze: leaf.set}), leaf, f
}

func (d *fullDisk) set(fn func(d *fullDisk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn(d)
}

func TestCheckPunch(t *testing.T) {
	t.Parallel()
	d := realDisk()
	if err := checkPunch(t.TempDir(), d); err != nil {
		t.Error(err)
	}
	d.punch = func(*os.File, int64, int64) error { return unix.EOPNOTSUPP }
	dir := t.TempDir()
	_, err := open(dir, Options{}, d)
	if err == nil || !strings.Contains(err.Error(), "put --root on ext4") {
		t.Errorf("err = %v, want the remedy", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%v was left behind", left)
	}
}

func TestScaled(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct {
		size                        int64
		reserve, backlog, seg, keep int64
	}{
		{1 << 40, 512 * mib, 64 * mib, 8 * mib, 256 * mib},
		{64 * mib, 16 * mib, 16 * mib, 2 * mib, 16 * mib},
	} {
		o := Options{}.scaled(c.size)
		if o.Reserve != c.reserve || o.Backlog != c.backlog || o.SegmentBytes != c.seg || o.Retention != c.keep {
			t.Errorf("%d: %+v", c.size, o)
		}
	}
	if o := (Options{Backlog: 5 * mib}).scaled(1 << 40); o.Backlog != 5*mib {
		t.Errorf("a wished backlog became %d", o.Backlog)
	}
	if got := reserveSize(64 * mib); got != 4*mib {
		t.Errorf("reserve of a small file system = %d", got)
	}
}

func TestHoleEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ punched, synced, step, want int64 }{
		{0, 4095, blockSize, 0},
		{0, 4096, blockSize, 4096},
		{0, 10000, blockSize, 8192},
		{8192, 10000, blockSize, 8192},
		{0, punchStep - 1, punchStep, 0},
		{0, punchStep + 1, punchStep, punchStep},
		{blockSize, punchStep, punchStep, blockSize},
	} {
		if got := holeEnd(c.punched, c.synced, c.step); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestFreezeFor(t *testing.T) {
	t.Parallel()
	const reserve, floor = 512 * lowShare, 9 * lowShare
	p := func(backlog, free int64) pressure {
		return pressure{backlog: backlog, held: backlog, limit: 1000, free: free, reserve: reserve, floor: floor}
	}
	read := func(p pressure, held int64) pressure { p.held = held; return p }
	clearable := func(p pressure) pressure { p.droppable = floor; return p }
	for _, c := range []struct {
		name string
		was  cause
		p    pressure
		want cause
	}{
		{"all well", notFrozen, p(1000, reserve), notFrozen},
		{"too much unread", notFrozen, p(1001, reserve), overBacklog},
		{"still reading", overBacklog, p(1, reserve), overBacklog},
		{"read", overBacklog, p(0, reserve), notFrozen},
		{"prints little on a low disk", notFrozen, p(400, 400*lowShare), notFrozen},
		{"prints much on a low disk", notFrozen, p(401, 400*lowShare), lowDisk},
		{"prints as much, and the disk is lower", notFrozen, p(400, 399*lowShare), lowDisk},
		{"printed in drops on a low disk", notFrozen, read(p(1, 400*lowShare), 401), lowDisk},
		{"printed in drops on a good disk", notFrozen, read(p(1, reserve), 1<<40), notFrozen},
		{"silent, read, not given back", notFrozen, read(p(0, 400*lowShare), 401), notFrozen},
		{"silent on a low disk", notFrozen, p(0, 400*lowShare), notFrozen},
		{"still reading on a low disk", lowDisk, p(1, 400*lowShare), lowDisk},
		{"read, disk low as before", lowDisk, p(0, 400*lowShare), notFrozen},
		{"read, disk low meanwhile", overBacklog, p(0, 400*lowShare), notFrozen},
		{"disk well, still reading", lowDisk, p(1, reserve), lowDisk},
		{"disk well, read", lowDisk, p(0, reserve), notFrozen},
		{"read, just not full", lowDisk, p(0, floor), notFrozen},
		{"read, disk full", lowDisk, p(0, floor-1), lowDisk},
		{"read, disk full meanwhile", overBacklog, p(0, floor-1), lowDisk},
		{"prints little on a full disk", notFrozen, p(8, 8*lowShare), notFrozen},
		{"prints little, old segments must go", notFrozen, clearable(p(1, 8*lowShare)), lowDisk},
		{"silent, old segments could go", notFrozen, clearable(p(0, 8*lowShare)), notFrozen},
		{"prints little, old segments may stay", notFrozen, clearable(p(1, floor)), notFrozen},
		{"prints into the last block", notFrozen, p(1, 0), lowDisk},
		{"silent on a full disk", notFrozen, p(0, 0), notFrozen},
	} {
		if got := freezeFor(c.was, c.p); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestMustGive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		held, free int64
		want       bool
	}{
		{"much, disk well", 1 << 30, 1000, false},
		{"little, disk low", 10, 10 * lowShare, false},
		{"much, disk low", 11, 10 * lowShare, true},
		{"nothing, disk full", 0, 0, false},
		{"a byte, disk full", 1, 0, true},
	} {
		if got := (pressure{held: c.held, free: c.free, reserve: 1000}).mustGive(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                        string
		free, floor, droppable, min int64
	}{
		{"room enough", 9, 9, 100, 0},
		{"a little", 8, 9, 100, 1},
		{"all of it", 0, 9, 9, 9},
		{"others fill the disk", 0, 9, 8, 0},
		{"no segments", 0, 9, 0, 0},
	} {
		if got := missing(c.free, c.floor, c.droppable); got != c.min {
			t.Errorf("%s: %d, want %d", c.name, got, c.min)
		}
	}
	const mib = 1 << 20
	for _, c := range []struct{ reserve, file, want int64 }{
		{512 * mib, 8 * mib, 9 * mib},
		{16 * mib, 4 * mib, 5 * mib},
		{mib, 4 * mib, mib},
	} {
		if got := floorFor(c.reserve, c.file); got != c.want {
			t.Errorf("the floor for %+v is %d", c, got)
		}
	}
}

// A write that fails halfway leaves no trace, the reserve is given up for it,
// and it is made anew when there is room.
func TestAppendOnFullDisk(t *testing.T) {
	t.Parallel()
	d := &fullDisk{free: 1 << 30, size: 1 << 40}
	ls := newLogsOn(t, t.TempDir(), Options{}, d.disk())
	l := newApp(t, ls)
	if err := l.Append(line("before")); err != nil {
		t.Fatal(err)
	}
	d.set(func(d *fullDisk) { d.refuse, d.free = 1, 0 })
	if err := l.Append(line("torn, then whole"), Envelope{Source: web("i-1"), Text: []byte("new source")}); err != nil {
		t.Fatal(err)
	}
	if ls.reserve.there() {
		t.Error("the reserve is still there")
	}
	d.set(func(d *fullDisk) { d.refuse = 100 })
	es := []Envelope{line("never")}
	if err := l.Append(es...); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("err = %v, want ENOSPC", err)
	}
	if es[0].Seq != 0 {
		t.Error("a line that is not in the log has a number")
	}
	d.set(func(d *fullDisk) { d.refuse, d.free = 0, 1<<30 })
	ls.tick()
	if !ls.reserve.there() {
		t.Error("the reserve was not made anew")
	}
	if err := l.Append(line("after")); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(texts(take(t, l.Cursor(0), 4)), ",")
	if want := "before,torn, then whole,new source,after"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	verify(t, l)
}

// When nothing else is left the oldest segments make room, and the log says how
// many lines went.
func TestFullDiskTrimsOldest(t *testing.T) {
	t.Parallel()
	d := &fullDisk{free: 1 << 30, size: 1 << 40}
	ls := newLogsOn(t, t.TempDir(), Options{SegmentBytes: blockSize}, d.disk())
	l := newApp(t, ls)
	for i := range 20 {
		if err := l.Append(line(fmt.Sprint(i, strings.Repeat("x", 1000)))); err != nil {
			t.Fatal(err)
		}
	}
	ls.reserve.release()
	d.set(func(d *fullDisk) { d.refuse = 2 })
	if err := l.Append(line("room")); err != nil {
		t.Fatal(err)
	}
	ls.tick()
	oldest := take(t, l.Cursor(0), 1)[0].Seq
	gap := take(t, l.Cursor(l.LastSeq()), 1)[0]
	if oldest == 1 || gap.Flags != Gap || !strings.HasPrefix(string(gap.Text), fmt.Sprint(oldest-1, " lines are missing")) {
		t.Errorf("oldest is %d, gap is %v", oldest, gap)
	}
	verify(t, l)
}

// frozen records what the bounds ask of a process.
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

// shim prints numbered lines into a capture file as a process behind a shim
// does: it stands still while frozen, and it ends for good on a full disk.
type shim struct {
	f     *os.File
	n     int // lines printed
	at    int64
	pause time.Duration // after every 32 KiB

	mu     sync.Mutex // guards frozen
	frozen bool
	moved  sync.Cond
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
	s.moved.Broadcast()
	return nil
}

// print prints until the file has so many bytes.
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
		time.Sleep(s.pause)
	}
	return nil
}

// A process with too much unread is frozen, told of once, read to the end and
// thawed; both of its files freeze one leaf.
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
			if want := "APP/PROC/WEB/3 is frozen until its log is read: 1200000 bytes are unread, more than 1048576"; string(e.Text) != want {
				t.Errorf("said %q, want %q", e.Text, want)
			}
		}
	}
	if said != 1 || ls.Stats().Frozen != 0 {
		t.Errorf("said %d times, %d frozen", said, ls.Stats().Frozen)
	}
	verify(t, l)
}

// On a low disk a process that prints much is frozen, read, and goes on when
// that is synced and punched, though the disk is as low as before. One that
// prints little is not noticed.
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
	if got := fmt.Sprint(leaf.calls); got != "[true false true false]" || tail.needsLook() {
		t.Errorf("calls %s, to be looked at again: %v", got, tail.needsLook())
	}
	if got := l.LastSeq(); got != 1+2*1025+1 {
		t.Errorf("%d lines, want the printed ones and one sentence", got)
	}
	verify(t, l)
}

// What is read of a process that prints in drops counts until it is given back;
// the syncer does that in time for one that prints little.
func TestLowDiskGivesBackDrops(t *testing.T) {
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

// A full disk that the logs cannot clear keeps a printing process frozen, and
// keeps all segments; there is no need for the whole reserve to let it go on.
func TestFullDiskHolds(t *testing.T) {
	t.Parallel()
	d := &fullDisk{size: 1 << 41}
	l, tail, leaf, f := manual(t, d, Options{SegmentBytes: blockSize})
	for range 20 {
		put(t, f, strings.Repeat("x", 1023)+"\n")
		tail.step()
	}
	if got := fmt.Sprint(leaf.calls); got != "[true]" || !tail.needsLook() {
		t.Errorf("calls %s, to be looked at again: %v", got, tail.needsLook())
	}
	if got := take(t, l.Cursor(0), 1)[0].Seq; got != 1 {
		t.Errorf("the oldest line is %d", got)
	}
	d.free = l.logs.floor
	tail.step()
	if got := fmt.Sprint(leaf.calls); got != "[true false]" || tail.needsLook() {
		t.Errorf("with room: calls %s, to be looked at again: %v", got, tail.needsLook())
	}
	verify(t, l)
}

// A full disk that the logs can clear loses the oldest segments of the largest
// log, and no more than the floor needs.
func TestFullDiskClears(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := &fullDisk{free: 1 << 40, size: 1 << 41, dir: dir}
	ls, err := prepare(dir, Options{Reserve: 64 << 10, SegmentBytes: blockSize}, d.disk())
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
	tail.step() // room enough
	if got := take(t, large.Cursor(0), 1)[0].Seq; got != 1 {
		t.Fatalf("dropped up to line %d on an empty disk", got)
	}
	free, _ := ls.low()
	d.free -= free - ls.floor/2 // others take all but this
	put(t, f, strings.Repeat("x", 1023)+"\n")
	tail.step()
	free, _ = ls.low()
	if over := free - ls.floor; over < 0 || over > 2*blockSize { // of a segment
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

// Something else fills the disk: nothing of the logs is dropped, and the app
// prints on, frozen by turns.
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
			done := make(chan error, 1)
			go func() { done <- s.print(2 * mib) }()
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(patience):
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

// The two files of a process: it is thawed when the last lets go.
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

// What is read is given back after the sync, and never without it.
func TestPunchAfterSync(t *testing.T) {
	t.Parallel()
	for _, fail := range []bool{false, true} {
		d := &fullDisk{free: 1 << 40, size: 1 << 41, failSync: fail}
		ls := newLogsOn(t, t.TempDir(), Options{}, d.disk())
		l := newApp(t, ls)
		f := capture(t, l, Out)
		d.set(func(d *fullDisk) { d.punched = 0 }) // Open tried one
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

// A process that cannot be thawed is tried again every second; one that has
// ended is forgotten, whatever the freezer says.
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
	if !tail.needsLook() {
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

// A daemon that leaves thaws what waited for it, not what waits on a full disk.
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

// A process that is frozen and thawed by turns is told of once.
func TestFreezeIsSaidOnce(t *testing.T) {
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
