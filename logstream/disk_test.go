package logstream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/logstream/disk"
)

// fullDisk is a disk on which writes to segments can be made to fail.
type fullDisk struct {
	mu       sync.Mutex // guards all fields
	free     int64      // free bytes that the file system reports
	size     int64
	refuse   int // number of next writes that are torn and fail
	writes   int
	punched  int64
	syncs    int
	failSync bool
	dir      string // the size of this folder is subtracted from free
}

func (d *fullDisk) disk() disk.Ops {
	real := quickDisk()
	real.Write = func(f *os.File, b []byte, at int64) (int, error) {
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
	real.Sync = func(*os.File) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.syncs++
		if d.failSync {
			return unix.EIO
		}
		return nil
	}
	punch := real.Punch
	real.Punch = func(f *os.File, from, to int64) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.punched += to - from
		return punch(f, from, to)
	}
	real.Space = func(string) (int64, int64, error) {
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

// manual returns a tail that reads only when the test calls step.
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

// A folder for logs that cannot punch holes is refused.
func TestOpenChecksPunch(t *testing.T) {
	t.Parallel()
	d := disk.Real()
	d.Punch = func(*os.File, int64, int64) error { return unix.EOPNOTSUPP }
	dir := t.TempDir()
	_, err := open(dir, Options{}, d)
	if err == nil || !strings.Contains(err.Error(), "choose a folder on ext4") {
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
	if got := disk.ReserveSize(64 * mib); got != 4*mib {
		t.Errorf("reserve of a small file system = %d", got)
	}
}

func TestHoleEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ punched, synced, step, want int64 }{
		{0, 4095, disk.Block, 0},
		{0, 4096, disk.Block, 4096},
		{0, 10000, disk.Block, 8192},
		{8192, 10000, disk.Block, 8192},
		{0, punchStep - 1, punchStep, 0},
		{0, punchStep + 1, punchStep, punchStep},
		{disk.Block, punchStep, punchStep, disk.Block},
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

func TestMustFree(t *testing.T) {
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
		if got := (pressure{held: c.held, free: c.free, reserve: 1000}).mustFree(); got != c.want {
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

// A write that fails halfway leaves no trace. The reserve file is deleted for it, and
// created again when there is space.
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
	if ls.reserve.Exists() {
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
	if !ls.reserve.Exists() {
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

// If nothing else frees space, the oldest segments are dropped, and the log records how
// many lines were lost.
func TestFullDiskTrimsOldest(t *testing.T) {
	t.Parallel()
	d := &fullDisk{free: 1 << 30, size: 1 << 40}
	ls := newLogsOn(t, t.TempDir(), Options{SegmentBytes: disk.Block}, d.disk())
	l := newApp(t, ls)
	for i := range 20 {
		if err := l.Append(line(fmt.Sprint(i, strings.Repeat("x", 1000)))); err != nil {
			t.Fatal(err)
		}
	}
	ls.reserve.Release()
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
