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

// pressure is what the bounds look at.
type pressure struct {
	backlog, limit int64 // unread bytes of one capture file
	free, reserve  int64 // bytes of the file system
}

// freezeFor is the rule of back-pressure. A process is frozen when it prints
// faster than it is read, or prints while the disk is low. It stays so until
// its backlog is read (backlog 0) and the disk is no longer low. One that does
// not print is left alone.
func freezeFor(was cause, p pressure) cause {
	switch {
	case p.free < p.reserve && (p.backlog > 0 || was != notFrozen):
		return lowDisk
	case p.backlog > p.limit:
		return overBacklog
	case p.backlog > 0:
		return was
	default:
		return notFrozen
	}
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
	if l.leaves[k]--; l.leaves[k] <= 0 {
		delete(l.leaves, k)
	}
}

func (l *Log) frozenLeaves() int {
	l.leaf.Lock()
	defer l.leaf.Unlock()
	return len(l.leaves)
}
