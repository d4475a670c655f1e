package logstream

import (
	"fmt"
	"time"
)

// sayEvery bounds how often a log tells that the same process is frozen: one
// that is frozen and thawed by turns must not fill its log with it.
const sayEvery = time.Minute

// cause is why a process is frozen.
type cause uint8

const (
	notFrozen cause = iota
	overBacklog
	lowDisk
)

// lowShare is the part of a low disk that one capture file may take: small
// enough that many processes printing at once do not fill it before they are
// looked at, and so large that one which prints little is never frozen.
const lowShare = 64

// pressure is what the bounds look at.
type pressure struct {
	backlog, limit       int64 // unread bytes of one capture file
	held                 int64 // bytes of it that are not given back, read or not
	free, reserve, floor int64 // bytes of the file system
	droppable            int64 // bytes of old segments, measured on a full disk
}

// low tells whether the disk has less than the reserve.
func (p pressure) low() bool { return p.free < p.reserve }

// full tells whether the disk has no room for what a process prints between two
// looks at it.
func (p pressure) full() bool { return p.free < p.floor }

// mustGive tells whether a capture file takes so much of a low disk that it is
// to be given back at once, and not by the syncer. On a full disk that old
// segments can clear, that is any byte.
func (p pressure) mustGive() bool {
	share := p.free / lowShare
	if missing(p.free, p.floor, p.droppable) > 0 {
		share = 0
	}
	return p.low() && p.held > share
}

// freezeFor is the rule of back-pressure. A process is frozen when it prints
// faster than it is read; on a low disk sooner, for less, and what is read and
// not given back counts: giving it back takes time in which it could print much
// more. It goes on when its backlog is read (backlog 0), however low the disk
// is: what filled the disk may be none of its business. Only a disk that is
// full holds it longer, for there the next line could end its capture.
func freezeFor(was cause, p pressure) cause {
	switch {
	case p.backlog > 0 && p.mustGive():
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

// floorFor is how many free bytes a disk needs so as not to be full: what the
// reserve file gives back and a batch, but no more than the reserve.
func floorFor(reserve, reserveFile int64) int64 { return min(reserve, reserveFile+readSize) }

// missing is how many bytes of segments must go so that the free bytes reach
// the floor. It is 0 when all that could go are too few: then it is not the
// logs that fill the disk, and dropping them would help nobody.
func missing(free, floor, droppable int64) int64 {
	if free >= floor || floor-free > droppable {
		return 0
	}
	return floor - free
}

// sentence says once, in the app's own log, why its process stands still.
func (c cause) sentence(capture string, p pressure) string {
	if c == lowDisk {
		return fmt.Sprintf("%s is frozen until its log is read: %d bytes are free on the disk of the logs, less than the reserve of %d", capture, p.free, p.reserve)
	}
	return fmt.Sprintf("%s is frozen until its log is read: %d bytes are unread, more than %d", capture, p.backlog, p.limit)
}

// leafKey names a process. Its two capture files freeze the same one.
type leafKey struct{ instance, exec string }

// setLeaf freezes a process for the first of its capture files that asks, and
// thaws it when the last one lets go.
func (l *Log) setLeaf(t *Tail, want cause) error {
	l.leaf.Lock()
	defer l.leaf.Unlock()
	k := leafKey{t.key.Instance, t.key.Exec}
	held := l.leaves[k]
	if t.frozen != notFrozen {
		held-- // by the other file
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

// forgetLeaf takes back what a tail that ends asked for.
func (l *Log) forgetLeaf(t *Tail) {
	l.leaf.Lock()
	defer l.leaf.Unlock()
	k := leafKey{t.key.Instance, t.key.Exec}
	delete(l.said, k)
	if t.frozen == notFrozen {
		return
	}
	if l.leaves[k]--; l.leaves[k] <= 0 {
		delete(l.leaves, k)
	}
}

// sayNow tells whether the log is to tell that a process is frozen: not when it
// has done so a short while ago, for this capture file or the other.
func (l *Log) sayNow(t *Tail) bool {
	l.leaf.Lock()
	defer l.leaf.Unlock()
	k := leafKey{t.key.Instance, t.key.Exec}
	if last, ok := l.said[k]; ok && time.Since(last) < sayEvery {
		return false
	}
	l.said[k] = time.Now()
	return true
}

func (l *Log) frozenLeaves() int {
	l.leaf.Lock()
	defer l.leaf.Unlock()
	return len(l.leaves)
}

// pressure measures for a capture file of size bytes; with 0 bytes, as if all
// of it were read and given back.
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

// bound freezes or thaws as the rule says.
func (t *Tail) bound(p pressure) {
	if next := freezeFor(t.frozen, p); next != t.frozen || t.unsure {
		t.freeze(next, p)
	}
}

// drained is called when all whole lines are read. A process that was frozen
// goes on when that is given back; on a full disk old segments make room for
// what it prints next.
func (t *Tail) drained() error {
	t.again.Store(t.unsure || t.over.lines > 0)
	if t.frozen == notFrozen {
		return nil
	}
	var err error
	// PID 1 of the instance counts what is read and not given back, and would pause
	// the process again.
	if p := t.pressure(t.tried.Load()); p.low() || p.held > t.log.logs.ceiling/2 {
		err = t.giveBack()
	}
	p := t.pressure(0)
	if p.full() {
		t.log.logs.clear()
		p = t.pressure(0)
	}
	// After an error too: it may last, and a process must not hang for it.
	t.bound(p)
	t.again.Store(t.frozen != notFrozen || t.over.lines > 0)
	return err
}

// sayPaused says in the app's log, once per process, that the process stood still
// while no daemon was there.
func (t *Tail) sayPaused() {
	if !t.c.Paused || !t.log.sayNow(t) {
		return
	}
	text := fmt.Sprintf("%s/%d was paused while dewd was not running, because its output could not be stored; it continues once dewd has stored it", t.c.Source.Type, t.c.Source.Index)
	if err := t.log.Append(cellLine(t.c.Source, text)); err != nil {
		t.log.log.Warn("cannot say that a process was paused", "capture", t.path, "err", err)
	}
}

// freeze does it and says so once.
func (t *Tail) freeze(next cause, p pressure) {
	if t.c.Freeze == nil {
		return
	}
	was := t.frozen
	if t.unsure || (was == notFrozen) != (next == notFrozen) {
		if err := t.log.setLeaf(t, next); err != nil {
			t.again.Store(true)
			t.log.log.Warn("cannot freeze or thaw a process", "capture", t.path, "err", err)
			return
		}
	}
	t.unsure, t.frozen = false, next
	if was != notFrozen || next == notFrozen || !t.log.sayNow(t) {
		return
	}
	capture := fmt.Sprintf("%s/%d", t.c.Source.Type, t.c.Source.Index)
	if err := t.log.Append(cellLine(t.c.Source, next.sentence(capture, p))); err != nil {
		t.log.log.Warn("cannot say that a process is frozen", "capture", t.path, "err", err)
	}
}
