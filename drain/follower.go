package drain

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/store"
)

// saveInterval is how often the position of the receiver is stored. After the daemon is
// killed, at most that much is sent twice.
const saveInterval = time.Second

// follower sends one app's lines to one receiver. Only its own goroutine uses next.
type follower struct {
	d      *Drains
	target Target
	url    *url.URL // checked
	log    *logstream.Log
	ctx    context.Context //nolint:containedctx // its life: it ends with the drain, or with the daemon
	end    context.CancelFunc
	next   uint64 // number of the first line that the receiver does not have, as far as known

	reconnect chan struct{} // capacity 1: tls has changed
	changed   atomic.Bool   // the connection was closed for that

	mu     sync.Mutex // guards the fields below
	saved  uint64
	stats  Stats
	tls    TLS
	report bool // report the next failure, even if the last one was reported
}

// batch has the lines that a cursor returned.
type batch struct {
	lines   []logstream.Envelope
	next    uint64 // number of the line after them
	more    bool   // more lines follow at once
	release func() // frees their memory
}

// sender is one connection to a receiver.
type sender interface {
	// send sends a batch, and releases it before it waits for the receiver. It can wait
	// for the next batch if there is more.
	send(ctx context.Context, b batch) error
	// has returns the number of the first line that the receiver may not have. With
	// ended, the connection is closed, and the result is final.
	has(ended bool) uint64
	// ended is closed when the receiver disconnects; err returns the reason.
	ended() <-chan struct{}
	err() error
	close()
}

// run sends lines until the drain or the daemon stops.
func (f *follower) run() {
	defer f.end()
	for failures := 0; f.ctx.Err() == nil; {
		before := f.next
		err := f.sendOnce()
		f.savePosition(f.next)
		if f.ctx.Err() != nil {
			return
		}
		if f.next > before || f.changed.Load() {
			failures = 0
		}
		if f.changed.Swap(false) {
			continue
		}
		failures++
		f.reportFailure(err, failures)
		select {
		case <-f.ctx.Done():
		case <-f.reconnect:
		case <-time.After(backoff(f.d.retry, failures)):
		}
	}
}

// sendOnce sends over one connection until it is closed, and moves next to the first line
// that must be sent again.
func (f *follower) sendOnce() error {
	s, err := f.open()
	if err != nil {
		return err
	}
	defer s.close()
	if f.status().Err == "" {
		f.connected()
	}
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() { f.watch(ctx, cancel, s) })
	sent, err := f.sendLines(ctx, s)
	cancel()
	watch.Wait()
	has := max(s.has(true), f.next)
	if err != nil {
		select {
		case <-s.ended(): // the reason of the disconnect is more precise than a write error
			err = s.err()
		default:
		}
	}
	if has > f.next {
		f.connected()
	}
	if again := sent - min(has, sent); again > 0 && !errors.Is(err, errReceiverClosed) && f.ctx.Err() == nil {
		f.count(func(st *Stats) { st.Repeated += again })
		err = fmt.Errorf("%w (the receiver may get %d lines twice)", err, again)
	}
	f.count(func(st *Stats) { st.Sent += has - f.next })
	f.next = has
	return err
}

// watch stores the position of the receiver, and stops sendLines when the receiver
// disconnects, or when the certificates change.
func (f *follower) watch(ctx context.Context, cancel func(), s sender) {
	save := time.NewTicker(saveInterval)
	defer save.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ended():
			cancel()
			return
		case <-f.reconnect:
			f.changed.Store(true)
			cancel()
			return
		case <-save.C:
			f.savePosition(s.has(false))
			f.connected()
		}
	}
}

// sendLines sends existing and new lines. It returns the number of the line after the last
// one that it sent.
func (f *follower) sendLines(ctx context.Context, s sender) (sent uint64, err error) {
	sent = f.next
	cur := f.log.Cursor(sent).Brief()
	for {
		es, err := cur.Next(ctx)
		switch {
		case errors.Is(err, logstream.ErrTrimmed):
			var lost int64
			cur, lost = cur.Skip()
			f.count(func(st *Stats) { st.Dropped += uint64(max(lost, 0)) })
			continue
		case err != nil:
			select {
			case <-s.ended():
				return sent, s.err()
			default:
				return sent, err
			}
		}
		if err := s.send(ctx, batch{lines: es, next: cur.At(), more: cur.Behind(), release: cur.Release}); err != nil {
			return cur.At(), err
		}
		sent = cur.At()
	}
}

// open connects to the URL.
func (f *follower) open() (sender, error) {
	names := [2]string{f.d.c.Host(f.target.App), f.target.App}
	if f.url.Scheme == schemeTCP {
		return f.dial(names, nil)
	}
	f.mu.Lock()
	certificates := f.tls
	f.mu.Unlock()
	config, err := certificates.config(f.d.c.Roots)
	if err != nil {
		return nil, err
	}
	if f.url.Scheme == schemeTLS {
		return f.dial(names, config)
	}
	return newPoster(f, names, config), nil
}

// reload connects again if the certificates have changed.
func (f *follower) reload(certificates TLS) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tls == certificates {
		return
	}
	f.tls, f.report = certificates, true
	select {
	case f.reconnect <- struct{}{}:
	default: // already pending
	}
}

// savePosition stores the position of the receiver.
func (f *follower) savePosition(next uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next <= f.saved {
		return
	}
	_, err := f.d.positions.Update(f.target.key(), func(m *position) error {
		m.Next = max(m.Next, next)
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) { // not found: the drain was deleted
		f.d.c.Logger.Error("cannot store the position of a log drain", "app", f.target.App, "drain", f.target.Name, "err", err)
		return
	}
	f.saved = next
}

func (f *follower) count(fn func(*Stats)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(&f.stats)
}

func (f *follower) status() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.stats
	st.App, st.Name = f.target.App, f.target.Name
	return st
}

// connected reports a connection after it was missing. A receiver can refuse the client
// certificate after the handshake, so that is reported only when the connection lasts.
func (f *follower) connected() {
	var missing bool
	f.count(func(st *Stats) {
		missing = st.Err != ""
		f.report, st.Connected, st.Err = false, true, ""
	})
	if missing {
		f.appendToLog(logstream.Out, "connected again to "+displayURL(f.url))
	}
}

// reportFailure reports once that the receiver is unreachable. A disconnect is reported only if
// reconnecting fails.
func (f *follower) reportFailure(err error, failures int) {
	var known bool
	f.count(func(st *Stats) {
		known = st.Err != "" && !f.report
		f.report = f.report && errors.Is(err, errReceiverClosed)
		st.Connected = false
		if !errors.Is(err, errReceiverClosed) || failures > 1 {
			st.Err = err.Error()
		}
	})
	if known || errors.Is(err, errReceiverClosed) {
		return
	}
	f.appendToLog(logstream.Err, fmt.Sprintf("cannot send to %s: %v; dewd keeps the lines in the log and sends them later", displayURL(f.url), err))
}

// appendToLog writes a message into the app's log, which the receiver also gets.
func (f *follower) appendToLog(s logstream.Stream, text string) {
	err := f.log.Append(logstream.Envelope{
		Source: logstream.Source{Type: "LGR"}, Stream: s, Text: []byte("drain " + f.target.Name + ": " + text),
	})
	if err != nil {
		f.d.c.Logger.Warn("cannot write to the app's log", "app", f.target.App, "err", err)
	}
}
