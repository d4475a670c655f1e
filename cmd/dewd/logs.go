package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/logstream/journal"
	"github.com/dewrun/dew/runtime"
)

// maxStagingErrors is the number of build lines that are searched for a failure's
// cause.
const maxStagingErrors = 200

// appLogs adds the lines that dewd itself writes about builds and databases.
type appLogs struct {
	runtime.AppLogs
	log *slog.Logger
}

// writeStagingLine writes a line of a build to the log of its app.
func (l appLogs) writeStagingLine(guid, line string) {
	e := logstream.Envelope{Source: logstream.Source{Type: "STG"}, Stream: logstream.Out, Text: []byte(line)}
	if err := l.Append(guid, e); err != nil {
		l.log.Error("cannot write a staging line to the log of the app", "app", guid, "err", err)
	}
}

// writeServiceLine writes a sentence to the log of a database.
func (l appLogs) writeServiceLine(guid, line string) {
	e := logstream.Envelope{Source: logstream.Source{Type: "CELL"}, Stream: logstream.Err, Text: []byte(line)}
	if err := l.Append(guid, e); err != nil {
		l.log.Error("cannot write to the log of a service instance", "service", guid, "err", err)
	}
}

// lastServiceError returns the newest line that a source printed to stderr in the log of a
// database, or an empty text.
func (l appLogs) lastServiceError(guid, source string) string {
	one, err := l.Logs.App(guid)
	if err != nil {
		return ""
	}
	es, err := one.NewestOf(context.Background(), 1, logstream.Filter{Source: source, Stream: logstream.Err, NoGaps: true})
	if err != nil || len(es) == 0 {
		return ""
	}
	return string(es[0].Text)
}

// stagingErrors returns the newest lines that a build has printed to stderr. If they
// cannot be read, the error of the build only has less detail.
func (l appLogs) stagingErrors(guid string, since time.Time) []string {
	one, err := l.Logs.App(guid)
	if err != nil {
		return nil
	}
	f := logstream.Filter{Source: runtime.SourceStaging, Stream: logstream.Err, NoGaps: true, Since: since}
	es, err := one.NewestOf(context.Background(), maxStagingErrors, f)
	if err != nil {
		l.log.Warn("cannot read the output of a build", "app", guid, "err", err)
	}
	var lines []string
	for i := range es {
		lines = append(lines, string(es[i].Text))
	}
	return lines
}

// sweepLogs removes the logs of deleted apps, after their instances and builds stopped.
func (d *daemon) sweepLogs(ctx context.Context) error {
	select {
	case <-d.ready: // the instances of an earlier daemon are known
		d.sweep.fire()
	case <-ctx.Done():
		return nil
	}
	for {
		select {
		case <-d.sweep:
		case <-ctx.Done():
			return nil
		}
		if err := d.logs.Sweep(d.logged); err != nil {
			d.log.Error("cannot remove the logs of deleted apps", "err", err)
		}
	}
}

// logged returns the existing apps and databases, and those whose instances or builds
// are still stopping.
func (d *daemon) logged() (map[string]bool, error) {
	keep := d.sup.Apps()
	for _, guid := range d.builds.Apps() {
		keep[guid] = true
	}
	databases, err := d.databases.Instances()
	if err != nil {
		return nil, err
	}
	for _, guid := range databases {
		keep[guid] = true
	}
	apps, err := d.registry.Apps()
	for _, a := range apps {
		keep[a.GUID] = true
	}
	return keep, err
}

// copyLogs copies the output of apps to the journal, if that is enabled.
func (d *daemon) copyLogs(ctx context.Context) error {
	if d.cfg.LogJournal {
		d.logs.Copy(ctx, journal.Writer(d.log, d.apps.name))
	}
	return nil
}
