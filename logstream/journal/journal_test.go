package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/logstream"
)

// The journal gets the source of a line in fields. A failure is logged once.
func TestJournal(t *testing.T) {
	var said strings.Builder
	var sent []map[string]string
	var fail error
	j := newWriter(slog.New(slog.NewTextHandler(&said, nil)), func(string) string { return "shop" }, func(text string, p journal.Priority, fields map[string]string) error {
		fields["TEXT"], fields["PRIORITY"] = text, fmt.Sprint(int(p))
		sent = append(sent, fields)
		return fail
	})
	j.write("guid", []logstream.Envelope{
		{Seq: 7, Source: logstream.Source{Type: "APP/PROC/WEB/SIDECAR/AGENT", Index: 2, InstanceID: "i"}, Stream: logstream.Err, Text: []byte("a\xff")},
		{Seq: 8, Source: logstream.Source{Type: "API"}, Stream: logstream.Out, Text: []byte("b")},
	})
	want := []map[string]string{
		{"SYSLOG_IDENTIFIER": "dew", "APP": "shop", "APP_GUID": "guid", "PROCESS": "web", "SIDECAR": "AGENT", "INSTANCE": "2", "INSTANCE_ID": "i", "SOURCE": "APP/PROC/WEB/SIDECAR/AGENT", "DEW_SEQ": "7", "PRIORITY": "3", "TEXT": "a\uFFFD"},
		{"SYSLOG_IDENTIFIER": "dew", "APP": "shop", "APP_GUID": "guid", "INSTANCE": "0", "SOURCE": "API", "DEW_SEQ": "8", "PRIORITY": "6", "TEXT": "b"},
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	fail = errors.New("no journal")
	j.write("guid", make([]logstream.Envelope, 2))
	fail = nil
	j.write("guid", make([]logstream.Envelope, 1))
	if got := strings.Count(said.String(), "no journal"); got != 1 {
		t.Errorf("said %d times: %s", got, said.String())
	}
}
