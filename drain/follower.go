package drain

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/store"
)

// saveEvery is how often it is kept how far the receiver has the log. After a
// kill of the daemon at most that much comes twice.
const saveEvery = time.Second

// follower sends one app's lines to one receiver. Its own goroutine owns next.
type follower struct {
	d      *Drains
	target Target
	url    *url.URL // checked
	log    *logstream.Log
	ctx    context.Context //nolint:containedctx // its life: it ends with the drain, or with the daemon
	end    context.CancelFunc
	next   uint64 // number of the first line that the receiver has not, as far as is known

	mu    sync.Mutex // guards the fields below
	saved uint64
	stats Stats
}

// batch are lines that a cursor gave.
type batch struct {
	lines   []logstream.Envelope
	next    uint64 // number behind them
	more    bool   // others follow at once
	release func() // gives their memory back
}

// sender is one connection to a receiver.
type sender interface {
	// send hands over a batch, and releases it before it waits for the receiver. It
	// may wait for the next one if there is more.
	send(ctx context.Context, b batch) error
	// has is the number of the first line that the receiver may not have; ended: the
	// connection has, and no more is to be heard.
	has(ended bool) uint64
	// ended is closed when the receiver hangs up; err tells how.
	ended() <-chan struct{}
	err() error
	close()
}

// run sends until the drain or the daemon ends.
func (f *follower) run() {
	defer f.end()
	for failures := 0; f.ctx.Err() == nil; {
		before := f.next
		err := f.once()
		f.keep(f.next)
		if f.ctx.Err() != nil {
			return
		}
		if f.next > before {
			failures = 0
		}
		failures++
		f.broke(err, failures)
		select {
		case <-f.ctx.Done():
		case <-time.After(backoff(f.d.retry, failures)):
		}
	}
}

// once sends over one connection until it ends, and moves next to the first line
// that has to be sent again.
func (f *follower) once() error {
	s, err := f.open()
	if err != nil {
		return err
	}
	defer s.close()
	f.connected()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() { f.watch(ctx, cancel, s) })
	sent, err := f.pour(ctx, s)
	cancel()
	watch.Wait()
	has := max(s.has(true), f.next)
	if again := sent - min(has, sent); again > 0 && !errors.Is(err, errHungUp) && f.ctx.Err() == nil {
		f.count(func(st *Stats) { st.Repeated += again })
		err = fmt.Errorf("%w (%d lines may arrive twice)", err, again)
	}
	f.count(func(st *Stats) { st.Sent += has - f.next })
	f.next = has
	return err
}

// watch keeps how far the receiver is, and ends pour when it hangs up.
func (f *follower) watch(ctx context.Context, cancel func(), s sender) {
	save := time.NewTicker(saveEvery)
	defer save.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ended():
			cancel()
			return
		case <-save.C:
			f.keep(s.has(false))
		}
	}
}

// pour sends what there is and what comes. It returns the number behind the last
// line that it handed over.
func (f *follower) pour(ctx context.Context, s sender) (sent uint64, err error) {
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
			select {
			case <-s.ended(): // why it hung up says more than that nothing can be written
				err = s.err()
			default:
			}
			return cur.At(), err
		}
		sent = cur.At()
	}
}

// open connects as the URL says.
func (f *follower) open() (sender, error) {
	names := [2]string{f.d.c.Host(f.target.App), f.target.App}
	switch f.url.Scheme {
	case schemeHTTP, schemeBatch:
		return newPoster(f, names), nil
	}
	return f.dial(names)
}

// keep writes down how far the receiver is.
func (f *follower) keep(next uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next <= f.saved {
		return
	}
	_, err := f.d.places.Update(f.target.key(), func(m *mark) error {
		m.Next = max(m.Next, next)
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) { // not found: the drain is no more
		f.d.c.Logger.Error("cannot keep how far a drain is", "app", f.target.App, "drain", f.target.Name, "err", err)
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

// connected tells of a connection after it was missing.
func (f *follower) connected() {
	var missing bool
	f.count(func(st *Stats) {
		missing = st.Err != ""
		st.Connected, st.Err = true, ""
	})
	if missing {
		f.say(logstream.Out, "sends again to "+place(f.url))
	}
}

// broke tells once that the receiver is away. That it hung up is no news unless it
// stays away.
func (f *follower) broke(err error, failures int) {
	var known bool
	f.count(func(st *Stats) {
		known = st.Err != ""
		st.Connected = false
		if !errors.Is(err, errHungUp) || failures > 1 {
			st.Err = err.Error()
		}
	})
	if known || errors.Is(err, errHungUp) {
		return
	}
	f.say(logstream.Err, fmt.Sprintf("cannot send to %s: %v; lines wait in the log and are sent later", place(f.url), err))
}

// say writes a sentence into the app's log, which the receiver gets too.
func (f *follower) say(s logstream.Stream, text string) {
	err := f.log.Append(logstream.Envelope{
		Source: logstream.Source{Type: "LGR"}, Stream: s, Text: []byte("drain " + f.target.Name + ": " + text),
	})
	if err != nil {
		f.d.c.Logger.Warn("cannot write to the app's log", "app", f.target.App, "err", err)
	}
}
