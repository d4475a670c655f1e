// Package journal copies log lines to the systemd journal.
package journal

import (
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/coreos/go-systemd/v22/journal"

	"github.com/dewrun/dew/logstream"
)

// Writer returns a function for logstream.Logs.Copy that writes lines to journald, with
// the fields APP, APP_GUID, PROCESS, SIDECAR, INSTANCE, SOURCE and DEW_SEQ. If journald
// refuses lines, it logs one warning until journald accepts them again; the logs are not
// affected. name returns an app's name for its guid and can be nil.
func Writer(log *slog.Logger, name func(guid string) string) func(app string, es []logstream.Envelope) {
	return newWriter(log, name, journal.Send).write
}

type writer struct {
	log  *slog.Logger
	name func(guid string) string
	send func(message string, p journal.Priority, fields map[string]string) error

	mu     sync.Mutex
	failed bool // guarded by mu
}

func newWriter(log *slog.Logger, name func(guid string) string, send func(string, journal.Priority, map[string]string) error) *writer {
	if name == nil {
		name = func(guid string) string { return guid }
	}
	return &writer{log: log, name: name, send: send}
}

func (j *writer) write(app string, es []logstream.Envelope) {
	name := j.name(app)
	for i := range es {
		fields := fieldsOf(&es[i])
		fields["APP"], fields["APP_GUID"] = name, app
		p := journal.PriInfo
		if es[i].Stream == logstream.Err {
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
func (j *writer) reportFailure(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil && !j.failed {
		j.log.Warn("cannot copy log lines to the journal; the app's log still has them", "err", err)
	}
	j.failed = err != nil
}

func fieldsOf(e *logstream.Envelope) map[string]string {
	fields := map[string]string{
		"SYSLOG_IDENTIFIER": "dew", "SOURCE": e.Source.Type, "INSTANCE": strconv.Itoa(e.Source.Index), "DEW_SEQ": strconv.FormatUint(e.Seq, 10),
	}
	process, sidecar := e.Source.Process()
	if process != "" {
		fields["PROCESS"] = strings.ToLower(process)
	}
	if sidecar != "" {
		fields["SIDECAR"] = sidecar
	}
	if e.Source.InstanceID != "" {
		fields["INSTANCE_ID"] = e.Source.InstanceID
	}
	return fields
}
