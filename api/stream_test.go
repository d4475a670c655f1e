package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/logs"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

// Whoever loses the right to read a log loses the stream that is open, too.
func TestStreamRightsEnd(t *testing.T) {
	t.Parallel()
	for name, withdraw := range map[string]func(w *world, role auth.Role) error{
		"role":    func(w *world, role auth.Role) error { return w.c.Roles.Delete(role.GUID) },
		"account": func(w *world, role auth.Role) error { return w.c.Auth.Accounts().DeleteUser(role.User) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.s.logs.Beat = time.Millisecond
			a := w.createApp("shop")
			role := w.grant(w.user("ada"), auth.SpaceAuditor, w.space.GUID)
			ctx := t.Context()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/stream/v1/apps/"+a.GUID+"?newest=0", nil)
			r.Host = "127.0.0.1:8484"
			r.Header.Set("Authorization", "bearer "+w.login("ada"))
			reading, writing := io.Pipe()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				w.door.ServeHTTP(&pipeWriter{header: http.Header{}, w: writing}, r)
			}()
			beats := make(chan struct{}, 1)
			go func() {
				b := make([]byte, 1<<10)
				for {
					if _, err := reading.Read(b); err != nil {
						return
					}
					select {
					case beats <- struct{}{}:
					default:
					}
				}
			}()
			<-beats // it is let in
			if err := withdraw(w, role); err != nil {
				t.Fatal(err)
			}
			<-ended
			reading.Close()
		})
	}
}

// pipeWriter answers into a pipe.
type pipeWriter struct {
	header http.Header
	w      io.Writer
}

func (p *pipeWriter) Header() http.Header         { return p.header }
func (p *pipeWriter) WriteHeader(int)             {}
func (p *pipeWriter) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p *pipeWriter) Flush()                      {}

// A stream that can get no more lines ends, although it was asked to follow.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.s.logs.Beat = time.Millisecond
	a := w.createApp("shop")
	w.print(a.GUID, "one")
	for name, query := range map[string]string{
		"until a time that comes":   "until=" + time.Now().Add(50*time.Millisecond).UTC().Format(time.RFC3339Nano),
		"until a time that is past": "until=2001-01-01T00:00:00Z",
	} {
		got := w.ask(http.MethodGet, "/stream/v1/apps/"+a.GUID+"?"+query, "")
		if !strings.HasSuffix(got.Body.String(), "event: end\ndata: {}\n\n") {
			t.Errorf("%s: %d %q, want its end", name, got.Code, got.Body)
		}
	}
}

// The number of a gap is that of the last line that is missing, also where the
// lines in front of it were for nobody.
func TestStreamGapNumber(t *testing.T) {
	t.Parallel()
	stored := must(logstream.Open(t.TempDir(), logstream.Options{SegmentBytes: 4096, Retention: 4096}))(t)
	defer stored.Close()
	l := must(stored.App("a"))(t)
	line := logstream.Envelope{Source: logstream.Source{Type: "APP/PROC/WEB"}, Stream: logstream.Out, Text: []byte(strings.Repeat("x", 1000))}
	for range 3 {
		if err := l.Append(line); err != nil {
			t.Fatal(err)
		}
	}
	c := must(l.Select(1, logstream.Filter{Contains: "never"}))(t)
	if _, err := c.UpTo(l.LastSeq()).Next(t.Context()); !errors.Is(err, io.EOF) || c.At() != 4 {
		t.Fatalf("at line %d: %v, want 4 and nothing", c.At(), err)
	}
	for range 100 {
		if err := l.Append(line); err != nil {
			t.Fatal(err)
		}
	}
	testkit.EventuallyTrue(t, "the retention works", func() bool { return l.Kept().Dropped > 50 })
	got := httptest.NewRecorder()
	f := logs.Following{Out: logs.NewLineWriter(got, httptest.NewRequest(http.MethodGet, "/", nil)), Beat: time.Hour, May: func() error { return nil }}
	if err := f.Run(t.Context(), c.UpTo(l.LastSeq())); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	var gap v3.Line
	_, data, _ := strings.Cut(got.Body.String(), "data: ")
	data, _, _ = strings.Cut(data, "\n")
	if err := json.Unmarshal([]byte(data), &gap); err != nil || gap.Lost == nil || gap.Seq != 3+uint64(gap.Lost.Lines) {
		t.Errorf("gap = %+v, %v, want the number of its last line", gap, err)
	}
}

// Of two processes with the same index, the one that was started often does not
// hide when the other was.
func TestStreamSinceLastStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.createApp("shop")
	worker := must(w.c.Registry.PutProcess(app.Process{App: a.GUID, Type: "worker", Instances: 1, MemoryMB: 64}))(t)
	cell := func(id, text string) logstream.Envelope {
		return logstream.Envelope{Source: logstream.Source{Type: "CELL", InstanceID: id}, Stream: logstream.Out, Text: []byte(text)}
	}
	es := []logstream.Envelope{
		cell("old", logs.Creating), cell("web", logs.Creating), cell("web", logs.Created), cell("first", logs.Creating), cell("second", logs.Creating), cell("third", logs.Created),
	}
	if err := w.log(a.GUID).Append(es...); err != nil {
		t.Fatal(err)
	}
	running := func(process, id string) []runtime.Status {
		return []runtime.Status{{Slot: runtime.SlotID{Process: process}, Instance: runtime.InstanceID(id), State: runtime.Running}}
	}
	for _, tt := range []struct {
		web, worker, query string
		first              uint64
	}{
		{"web", "second", "", es[1].Seq},
		{"web", "second", "&process=worker", es[4].Seq},
		{"web", "third", "&process=worker", es[5].Seq}, // its start was tried before
		{"", "", "&process=web", es[4].Seq},            // the newest of all
		{"lost", "second", "", 1},
	} {
		w.fake.slots = map[string][]runtime.Status{a.GUID: running(a.GUID, tt.web), worker.GUID: running(worker.GUID, tt.worker)}
		q := must(logs.ReadLogQuery(must(url.ParseQuery("since_last_start=true" + tt.query))(t)))(t)
		if err := w.s.logs.NarrowToStart(t.Context(), must(w.c.Registry.App(a.GUID))(t), w.log(a.GUID), &q); err != nil || max(q.Filter.First, 1) != tt.first {
			t.Errorf("%+v begins at %d, %v", tt, q.Filter.First, err)
		}
	}
}
