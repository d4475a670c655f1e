package runtime

import (
	"context"

	"github.com/dewrun/dew/logstream"
)

// AppLogs reads and writes the logs of apps and databases by their GUIDs.
type AppLogs struct{ Logs *logstream.Logs }

// Append writes lines to a log.
func (l AppLogs) Append(guid string, es ...logstream.Envelope) error {
	log, err := l.Logs.App(guid)
	if err != nil {
		return err
	}
	return log.Append(es...)
}

// Contains reports whether a log has a line that matches the filter.
func (l AppLogs) Contains(ctx context.Context, guid string, f logstream.Filter) (bool, error) {
	log, err := l.Logs.App(guid)
	if err != nil {
		return false, err
	}
	return log.Contains(ctx, f)
}

// NewestOf returns the last n lines of a log that match the filter.
func (l AppLogs) NewestOf(ctx context.Context, guid string, n int, f logstream.Filter) ([]logstream.Envelope, error) {
	log, err := l.Logs.App(guid)
	if err != nil {
		return nil, err
	}
	return log.NewestOf(ctx, n, f)
}

// Last returns the number of the newest line of a log, or 0 if it has none.
func (l AppLogs) Last(guid string) (uint64, error) {
	log, err := l.Logs.App(guid)
	if err != nil {
		return 0, err
	}
	return log.LastSeq(), nil
}
