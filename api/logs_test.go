package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/testkit"
)

func TestLogCacheIsStrict(t *testing.T) {
	w := newTestServer(t)
	a := w.createApp("shop")
	golden(t, "logcache-info", w.request("GET", "/api/v1/info", "").Body.Bytes())
	if err := w.log(a.GUID).Append(logstream.Envelope{
		Source: logstream.Source{Type: "APP/PROC/WEB/SIDECAR/CONFIG SERVER", Index: 1, InstanceID: "0123abcd-0123-0123-0123-0123"},
		Stream: logstream.Err, Text: []byte("h\xffi"), Flags: logstream.Late,
	}); err != nil {
		t.Fatal(err)
	}
	w.want(200, "PATCH", "/v3/apps/"+a.GUID, `{"name":"store"}`, nil) // lines have the current name
	body := w.request("GET", "/api/v1/read/"+a.GUID+"?envelope_types=LOG&start_time=-6795364578871345152", "").Body.Bytes()
	second := must(w.log(a.GUID).NewestOf(t.Context(), 2, logstream.Filter{}))(t)[0].Time.UnixNano()
	golden(t, "logcache-read", w.request("GET", fmt.Sprintf("/api/v1/read/%s?envelope_types=LOG&limit=1&start_time=%d", a.GUID, second), "").Body.Bytes())
	// Clients refuse unknown fields at any level.
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	var strict struct {
		Envelopes struct {
			Batch []struct {
				Timestamp  string            `json:"timestamp"`
				SourceID   string            `json:"source_id"`
				InstanceID string            `json:"instance_id"`
				Tags       map[string]string `json:"tags"`
				Log        struct {
					Payload string `json:"payload"`
					Type    string `json:"type"`
				} `json:"log"`
			} `json:"batch"`
		} `json:"envelopes"`
	}
	if err := d.Decode(&strict); err != nil {
		t.Fatal(err)
	}
	if b := strict.Envelopes.Batch; len(b) != 3 || b[1].Log.Payload != base64.StdEncoding.EncodeToString([]byte("h\xffi")) {
		t.Errorf("batch = %+v, want three lines, the second in base64", b)
	}
	for _, query := range []string{"envelope_types=GAUGE", "start_time=9223372036854775807"} {
		if got := w.request("GET", "/api/v1/read/"+a.GUID+"?"+query, "").Body.String(); strings.TrimSpace(got) != `{"envelopes":{"batch":[]}}` {
			t.Errorf("?%s = %s, want no lines", query, got)
		}
	}
}

// The client finds the newest line, starts one second before it, and continues after
// the last line that it got.
func TestLogCacheFollow(t *testing.T) {
	w := newTestServer(t)
	a := w.createApp("shop")
	path := "/api/v1/read/" + a.GUID
	var got v3.LogCacheRead
	w.want(200, "GET", path+"?descending=true&limit=1&start_time=-6795364578871345152", "", &got)
	if len(got.Envelopes.Batch) != 1 {
		t.Fatalf("newest = %+v, want one line", got)
	}
	next := got.Envelopes.Batch[0].Timestamp + 1
	for i := range 5 {
		w.want(200, "GET", fmt.Sprintf("%s?envelope_types=LOG&start_time=%d", path, next), "", &got)
		if len(got.Envelopes.Batch) != 0 {
			t.Fatalf("before line %d = %+v, want nothing", i, got)
		}
		w.print(a.GUID, fmt.Sprint("line ", i))
		w.want(200, "GET", fmt.Sprintf("%s?envelope_types=LOG&start_time=%d", path, next), "", &got)
		if b := got.Envelopes.Batch; len(b) != 1 || string(b[0].Log.Payload) != fmt.Sprint("line ", i) {
			t.Fatalf("line %d = %+v", i, b)
		}
		next = got.Envelopes.Batch[0].Timestamp + 1
	}
}

// stream is an open log stream.
type stream struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

func (w *testServer) stream(t *testing.T, srv *httptest.Server, path string, header ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	t.Cleanup(cancel)
	r := must(http.NewRequestWithContext(ctx, "GET", srv.URL+path, nil))(t)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp := must(srv.Client().Do(r))(t)
	t.Cleanup(func() { resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("content type = %q, want text/event-stream: %s", got, read(t, resp.Body))
	}
	return &stream{t: t, lines: bufio.NewScanner(resp.Body), cancel: cancel}
}

// next returns the next line of the stream that is not empty.
func (s *stream) next() string {
	s.t.Helper()
	for s.lines.Scan() {
		if text := s.lines.Text(); text != "" {
			return text
		}
	}
	s.t.Fatalf("the stream ended: %v", s.lines.Err())
	return ""
}

// line returns the next event and its ID.
func (s *stream) line() (string, v3.Line) {
	s.t.Helper()
	text := s.next()
	for strings.HasPrefix(text, ":") { // heartbeats, with the number of the last line read
		s.next()
		text = s.next()
	}
	id, ok := strings.CutPrefix(text, "id: ")
	data, ok2 := strings.CutPrefix(s.next(), "data: ")
	if !ok || !ok2 {
		s.t.Fatalf("not an event: %q %q", text, data)
	}
	var l v3.Line
	if err := json.Unmarshal([]byte(data), &l); err != nil {
		s.t.Fatal(err)
	}
	return id, l
}

func TestStream(t *testing.T) {
	w := newTestServer(t)
	srv := httptest.NewServer(w.local)
	defer srv.Close()
	a := w.createApp("shop") // it writes the first log line
	w.print(a.GUID, "two", "three", "h\xffi")
	path := "/stream/v1/apps/" + a.GUID
	for _, tt := range []struct {
		name, query string
		header      []string
		first       uint64
	}{
		{"all", "", nil, 1},
		{"from", "?from=3", nil, 3},
		{"from 0", "?from=0", nil, 1},
		{"newest", "?newest=1", nil, 4},
		{"more than there are", "?newest=100", nil, 1},
		{"only new ones", "?newest=0", nil, 5},
		{"come back", "?newest=100", []string{"Last-Event-ID", "2"}, 3},
		{"come back from another log", "", []string{"Last-Event-ID", "2000"}, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			last := w.log(a.GUID).LastSeq()
			s := w.stream(t, srv, path+tt.query, tt.header...)
			defer s.cancel()
			first := tt.first
			if first == 5 {
				first = last + 1
			} else if tt.name == "newest" {
				first = last
			}
			if first > last {
				w.print(a.GUID, "fresh")
			}
			id, l := s.line()
			if l.Seq != first || id != strconv.FormatUint(first, 10) {
				t.Errorf("first line = %s %+v, want number %d", id, l, first)
			}
		})
	}
	s := w.stream(t, srv, path+"?from=4")
	_, l := s.line()
	want := v3.Line{
		Seq: 4, Time: l.Time, Source: "APP/PROC/WEB", Instance: "0123abcd-0123-0123-0123-0123", Stream: "OUT", Text: []byte("h\xffi"),
	}
	if diff := cmp.Diff(l, want); diff != "" {
		t.Errorf("line differs (-got +want):\n%s", diff)
	}
	s.cancel()
}

// A stream without lines sends heartbeats; a new line arrives at once.
func TestStreamHeartbeat(t *testing.T) {
	w := newTestServer(t)
	w.s.logs.Beat = 5 * time.Millisecond
	srv := httptest.NewServer(w.local)
	defer srv.Close()
	a := w.createApp("shop")
	s := w.stream(t, srv, "/stream/v1/apps/"+a.GUID+"?newest=0")
	for _, want := range []string{":heartbeat", "id: 1", ":heartbeat", "id: 1"} {
		if got := s.next(); got != want {
			t.Errorf("stream says %q, want %q", got, want)
		}
	}
	w.print(a.GUID, "now")
	if _, l := s.line(); string(l.Text) != "now" {
		t.Errorf("line = %+v, want now", l)
	}
	s.cancel()
}

// A stream that does not follow sends the lines that match its query, and then marks
// the end.
func TestStreamFilters(t *testing.T) {
	w := newTestServer(t)
	srv := httptest.NewServer(w.local)
	defer srv.Close()
	a := w.createApp("shop") // it writes the first log line
	es := []logstream.Envelope{
		{Source: logstream.Source{Type: "CELL"}, Stream: logstream.Out, Text: []byte("Creating container")},
		{Source: logstream.Source{Type: "APP/PROC/WEB", InstanceID: "i"}, Stream: logstream.Out, Text: []byte("old web")},
		{Source: logstream.Source{Type: "CELL"}, Stream: logstream.Out, Text: []byte("Creating container")},
		{Source: logstream.Source{Type: "APP/PROC/WEB", InstanceID: "j"}, Stream: logstream.Out, Text: []byte("web")},
		{Source: logstream.Source{Type: "APP/PROC/WEB/SIDECAR/AGENT", InstanceID: "j"}, Stream: logstream.Err, Text: []byte("agent")},
		{Source: logstream.Source{Type: "APP/PROC/WEB", Index: 1, InstanceID: "k"}, Stream: logstream.Err, Text: []byte("other web")},
	}
	if err := w.log(a.GUID).Append(es...); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"process=web":                         "old web,web,agent,other web",
		"process=web&no_sidecars=true":        "old web,web,other web",
		"sidecar=agent":                       "agent",
		"instance=1":                          "other web",
		"no_platform=true":                    "old web,web,agent,other web",
		"stream=err":                          "agent,other web",
		"contains=web&newest=2":               "web,other web",
		"source=CELL&newest=1":                "Creating container",
		"since_last_start=true":               "Creating container,web,agent,other web",
		"since_last_start=true&process=web":   "web,agent,other web",
		"from=6&process=web":                  "agent,other web",
		"newest=0":                            "",
		"since=2199-01-01T00:00:00Z":          "",
		"until=1999-01-01T00:00:00Z":          "",
		"since=1999-01-01T00:00:00Z&newest=1": "other web",
	} {
		resp := must(srv.Client().Get(srv.URL + "/stream/v1/apps/" + a.GUID + "?follow=false&" + query))(t)
		var got []string
		body := string(read(t, resp.Body))
		resp.Body.Close()
		for line := range strings.Lines(body) {
			var l v3.Line
			if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &l) == nil && l.Seq > 0 {
				got = append(got, string(l.Text))
			}
		}
		if strings.Join(got, ",") != want || !strings.HasSuffix(body, "event: end\ndata: {}\n\n") {
			t.Errorf("?%s = %q, want %q and the end:\n%s", query, got, want, body)
		}
	}
	var report v3.LogReport
	w.want(200, "GET", "/stream/v1/apps/"+a.GUID+"/verify", "", &report)
	if !report.OK || report.Lines != 7 || report.Last != 7 || len(report.Problems) != 0 {
		t.Errorf("report = %+v", report)
	}
	var meta v3.LogCacheMeta
	w.want(200, "GET", "/api/v1/meta", "", &meta)
	if m := meta.Meta[a.GUID]; len(meta.Meta) != 1 || m.Count != 7 || m.Expired != 0 || m.Oldest == 0 || m.Newest <= m.Oldest {
		t.Errorf("meta = %+v", meta)
	}
}

// A crash shows the last lines of each process of the crashed instance, in the order of
// time. It shows no lines of the platform or of other instances.
func TestStreamCrash(t *testing.T) {
	w := newTestServer(t)
	a := w.createApp("shop")
	r := crashAt(w, a, 0, time.Now())
	line := func(source, instance, text string) logstream.Envelope {
		return logstream.Envelope{Source: logstream.Source{Type: source, InstanceID: instance}, Stream: logstream.Out, Text: []byte(text)}
	}
	const web, sidecar = "APP/PROC/WEB", "APP/PROC/WEB/SIDECAR/CONFIG SERVER"
	id := string(r.Instance)
	es := []logstream.Envelope{line(web, "before", "an earlier life"), line("CELL", id, "Creating container"), line(sidecar, id, "s1")}
	for i := range 30 {
		es = append(es, line(web, id, "w"+strconv.Itoa(i)))
	}
	es = append(es, line("CELL", id, "Stopping instance"), line(sidecar, id, "s2"), line("API", "", "App instance exited"), line(web, "later", "a later life"))
	if err := w.log(a.GUID).Append(es...); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"":                  "s1 w10 w11 w12 w13 w14 w15 w16 w17 w18 w19 w20 w21 w22 w23 w24 w25 w26 w27 w28 w29 s2",
		"&newest=1":         "w29 s2",
		"&newest=0":         "",
		"&no_sidecars=true": "w10 w11 w12 w13 w14 w15 w16 w17 w18 w19 w20 w21 w22 w23 w24 w25 w26 w27 w28 w29",
		"&contains=w1":      "w1 w10 w11 w12 w13 w14 w15 w16 w17 w18 w19",
	} {
		body := w.request("GET", "/stream/v1/apps/"+a.GUID+"?crash=1&follow=false"+query, "").Body.String()
		var got []string
		for text := range strings.Lines(body) {
			var l v3.Line
			if data, ok := strings.CutPrefix(text, "data: "); ok && json.Unmarshal([]byte(data), &l) == nil && l.Seq > 0 {
				got = append(got, string(l.Text))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q = %q, want %q", query, got, want)
		}
	}
}

func TestStreamRefuses(t *testing.T) {
	w := newTestServer(t)
	a := w.createApp("shop")
	for query, want := range map[string]string{
		"colour=red":                    "Unknown query parameter(s): 'colour'. Valid parameters are: 'contains', 'crash'",
		"newest=-1":                     "newest must be a whole number",
		"newest=1&newest=2":             "newest is given 2 times",
		"process=":                      "process is empty",
		"follow=yes":                    "follow must be true or false",
		"stream=in":                     "stream must be OUT or ERR",
		"since=yesterday":               "since must be a time",
		"instance=x":                    "instance must be a whole number",
		"crash=0":                       "crash must be a whole number of at least 1",
		"crash=1":                       "crash 1 does not exist: no crash is recorded",
		"crash=1&since_last_start=true": "cannot be used together",
		"sidecar=a&no_sidecars=true":    "cannot be used together",
		"from=1&newest=1":               "cannot be used together",
		"since=2000-01-01T00:00:00Z&until=2000-01-01T00:00:00Z": "since must be before until",
	} {
		r := w.request("GET", "/stream/v1/apps/"+a.GUID+"?"+query, "")
		if r.Code != http.StatusBadRequest || !strings.Contains(r.Body.String(), want) {
			t.Errorf("?%s = %d %s, want 400 %s", query, r.Code, r.Body, want)
		}
	}
}

// A log that is shorter than it was fails the check, even if the rest is intact. A log
// whose oldest lines the retention dropped passes.
func TestVerifyFindsLosses(t *testing.T) {
	for name, lose := range map[string]struct {
		cause string
		want  string
	}{
		"retention": {logstream.LostRetention, ""},
		"damage":    {logstream.LostDamage, "line 2 records a loss: 5 lines are missing: damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestServer(t)
			a := w.createApp("shop")
			if err := w.log(a.GUID).Gap(logstream.Source{Type: "CELL"}, lose.cause, 5); err != nil {
				t.Fatal(err)
			}
			var report v3.LogReport
			w.want(200, "GET", "/stream/v1/apps/"+a.GUID+"/verify", "", &report)
			if report.OK != (lose.want == "") || strings.Join(report.Problems, "; ") != lose.want {
				t.Errorf("report = %+v, want %q", report, lose.want)
			}
		})
	}
	t.Run("no segments", func(t *testing.T) {
		w := newTestServer(t)
		a, err := w.c.Registry.PutApp(app.App{GUID: "00000000-0000-4000-8000-000000000001", Name: "bare", Space: w.space.GUID})
		if err != nil {
			t.Fatal(err)
		}
		var report v3.LogReport
		w.want(200, "GET", "/stream/v1/apps/"+a.GUID+"/verify", "", &report)
		if report.OK || !strings.Contains(strings.Join(report.Problems, "; "), "the log is empty") {
			t.Errorf("report = %+v, want that it is empty", report)
		}
	})
}
