package logstream

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dewrun/dew/logstream/disk"
)

// maxRoomTries limits how often one append looks for free space. Without it, a process
// that prints as fast as space is freed would block the append for ever.
const maxRoomTries = 64

// syncLoop syncs the logs once a second and frees the space of capture files.
func (ls *Logs) syncLoop() {
	tick := time.NewTicker(syncInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			ls.tick()
		case <-ls.kick:
			ls.retain()
		case <-ls.done:
			return
		}
	}
}

// wakeSyncer makes the syncer check the retention soon, because it can wait for the
// disk.
func (ls *Logs) wakeSyncer() {
	select {
	case ls.kick <- struct{}{}:
	default:
	}
}

// tick does the work of one second.
func (ls *Logs) tick() {
	step := int64(punchStep)
	if _, low := ls.low(); low {
		step = disk.Block
	}
	ls.syncAndPunch(step)
	ls.retain()
	ls.renewReserve()
	for _, l := range ls.openLogs() {
		l.recordDropped()
	}
	// A safety poll: a lost event, a failed append or a full disk delays a line by a
	// second, not for ever.
	for _, t := range ls.openTails() {
		if t.needsCheck() {
			ls.queue.put(t)
		}
	}
}

// syncAndPunch syncs the appended lines, then punches them out of the capture files. It
// returns how many bytes it freed.
func (ls *Logs) syncAndPunch(step int64) int64 {
	for _, l := range ls.openLogs() {
		if err := l.sync(); err != nil {
			l.log.Error("cannot sync the log; capture files keep their disk space until it succeeds", "err", err)
		}
	}
	var given int64
	for _, t := range ls.openTails() {
		n, err := t.punch(step)
		if err != nil {
			t.log.log.Error("cannot free the disk space of stored lines", "capture", t.path, "err", err)
		}
		given += n
	}
	return given
}

// renewReserve creates the reserve file again when there is space for it.
func (ls *Logs) renewReserve() {
	if ls.reserve.Exists() {
		return
	}
	free, _, err := ls.disk.Space(ls.dir)
	if err != nil || free < ls.o.Reserve+ls.reserve.Size {
		return
	}
	if err := ls.reserve.Create(ls.disk); err != nil {
		ls.log.Warn("cannot reserve disk space for a full disk", "err", err)
	}
}

// low returns the free bytes, and reports whether they are less than the reserve.
func (ls *Logs) low() (free int64, low bool) {
	free, _, err := ls.disk.Space(ls.dir)
	if err != nil {
		return ls.o.Reserve, false
	}
	return free, free < ls.o.Reserve
}

// makeRoom frees space for an append that met a full disk. It tries the reserve file,
// then synced bytes in the capture files, then the oldest segments. It reports whether
// it freed any.
func (ls *Logs) makeRoom() bool {
	ls.freeSpaceMu.Lock()
	defer ls.freeSpaceMu.Unlock()
	if ls.reserve.Release() {
		ls.log.Warn("the disk is full: released the reserved space to continue reading logs", "bytes", ls.reserve.Size)
		return true
	}
	return ls.syncAndPunch(disk.Block) > 0 || ls.trimLargest() > 0
}

// clear frees space on a full disk up to the floor. It frees synced bytes in the
// capture files, then the oldest segments of the largest log, as far as needed. It adds
// up the sizes of dropped segments, because a file system can free the space later.
func (ls *Logs) clear() {
	ls.freeSpaceMu.Lock()
	defer ls.freeSpaceMu.Unlock()
	if free, _ := ls.low(); missing(free, ls.floor, ls.droppable()) == 0 {
		return
	}
	ls.syncAndPunch(disk.Block) // a segment that waits for its sync is open: it would still take space after its removal
	free, _ := ls.low()
	need := missing(free, ls.floor, ls.droppable())
	for need > 0 && free < ls.floor {
		n := ls.trimLargest()
		if n == 0 {
			return
		}
		need -= n
		free, _ = ls.low()
	}
}

// droppable is the size of all segments that could be dropped.
func (ls *Logs) droppable() int64 {
	var n int64
	for _, l := range ls.openLogs() {
		n += l.sealedBytes()
	}
	return n
}

// trimLargest drops the oldest segment of the largest log, and returns its size.
func (ls *Logs) trimLargest() int64 {
	var largest *Log
	var most int64
	for _, l := range ls.openLogs() {
		if n := l.sealedBytes(); n > most {
			largest, most = l, n
		}
	}
	if largest == nil {
		return 0
	}
	return largest.trim(most - 1)
}

// retain drops the oldest segments of logs that exceed the retention.
func (ls *Logs) retain() {
	for _, l := range ls.openLogs() {
		if ls.o.Age > 0 {
			l.sealByAge(ls.o.Age)
			l.expire(time.Now().Add(-ls.o.Age))
		}
		if l.trim(ls.o.Retention) > 0 {
			l.recordDropped()
		}
	}
}

// sealedBytes is the size of the segments that could be dropped.
func (l *Log) sealedBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sizeOf(l.droppable())
}

// droppable returns all segments except the active one. The caller holds l.mu.
func (l *Log) droppable() []segment {
	return l.segments[:max(len(l.segments)-1, 0)]
}

func sizeOf(segments []segment) int64 {
	var n int64
	for _, s := range segments {
		n += s.size
	}
	return n
}

// sync syncs all lines that were appended before the call to disk.
func (l *Log) sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	w := l.unsynced()
	if l.failed != nil {
		return w.closeSealed() // reported once; a later success would prove nothing
	}
	err := w.run(l.logs.disk, l.dir, l.logs.dir)
	if err != nil {
		l.failed = fmt.Errorf("cannot sync the log: %w", err)
		return l.failed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, offset := range w.reached {
		s.synced = offset
	}
	return nil
}

// syncWork holds the files that one sync has to process.
type syncWork struct {
	active  *os.File // nil if it is clean
	sealed  []*os.File
	names   bool
	reached map[*stream]int64
}

// unsynced takes over the pending work. Lines that are appended later belong to the
// next sync.
func (l *Log) unsynced() syncWork {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := syncWork{sealed: l.sealed, names: l.newNames, reached: map[*stream]int64{}}
	if l.dirty && !l.closed {
		w.active = l.active
	}
	for _, s := range l.streams {
		if s.offset != s.synced {
			w.reached[s] = s.offset
		}
	}
	l.sealed, l.newNames, l.dirty = nil, false, false
	return w
}

func (w syncWork) closeSealed() error {
	var err error
	for _, f := range w.sealed {
		err = errors.Join(err, f.Close())
	}
	return err
}

// run syncs segments, then the folders that hold their names, because a segment is
// durable only if its name is.
func (w syncWork) run(d disk.Ops, folders ...string) error {
	var err error
	for _, f := range w.sealed {
		err = errors.Join(err, d.Sync(f), f.Close())
	}
	if w.active != nil {
		err = errors.Join(err, d.Sync(w.active))
	}
	if !w.names {
		return err
	}
	for _, dir := range folders {
		f, openErr := os.Open(dir)
		if openErr != nil {
			return errors.Join(err, openErr)
		}
		err = errors.Join(err, d.SyncDir(f), f.Close())
	}
	return err
}

// punchStep is the number of bytes that make it worthwhile to punch a hole.
const punchStep = 1 << 20

// holeEnd returns the offset up to which a capture file can be punched: whole blocks,
// in steps that are worth the call. It returns punched itself if there is nothing to
// do.
func holeEnd(punched, synced, step int64) int64 {
	end := synced &^ (disk.Block - 1)
	if end-punched < step {
		return punched
	}
	return end
}
