package api

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
)

// logCacheVersion says which paths and which JSON clients may expect.
const logCacheVersion = "3.0.0"

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func (s *Server) logCacheInfo(*http.Request) (any, error) {
	return v3.LogCacheInfo{Version: logCacheVersion}, nil
}

func (s *Server) logCacheRead(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	want, err := readWindow(r)
	if err != nil {
		return nil, err
	}
	out := v3.LogCacheRead{Envelopes: v3.LogCacheBatch{Batch: []v3.LogCacheEnvelope{}}}
	if !want.lines {
		return out, nil
	}
	l, err := s.c.Logs.App(a.GUID)
	if err != nil {
		return nil, err
	}
	if s.recent.nothingSince(a.GUID, l.LastSeq(), want.start) {
		return out, nil
	}
	es, err := want.read(r.Context(), l)
	if err != nil {
		return nil, err
	}
	if n := len(es); n > 0 && want.descending {
		s.recent.note(a.GUID, es[0].Seq, es[0].Time.UnixNano())
	} else if n > 0 {
		s.recent.note(a.GUID, es[n-1].Seq, es[n-1].Time.UnixNano())
	}
	tags, err := s.tagsOf(a)
	if err != nil {
		return nil, err
	}
	for _, e := range es {
		out.Envelopes.Batch = append(out.Envelopes.Batch, tags.present(e))
	}
	return out, nil
}

// window is what a read asks for.
type window struct {
	start, end int64 // in nanoseconds; the start is inside, the end is not
	limit      int
	descending bool
	lines      bool // log lines are among the types asked for
}

func readWindow(r *http.Request) (window, error) {
	w := window{start: 0, end: math.MaxInt64, limit: defaultLimit, lines: true}
	for name, vs := range r.URL.Query() {
		if err := w.set(name, vs); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w *window) set(name string, vs []string) (err error) {
	value := vs[len(vs)-1]
	switch name {
	case "start_time":
		w.start, err = strconv.ParseInt(value, 10, 64) // hugely negative: from the beginning
	case "end_time":
		w.end, err = strconv.ParseInt(value, 10, 64)
	case "limit":
		w.limit, err = strconv.Atoi(value)
		if err == nil && (w.limit < 1 || w.limit > maxLimit) {
			return badQuery("limit must be 1 to %d, not %d", maxLimit, w.limit)
		}
	case "descending":
		w.descending, err = strconv.ParseBool(value)
	case "envelope_types":
		w.lines = slices.ContainsFunc(vs, func(v string) bool { return strings.EqualFold(v, "LOG") || strings.EqualFold(v, "ANY") })
	default:
		return badQuery("Unknown query parameter(s): '%s'", name)
	}
	if err != nil {
		return badQuery("%s cannot be %q", name, value)
	}
	return nil
}

// read gives the lines of the window: the oldest of them first, or the newest.
func (w window) read(ctx context.Context, l *logstream.Log) ([]logstream.Envelope, error) {
	if w.start >= w.end {
		return nil, nil
	}
	var f logstream.Filter
	if w.start > 0 {
		f.Since = time.Unix(0, w.start)
	}
	if w.end != math.MaxInt64 {
		f.Until = time.Unix(0, max(w.end, 1))
	}
	last := l.LastSeq()
	var c *logstream.Cursor
	var err error
	if w.descending {
		c, err = l.SelectNewest(ctx, w.limit, f)
	} else {
		c, err = l.Select(0, f)
	}
	if err != nil {
		return nil, err
	}
	es, err := w.collect(ctx, c.UpTo(last))
	if err != nil {
		return nil, err
	}
	if w.descending {
		slices.Reverse(es)
	}
	return es[:min(len(es), w.limit)], nil
}

// collect reads enough of what a cursor gives. What the retention drops meanwhile
// is told by a line of the log itself.
func (w window) collect(ctx context.Context, c *logstream.Cursor) ([]logstream.Envelope, error) {
	var out []logstream.Envelope
	for len(out) < w.limit {
		es, err := c.Next(ctx)
		switch {
		case errors.Is(err, logstream.ErrTrimmed):
			c, _ = c.Skip()
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
		out = append(out, slices.DeleteFunc(es, func(e logstream.Envelope) bool { return e.Time.IsZero() })...)
	}
	return out, nil
}

// logCacheMeta tells what is kept of the apps that one may see.
func (s *Server) logCacheMeta(r *http.Request) (any, error) {
	for name := range r.URL.Query() {
		return nil, badQuery("Unknown query parameter(s): '%s'", name)
	}
	see, err := s.sight(r.Context())
	if err != nil {
		return nil, err
	}
	apps, err := s.c.Registry.Apps()
	if err != nil {
		return nil, err
	}
	out := v3.LogCacheMeta{Meta: map[string]v3.LogCacheSource{}}
	for _, a := range apps {
		if !see.space(a.Space) {
			continue
		}
		l, err := s.c.Logs.App(a.GUID)
		if err != nil {
			return nil, err
		}
		kept := l.Kept()
		if kept.Lines == 0 {
			continue
		}
		out.Meta[a.GUID] = v3.LogCacheSource{Count: kept.Lines, Expired: kept.Dropped, Oldest: kept.Oldest.UnixNano(), Newest: kept.Newest.UnixNano()}
	}
	return out, nil
}

// tags are what every line of an app is marked with. The names are those of now,
// also for lines of before a rename.
type tags struct {
	source    string
	common    map[string]string
	processes map[string]app.Process // by type in capitals, as sources have it
}

func (s *Server) tagsOf(a app.App) (tags, error) {
	t := tags{source: a.GUID, processes: map[string]app.Process{}, common: map[string]string{
		"app_id": a.GUID, "app_name": a.Name, "space_id": a.Space, "origin": "rep",
	}}
	ps, err := s.c.Registry.Processes(a.GUID)
	if err != nil {
		return t, err
	}
	for _, p := range ps {
		t.processes[strings.ToUpper(p.Type)] = p
	}
	space, err := s.c.Registry.Space(a.Space)
	if err != nil {
		return t, nil // an app without a space has no such tags
	}
	t.common["space_name"], t.common["organization_id"] = space.Name, space.Org
	if org, err := s.c.Registry.Org(space.Org); err == nil {
		t.common["organization_name"] = org.Name
	}
	return t, nil
}

func (t tags) present(e logstream.Envelope) v3.LogCacheEnvelope {
	index := strconv.Itoa(e.Source.Index)
	out := map[string]string{"source_type": e.Source.Type, "instance_id": index}
	maps.Copy(out, t.common)
	if p, ok := t.processes[processType(e.Source.Type)]; ok {
		out["process_id"], out["process_type"] = p.GUID, p.Type
	}
	if e.Source.InstanceID != "" {
		out["instance_guid"] = e.Source.InstanceID
	}
	return v3.LogCacheEnvelope{
		Timestamp: e.Time.UnixNano(), SourceID: t.source, InstanceID: index, Tags: out,
		Log: &v3.LogCacheLog{Payload: e.Text, Type: e.Stream.String()},
	}
}

// processType is the type in APP/PROC/<TYPE>, also of a sidecar's source.
func processType(source string) string {
	rest, ok := strings.CutPrefix(source, "APP/PROC/")
	if !ok {
		return ""
	}
	kind, _, _ := strings.Cut(rest, "/")
	return kind
}

// recentTimes remembers the time of the newest line of logs that are polled, so
// that a poll of a quiet log reads nothing.
type recentTimes struct {
	mu   sync.Mutex
	last map[string]lineTime // by app; guarded by mu
}

type lineTime struct {
	seq  uint64
	time int64
}

func (t *recentTimes) note(app string, seq uint64, at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil || len(t.last) > maxRecent {
		t.last = map[string]lineTime{}
	}
	if t.last[app].seq < seq {
		t.last[app] = lineTime{seq: seq, time: at}
	}
}

// maxRecent bounds the memory that deleted apps would keep.
const maxRecent = 4096

// nothingSince tells whether the log, whose last line has the number seq, has
// nothing at or after start.
func (t *recentTimes) nothingSince(app string, seq uint64, start int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.last[app]
	return seq == 0 || ok && known.seq == seq && known.time < start
}
