package logstream

import (
	"fmt"
	"time"
)

// recordInterval limits how often a log records that the same process is frozen. A process
// that is frozen and thawed repeatedly must not fill its log with these records.
const recordInterval = time.Minute

// cause is why a process is frozen.
type cause uint8

const (
	notFrozen cause = iota
	overBacklog
	lowDisk
)

// lowShare is the fraction of a low disk that one capture file can take. It is small
// enough that many processes printing at once do not fill the disk before they are
// checked. It is large enough that a process which prints little is never frozen.
const lowShare = 64

// pressure holds the measurements that the limits are compared with.
type pressure struct {
	backlog, limit       int64 // unread bytes of one capture file
	held                 int64 // bytes of it that are not freed, read or not
	free, reserve, floor int64 // bytes of the file system
	droppable            int64 // bytes of old segments, measured only on a full disk
}

// low reports whether the disk has less free space than the reserve.
func (p pressure) low() bool { return p.free < p.reserve }

// full reports whether the disk has no space for the output of a process between two
// checks.
func (p pressure) full() bool { return p.free < p.floor }

// mustFree reports whether a capture file takes so much of a low disk that it must be
// freed at once, without waiting for the syncer. On a full disk that old segments can
// clear, that applies to any byte.
func (p pressure) mustFree() bool {
	share := p.free / lowShare
	if missing(p.free, p.floor, p.droppable) > 0 {
		share = 0
	}
	return p.low() && p.held > share
}

// freezeFor is the rule of back-pressure. A process is frozen if it prints faster than
// its output is read. On a low disk the limit is smaller, and read bytes that are not
// freed yet count. Freeing them takes time in which the process could print much more.
// The process continues when its backlog is read (backlog 0), however low the disk is,
// because other data could have filled it. Only a full disk holds it longer, because
// there the next line could break its capture.
func freezeFor(was cause, p pressure) cause {
	switch {
	case p.backlog > 0 && p.mustFree():
		return lowDisk
	case p.backlog > p.limit:
		return overBacklog
	case p.backlog > 0:
		return was
	case was != notFrozen && p.full():
		return lowDisk
	default:
		return notFrozen
	}
}

// floorFor is the number of free bytes below which a disk is full. It is the size of
// the reserve file plus a batch, but no more than the reserve.
func floorFor(reserve, reserveFile int64) int64 { return min(reserve, reserveFile+readSize) }

// missing is how many bytes of segments must be dropped so that the free bytes reach
// the floor. It is 0 if all droppable segments are too small. Then the logs are not
// what fills the disk, and dropping them would not help.
func missing(free, floor, droppable int64) int64 {
	if free >= floor || floor-free > droppable {
		return 0
	}
	return floor - free
}

// message explains in the app's own log why its process is frozen.
func (c cause) message(capture string, p pressure) string {
	if c == lowDisk {
		return fmt.Sprintf("%s is paused until its output is stored: the disk of the logs has %d free bytes, less than the reserve of %d", capture, p.free, p.reserve)
	}
	return fmt.Sprintf("%s is paused until its output is stored: %d bytes are waiting, more than the limit of %d", capture, p.backlog, p.limit)
}

// leafKey names a process. Its two capture files freeze the same one.
type leafKey struct{ instance, exec string }

// setLeaf freezes a process for the first of its capture files that requests it, and
// thaws it when the last one no longer does.
func (l *Log) setLeaf(t *Tail, want cause) error {
	l.leaf.Lock()
	defer l.leaf.Unlock()
	k := leafKey{t.key.Instance, t.key.Exec}
	held := l.leaves[k]
	if t.frozen != notFrozen {
		held-- // held by the other file
	}
	if held == 0 {
		if err := t.c.Freeze(want != notFrozen); err != nil {
			return err
		}
	}
	if want != notFrozen {
		held++
	}
	if l.leaves[k] = held; held == 0 {
		delete(l.leaves, k)
	}
	return nil
}

// removeLeaf withdraws the freeze request of a tail that stops.
func (l *Log) removeLeaf(t *Tail) {
	l.leaf.Lock()
	defer l.leaf.Unlock()
	k := leafKey{t.key.Instance, t.key.Exec}
	delete(l.lastFreezeRecord, k)
	if t.frozen == notFrozen {
		return
	}
	if l.leaves[k]--; l.leaves[k] <= 0 {
		delete(l.leaves, k)
	}
}

// recordDue reports whether the log must record that a process is frozen. It returns false
// if a recent record exists for this capture file or the other.
func (l *Log) recordDue(t *Tail) bool {
	l.leaf.Lock()
	defer l.leaf.Unlock()
	k := leafKey{t.key.Instance, t.key.Exec}
	if last, ok := l.lastFreezeRecord[k]; ok && time.Since(last) < recordInterval {
		return false
	}
	l.lastFreezeRecord[k] = time.Now()
	return true
}

func (l *Log) frozenLeaves() int {
	l.leaf.Lock()
	defer l.leaf.Unlock()
	return len(l.leaves)
}

// pressure measures for a capture file of size bytes. With size 0 it measures as if all
// of the file were read and freed.
func (t *Tail) pressure(size int64) pressure {
	ls := t.log.logs
	free, _ := ls.low()
	t.holes.Lock()
	held := max(0, size-t.punched)
	t.holes.Unlock()
	p := pressure{
		backlog: max(0, size-t.position()), limit: ls.o.Backlog, held: held,
		free: free, reserve: ls.o.Reserve, floor: ls.floor,
	}
	if p.full() {
		p.droppable = ls.droppable()
	}
	return p
}

// bound freezes or thaws the process according to freezeFor.
func (t *Tail) bound(p pressure) {
	if next := freezeFor(t.frozen, p); next != t.frozen || t.unsure {
		t.freeze(next, p)
	}
}

// drained is called when all whole lines are read. A frozen process continues when
// their space is freed. On a full disk, old segments are dropped to make space for its
// next output.
func (t *Tail) drained() error {
	t.again.Store(t.unsure || t.over.lines > 0)
	if t.frozen == notFrozen {
		return nil
	}
	var err error
	// PID 1 of the instance counts read bytes that are not freed yet, and would pause
	// the process again.
	if p := t.pressure(t.tried.Load()); p.low() || p.held > t.log.logs.ceiling/2 {
		err = t.freeSynced()
	}
	p := t.pressure(0)
	if p.full() {
		t.log.logs.clear()
		p = t.pressure(0)
	}
	// Even after an error: it can last, and a process must not hang because of it.
	t.bound(p)
	t.again.Store(t.frozen != notFrozen || t.over.lines > 0)
	return err
}

// recordPaused records in the app's log, once per process, that the process was paused
// while no daemon ran.
func (t *Tail) recordPaused() {
	if !t.c.Paused || !t.log.recordDue(t) {
		return
	}
	text := fmt.Sprintf("%s/%d was paused while dewd was not running, because its output could not be stored; it continues once dewd has stored it", t.c.Source.Type, t.c.Source.Index)
	if err := t.log.Append(cellLine(t.c.Source, text)); err != nil {
		t.log.log.Warn("cannot write to the app's log that a process was paused", "capture", t.path, "err", err)
	}
}

// freeze freezes or thaws the process and records it once.
func (t *Tail) freeze(next cause, p pressure) {
	if t.c.Freeze == nil {
		return
	}
	was := t.frozen
	if t.unsure || (was == notFrozen) != (next == notFrozen) {
		if err := t.log.setLeaf(t, next); err != nil {
			t.again.Store(true)
			t.log.log.Warn("cannot pause or continue a process", "capture", t.path, "err", err)
			return
		}
	}
	t.unsure, t.frozen = false, next
	if was != notFrozen || next == notFrozen || !t.log.recordDue(t) {
		return
	}
	capture := fmt.Sprintf("%s/%d", t.c.Source.Type, t.c.Source.Index)
	if err := t.log.Append(cellLine(t.c.Source, next.message(capture, p))); err != nil {
		t.log.log.Warn("cannot write to the app's log that a process is paused", "capture", t.path, "err", err)
	}
}
