package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/api/v3"
)

const (
	readLimit     = 1000             // lines per read
	quietLimit    = 45 * time.Second // three heartbeats
	patience      = 2 * time.Minute  // how long an unreachable daemon is retried
	maxEvent      = 1 << 20          // a line has at most 64 KiB, its JSON is longer
	verifyTimeout = 10 * time.Minute // enough for a large log on a slow disk
)

// Since reads the lines of an app from time t on, oldest first. Each further request
// starts after the last line's time, because no two lines have the same time.
func (c Logs) Since(ctx context.Context, app string, t time.Time) ([]v3.Line, error) {
	var lines []v3.Line
	for {
		some, more, err := c.FirstSince(ctx, app, t)
		lines = append(lines, some...)
		if !more || err != nil {
			return lines, err
		}
		t = lines[len(lines)-1].Time.Add(1)
	}
}

// FirstSince reads the first of these lines, and reports whether there could be more.
func (c Logs) FirstSince(ctx context.Context, app string, t time.Time) (lines []v3.Line, more bool, err error) {
	q := url.Values{"envelope_types": {"LOG"}, "limit": {strconv.Itoa(readLimit)}, "start_time": {strconv.FormatInt(t.UnixNano(), 10)}}
	var r v3.LogCacheRead
	if _, err := c.call(ctx, http.MethodGet, "/api/v1/read/"+escape(app)+"?"+q.Encode(), nil, &r); err != nil {
		return nil, false, err
	}
	for _, e := range r.Envelopes.Batch {
		lines = append(lines, lineOf(e))
	}
	return lines, len(lines) >= readLimit, nil
}

func lineOf(e v3.LogCacheEnvelope) v3.Line {
	l := v3.Line{Time: time.Unix(0, e.Timestamp), Source: e.Tags["source_type"], Instance: e.Tags["instance_guid"], Stream: "OUT"}
	l.Index, _ = strconv.Atoi(e.InstanceID) // the platform's own lines have none
	if e.Log != nil {
		l.Text, l.Stream = e.Log.Payload, e.Log.Type
	}
	return l
}

// Verify makes the daemon read an app's whole log and check it.
func (c Logs) Verify(ctx context.Context, app string) (v3.LogReport, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	var r v3.LogReport
	_, err := c.exchange(ctx, Request{Method: http.MethodGet, Path: "/stream/v1/apps/" + escape(app) + "/verify", Header: http.Header{"Accept": {"application/json"}}}, &r)
	return r, err
}

// LogQuery selects lines of an app. Empty fields do not restrict the selection.
type LogQuery struct {
	Newest         int // how many of the newest lines to start with (with Crash: per process), negative for all
	Follow         bool
	Source         string
	Process        string // process type
	Sidecar        string
	NoSidecars     bool
	NoPlatform     bool // only lines printed by the app's own processes
	Instance       *int
	Stream         string // OUT or ERR
	Contains       string
	Since, Until   time.Time
	SinceLastStart bool
	Crash          int  // 1 is the newest crash
	Service        bool // the guid is of a service instance

	// Place is the position where Stream starts, if it is known. Stream sets it to the
	// position where it stopped. It can be nil.
	Place *LogPlace

	// Notice is called when the daemon becomes unreachable and when it is reachable
	// again. It can be nil.
	Notice func(text string)
}

// LogPlace is a position in a log. Seq is the number of the line before it.
type LogPlace struct {
	Seq   uint64
	Known bool
}

// NoticeBack is the notice that the daemon is reachable again.
const NoticeBack = "connected to dewd again"

// resource is the part of the path that selects an app or a service instance.
func (q LogQuery) resource() string {
	if q.Service {
		return "services"
	}
	return "apps"
}

// values returns the query parameters. A client that reconnects sends the number of its
// last line, so the start no longer matters.
func (q LogQuery) values(back bool) url.Values {
	v := url.Values{}
	set := func(name, value string, wanted bool) {
		if wanted {
			v.Set(name, value)
		}
	}
	set("newest", strconv.Itoa(q.Newest), q.Newest >= 0 && !back)
	set("follow", "false", !q.Follow)
	set("source", q.Source, q.Source != "")
	set("process", q.Process, q.Process != "")
	set("sidecar", q.Sidecar, q.Sidecar != "")
	set("no_sidecars", "true", q.NoSidecars)
	set("no_platform", "true", q.NoPlatform)
	if q.Instance != nil {
		v.Set("instance", strconv.Itoa(*q.Instance))
	}
	set("stream", q.Stream, q.Stream != "")
	set("contains", q.Contains, q.Contains != "")
	set("since", q.Since.Format(time.RFC3339Nano), !q.Since.IsZero())
	set("until", q.Until.Format(time.RFC3339Nano), !q.Until.IsZero())
	set("since_last_start", "true", q.SinceLastStart && !back)
	set("crash", strconv.Itoa(q.Crash), q.Crash > 0)
	return v
}

// Stream calls each with an app's lines, in order and none twice. It returns when all
// selected lines are delivered, each returns an error, or ctx is done. A line is valid
// until the next one. If the connection breaks, Stream continues after the last line,
// unless the daemon is unreachable for minutes.
func (c Logs) Stream(ctx context.Context, app string, q LogQuery, each Lines) error {
	f := follower{t: c.transport, app: app, q: q, each: each}
	if q.Place != nil {
		f.last, f.back = q.Place.Seq, q.Place.Known
	}
	if f.q.Notice == nil {
		f.q.Notice = func(string) {}
	}
	if f.each.Flush == nil {
		f.each.Flush = func() error { return nil }
	}
	for {
		err := f.once(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case f.seen.IsZero() || f.ended(err) || time.Since(f.seen) > patience:
			return err
		}
		if !f.joined { // a stream that only broke off can possibly reconnect at once
			f.reportLost(err)
		}
		f.joined = false
		select {
		case <-time.After(maxPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Lines has the callbacks of a reader of lines.
type Lines struct {
	Line  func(l *v3.Line) error
	Flush func() error // called when no more lines are buffered; can be nil

	// Texts gets the texts of lines, each with a newline unless it was cut. Line then
	// only gets records of missing lines, or all lines from a dewd that sends no texts.
	// It can be nil.
	Texts func(texts []byte) error
}

// errReader marks an error of the reader, for which a retry is useless.
type errReader struct{ error }

func (e errReader) Unwrap() error { return e.error }

// follower holds the position of a stream.
type follower struct {
	t    *transport
	app  string
	q    LogQuery
	each Lines
	last uint64    // lines up to this number are delivered or not selected
	back bool      // last is known
	seen time.Time // last time the daemon sent data, or the reader was busy
	away bool      // the loss of the daemon was reported

	joined bool // the last connection was established
}

// ended reports whether a retry would give the same result.
func (f *follower) ended(err error) bool {
	if r := (errReader{}); errors.As(err, &r) {
		return true
	}
	e := (*Error)(nil)
	return errors.As(err, &e) && e.Status < http.StatusInternalServerError
}

// reportLost reports once that the daemon is unreachable.
func (f *follower) reportLost(err error) {
	if !f.away {
		f.away = true
		f.q.Notice(fmt.Sprintf("lost the connection to dewd, connecting again (%v)", err))
	}
}

// once reads one connection to its end. It returns nil when all selected lines are
// delivered.
func (f *follower) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(quietLimit, cancel)
	defer quiet.Stop()
	r := Request{
		Method: http.MethodGet, Path: "/stream/v1/" + f.q.resource() + "/" + escape(f.app) + "?" + f.q.values(f.back).Encode(),
		Header: http.Header{"Accept": {v3.LinesType + ", text/event-stream"}},
	}
	if f.each.Texts != nil {
		r.Header.Set("Accept", v3.TextsType+", "+v3.LinesType+", text/event-stream") // an older dewd sends lines
	}
	if f.back {
		r.Header.Set("Last-Event-ID", strconv.FormatUint(f.last, 10))
	}
	resp, err := f.t.send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, maxEvent)) // as much of the message as there is
		return errorOf(resp.StatusCode, b)
	}
	f.joined = true
	read := f.events
	if kind := resp.Header.Get("Content-Type"); strings.HasPrefix(kind, v3.LinesType) || strings.HasPrefix(kind, v3.TextsType) {
		read = f.records
	}
	err = read(&timedReader{f: f, r: resp.Body, quiet: quiet})
	if err == nil || f.ended(err) {
		return err
	}
	return &Unreachable{Address: f.t.address, Err: fmt.Errorf("the log stream ended: %w", err)}
}

// timedReader reads from the daemon and records when it last received data. The limit
// for silence counts only while it reads, because printing lines can take longer.
type timedReader struct {
	f     *follower
	r     io.Reader
	quiet *time.Timer
	heard bool
}

func (e *timedReader) Read(b []byte) (int, error) {
	if e.heard {
		e.f.seen = time.Now() // until now the reader was busy
	}
	e.quiet.Reset(quietLimit)
	n, err := e.r.Read(b)
	e.quiet.Stop()
	if n > 0 {
		e.heard, e.f.seen = true, time.Now()
		e.f.reportBack()
	}
	return n, err
}

// reportBack reports once that the daemon is reachable again.
func (f *follower) reportBack() {
	if f.away {
		f.away = false
		f.q.Notice(NoticeBack)
	}
}

// deliver passes on a line that was not delivered before.
func (f *follower) deliver(l *v3.Line) error {
	if l.Seq <= f.last && f.back {
		return nil
	}
	f.advance(l.Seq)
	if err := f.each.Line(l); err != nil {
		return errReader{err}
	}
	return nil
}

// deliverTexts handles a record without a line: a heartbeat, or the texts of lines.
func (f *follower) deliverTexts(r *v3.LineReader) error {
	if seq, ok := r.Place(); ok {
		f.advance(seq)
	}
	texts := r.Texts()
	if texts == nil || f.each.Texts == nil {
		return nil
	}
	if err := f.each.Texts(texts); err != nil {
		return errReader{err}
	}
	return nil
}

// advance records the position of the stream. It trusts the daemon, because a log can
// be shorter after a power cut.
func (f *follower) advance(seq uint64) {
	f.last, f.back = seq, true
	if f.q.Place != nil {
		*f.q.Place = LogPlace{Seq: seq, Known: true}
	}
}

func (f *follower) flush() error {
	if err := f.each.Flush(); err != nil {
		return errReader{err}
	}
	return nil
}

// records reads lines in their binary form.
func (f *follower) records(body io.Reader) error {
	r := v3.NewLineReader(body)
	for {
		if !r.Buffered() {
			if err := f.flush(); err != nil {
				return err
			}
		}
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			return f.flush()
		}
		if err != nil {
			return errors.Join(err, f.flush())
		}
		if l != nil {
			err = f.deliver(l)
		} else {
			err = f.deliverTexts(r)
		}
		if err != nil {
			return err
		}
	}
}

// events reads lines as server-sent events.
func (f *follower) events(body io.Reader) error {
	over := errors.New("over")
	err := events(body, func(e event) error {
		if e.kind == "end" {
			return over
		}
		if err := f.event(e); err != nil {
			return err
		}
		return f.flush()
	})
	switch {
	case errors.Is(err, over):
		return nil
	case err == nil:
		return v3.ErrBrokenOff
	}
	return err
}

// event handles one event. A heartbeat has the position of the stream.
func (f *follower) event(e event) error {
	if e.data == nil {
		if seq, err := strconv.ParseUint(e.id, 10, 63); err == nil {
			f.advance(seq)
		}
		return nil
	}
	var l v3.Line
	if err := json.Unmarshal(e.data, &l); err != nil {
		return fmt.Errorf("cannot read a log line: %w", err)
	}
	return f.deliver(&l)
}

// event is a server-sent event. An event without data has only an id.
type event struct {
	id, kind string
	data     []byte
}

// events parses server-sent events.
func events(r io.Reader, each func(event) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), maxEvent)
	var e event
	for s.Scan() {
		var err error
		switch line := s.Bytes(); {
		case len(line) == 0 && (e.data != nil || e.id != ""):
			err = each(e)
			e = event{}
		case len(line) == 0:
			e = event{}
		case line[0] == ':': // a comment
		default:
			e.parseField(line)
		}
		if err != nil {
			return err
		}
	}
	return s.Err()
}

// parseField reads one field of an event.
func (e *event) parseField(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "id":
		e.id = string(value)
	case "event":
		e.kind = string(value)
	case "data":
		if e.data == nil {
			e.data = append([]byte{}, value...) // empty data is not nil
			return
		}
		e.data = append(append(e.data, '\n'), value...)
	}
}
