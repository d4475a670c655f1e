package logstream

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
)

// maxAnnounced limits how many new logs can wait to be copied. A log that does not fit
// is found by the next check of all logs.
const maxAnnounced = 64

// Copy passes every line that is appended to any log from now on to each, in order per
// app, until ctx is done. The lines are valid until each returns. Copy reads with
// cursors: a slow each delays no one, and loses lines only to the retention. Copy calls
// each from many goroutines, one per app.
func (ls *Logs) Copy(ctx context.Context, each func(app string, es []Envelope)) {
	opened := make(chan *Log, maxAnnounced)
	ls.mu.Lock()
	ls.opened = append(ls.opened, opened)
	open := make([]*Log, 0, len(ls.apps))
	for _, l := range ls.apps {
		open = append(open, l)
	}
	ls.mu.Unlock()
	var group sync.WaitGroup
	defer group.Wait()
	defer ls.unannounce(opened)
	copied := map[string]bool{} // by folder, so that a removed log is not held
	begin := func(l *Log, from uint64) {
		if copied[l.dir] {
			return
		}
		copied[l.dir] = true
		group.Go(func() { copyFrom(ctx, l.Cursor(from).Brief(), each) })
	}
	for _, l := range open {
		begin(l, l.LastSeq()+1)
	}
	for {
		select {
		case l := <-opened:
			begin(l, l.born)
			for _, l := range ls.openLogs() { // the channel was possibly too full for some log
				begin(l, l.born)
			}
		case <-ctx.Done():
			return
		}
	}
}

// announce sends a newly opened log to all receivers. The caller holds ls.mu.
func (ls *Logs) announce(l *Log) {
	for _, opened := range ls.opened {
		select {
		case opened <- l:
		default:
		}
	}
}

func (ls *Logs) unannounce(opened chan<- *Log) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.opened = slices.DeleteFunc(ls.opened, func(c chan<- *Log) bool { return c == opened })
}

// copyFrom passes lines to each until ctx is done or the log is closed.
func copyFrom(ctx context.Context, c *Cursor, each func(app string, es []Envelope)) {
	app := filepath.Base(c.log.dir)
	for {
		es, err := c.Next(ctx)
		switch {
		case errors.Is(err, ErrTrimmed):
			c, _ = c.Skip() // the log's own gap record says how many
		case err != nil:
			if ctx.Err() == nil && !errors.Is(err, ErrClosed) {
				c.log.log.Warn("cannot copy the log any longer", "err", err)
			}
			return
		}
		if len(es) > 0 {
			each(app, es)
		}
	}
}
