package logstream

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/coreos/go-systemd/v22/journal"
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

// Journal returns a function for Copy that writes lines to journald, with the fields
// APP, APP_GUID, PROCESS, SIDECAR, INSTANCE, SOURCE and DEW_SEQ. If journald refuses
// lines, it logs one warning until journald accepts them again; the logs are not
// affected. name returns an app's name for its guid and can be nil.
func Journal(log *slog.Logger, name func(guid string) string) func(app string, es []Envelope) {
	return newJournal(log, name, journal.Send).write
}

type journalCopy struct {
	log  *slog.Logger
	name func(guid string) string
	send func(message string, p journal.Priority, fields map[string]string) error

	mu     sync.Mutex
	failed bool // guarded by mu
}

func newJournal(log *slog.Logger, name func(guid string) string, send func(string, journal.Priority, map[string]string) error) *journalCopy {
	if name == nil {
		name = func(guid string) string { return guid }
	}
	return &journalCopy{log: log, name: name, send: send}
}

func (j *journalCopy) write(app string, es []Envelope) {
	name := j.name(app)
	for i := range es {
		fields := journalFields(&es[i])
		fields["APP"], fields["APP_GUID"] = name, app
		p := journal.PriInfo
		if es[i].Stream == Err {
			p = journal.PriErr
		}
		text := string(es[i].Text)
		if !utf8.ValidString(text) {
			text = strings.ToValidUTF8(text, "\uFFFD") // the log itself has every byte
		}
		j.reportFailure(j.send(text, p, fields))
	}
}

// reportFailure logs the first of consecutive failures.
func (j *journalCopy) reportFailure(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil && !j.failed {
		j.log.Warn("cannot copy log lines to the journal; the app's log still has them", "err", err)
	}
	j.failed = err != nil
}

func journalFields(e *Envelope) map[string]string {
	fields := map[string]string{
		"SYSLOG_IDENTIFIER": "dew", "SOURCE": e.Source.Type, "INSTANCE": strconv.Itoa(e.Source.Index), "DEW_SEQ": strconv.FormatUint(e.Seq, 10),
	}
	if rest, ok := strings.CutPrefix(e.Source.Type, processPrefix); ok {
		process, sidecar, _ := strings.Cut(rest, sidecarInfix)
		fields["PROCESS"] = strings.ToLower(process)
		if sidecar != "" {
			fields["SIDECAR"] = sidecar
		}
	}
	if e.Source.InstanceID != "" {
		fields["INSTANCE_ID"] = e.Source.InstanceID
	}
	return fields
}
