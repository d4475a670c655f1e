package supervisor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// appLog writes the platform's lines about one slot into the log of its app.
type appLog struct {
	logs         AppLogs
	log          *slog.Logger
	index        int
	loggedErrors map[string]bool // since the last successful start; owned by Run
}

// logCell writes a platform line about an instance into the app's log.
func (l *appLog) logCell(of runtime.Spec, stream logstream.Stream, text string) {
	l.append(of.App, logstream.Envelope{
		Source: logstream.Source{Type: sourceCell, Index: l.index, InstanceID: string(of.Instance)},
		Stream: stream,
		Text:   []byte(text),
	})
}

// logKilled writes into the app's log which processes did not exit in time after
// SIGTERM.
func (l *appLog) logKilled(in *Instance, delay time.Duration) {
	for _, exec := range in.alive() {
		if p, ok := in.process(exec); ok {
			l.logCell(in.spec, logstream.Err, fmt.Sprintf("%s did not exit within %s after SIGTERM, so dew sends SIGKILL", p.Source, delay))
		}
	}
}

// maxLoggedErrors limits loggedErrors: errors whose text changes each time must not
// grow the map without limit.
const maxLoggedErrors = 16

// logStartError writes an error into the app's log once between two successful starts.
func (l *appLog) logStartError(guid, text string) {
	if l.loggedErrors[text] || len(l.loggedErrors) >= maxLoggedErrors {
		return
	}
	l.loggedErrors[text] = true
	l.log.Warn("cannot start instance, trying again", "app", guid, "err", text)
	if guid != "" {
		l.logCell(runtime.Spec{App: guid}, logstream.Err, text)
	}
}

func (l *appLog) append(guid string, es ...logstream.Envelope) {
	if len(es) == 0 {
		return
	}
	if err := l.logs.Append(guid, es...); err != nil {
		l.log.Error("cannot write to the app's log", "app", guid, "lines", len(es), "err", err)
	}
}

// announce writes the exit line of a crash, if the log refused it so far. It returns
// false if the log refuses it again. A daemon can be killed after it wrote the line and
// before it stored that, so announce first searches for the line.
func (l *appLog) announce(ctx context.Context, r *runtime.ExitRecord, limit time.Duration) bool {
	if !r.Unlogged {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	found, err := l.logs.Contains(ctx, r.App, r.LineFilter())
	if err != nil { // never write it twice, and do not wait for a log that cannot be read
		l.log.Error("cannot read the app's log; the exit line of an instance may be missing", "instance", r.Instance, "err", err)
		return true
	}
	if !found {
		err = l.logs.Append(r.App, r.Envelope())
	}
	if err != nil {
		l.log.Error("cannot write the exit line to the app's log", "app", r.App, "instance", r.Instance, "err", err)
	}
	r.Unlogged = err != nil
	return err == nil
}

// newest returns the last lines of a process that are in the app's log.
func (l *appLog) newest(ctx context.Context, in *Instance, exec string, limit time.Duration) []logstream.Envelope {
	p, ok := in.process(exec)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	lines, err := l.logs.NewestOf(ctx, in.spec.App, runtime.LastLines, logstream.Filter{Source: p.Source, InstanceID: string(in.spec.Instance), NoGaps: true})
	if err != nil {
		l.log.Error("cannot read the last lines of a process, its exit record has none", "instance", in.spec.Instance, "exec", exec, "err", err)
	}
	return lines
}
