package api

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

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

// before and behind tell where a line lies that is not in the window.
// The record of a gap may have no time.
func (w window) before(e logstream.Envelope) bool {
	return e.Time.IsZero() || e.Time.UnixNano() < w.start
}

func (w window) behind(e logstream.Envelope) bool { return e.Time.UnixNano() >= w.end }

// read gives the lines of the window: the oldest of them first, or the newest.
func (w window) read(ctx context.Context, l *logstream.Log) ([]logstream.Envelope, error) {
	if w.descending {
		return w.readDown(ctx, l)
	}
	last := l.LastSeq()
	from, err := w.find(ctx, l, last)
	if err != nil || from > last {
		return nil, err
	}
	var out []logstream.Envelope
	for at := from; at <= last && len(out) < w.limit; {
		es, err := batchAt(ctx, l, at, last)
		if err != nil {
			return nil, err
		}
		for _, e := range es {
			if w.behind(e) || len(out) == w.limit {
				return out, nil
			}
			if !w.before(e) {
				out = append(out, e)
			}
		}
		at = es[len(es)-1].Seq + 1
	}
	return out, nil
}

// readDown gives the newest lines before the end, newest first.
func (w window) readDown(ctx context.Context, l *logstream.Log) ([]logstream.Envelope, error) {
	last := l.LastSeq()
	if w.end != math.MaxInt64 {
		upTo := window{start: w.end, end: math.MaxInt64}
		found, err := upTo.find(ctx, l, last)
		if err != nil {
			return nil, err
		}
		last = found - 1
	}
	if last == 0 {
		return nil, nil
	}
	from := last - min(uint64(w.limit), last) + 1 //nolint:gosec // limit is at least 1
	var out []logstream.Envelope
	for at := from; at <= last; {
		es, err := batchAt(ctx, l, at, last)
		if err != nil {
			return nil, err
		}
		for _, e := range es {
			if !w.before(e) && !w.behind(e) && e.Seq <= last {
				out = append(out, e)
			}
		}
		at = es[len(es)-1].Seq + 1
	}
	slices.Reverse(out)
	return out[:min(len(out), w.limit)], nil
}

// find is the number of the first line at or after the start, last+1 when there
// is none. Times grow with the numbers, so it halves what is left; most readers
// ask for the newest lines, so it looks there first.
func (w window) find(ctx context.Context, l *logstream.Log, last uint64) (uint64, error) {
	if last == 0 || w.start <= 0 {
		return 1, nil
	}
	low, high := uint64(1), last+1 // the answer is among low..high
	for probe := last - min(maxLimit, last-1); low < high; probe = low + (high-low)/2 {
		es, err := batchAt(ctx, l, probe, last)
		if err != nil {
			return 0, err
		}
		i := slices.IndexFunc(es, func(e logstream.Envelope) bool { return !w.before(e) })
		switch {
		case i < 0:
			low = es[len(es)-1].Seq + 1
		case i > 0:
			return es[i].Seq, nil
		default:
			// All lines up to the first one that is kept are gone: it is the first.
			if es[0].Seq > probe {
				return es[0].Seq, nil
			}
			high = es[0].Seq
		}
	}
	return low, nil
}

// batchAt gives lines from number seq on, at least one: seq is at most last. When
// the retention dropped some it begins with the oldest that is kept.
func batchAt(ctx context.Context, l *logstream.Log, seq, last uint64) ([]logstream.Envelope, error) {
	c := l.Cursor(seq)
	for {
		es, err := c.Next(ctx)
		if errors.Is(err, logstream.ErrTrimmed) {
			c, _ = c.Skip()
			continue
		}
		if err != nil {
			return nil, err
		}
		if n := int(es[len(es)-1].Seq - min(es[len(es)-1].Seq, last)); n > 0 && n < len(es) {
			es = es[:len(es)-n] // what came since is for the next read
		}
		return es, nil
	}
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
