package logs

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/logstream"
)

// logcacheEndpoints returns the endpoints of this file.
func (h *Handlers) logcacheEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /api/v1/info", Needs: access.Public, Handler: h.logCacheInfo, Shape: rest.Returns[v3.LogCacheInfo](200)},
		{
			Pattern: "GET /api/v1/read/{guid}", Needs: access.Read, Resource: access.App,
			Handler: h.logCacheRead, Shape: rest.Returns[v3.LogCacheRead](200).Query("start_time", "end_time", "limit", "descending", "envelope_types", "envelope_type").IgnoresOthers(),
		},
		{Pattern: "GET /api/v1/meta", Needs: access.Authenticated, Handler: h.logCacheMeta, Shape: rest.Returns[v3.LogCacheMeta](200).IgnoresOthers()},
	}
}

// logCacheVersion tells clients which paths and which JSON to expect.
const logCacheVersion = "3.0.0"

const (
	defaultLimit = 100
	// maxLimit is the maximum number of lines in one response.
	maxLimit = 1000
)

func (h *Handlers) logCacheInfo(*http.Request) (any, error) {
	return v3.LogCacheInfo{Version: logCacheVersion}, nil
}

func (h *Handlers) logCacheRead(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	want, err := readWindow(r)
	if err != nil {
		return nil, err
	}
	none := v3.LogCacheRead{Envelopes: v3.LogCacheBatch{Batch: []v3.LogCacheEnvelope{}}}
	if !want.lines {
		return none, nil
	}
	l, err := h.Platform.Logs.App(a.GUID)
	if err != nil {
		return nil, err
	}
	if h.recent.nothingSince(a.GUID, l.LastSeq(), want.Start) {
		return none, nil
	}
	page, err := want.Open(r.Context(), l)
	if err != nil {
		return nil, err
	}
	if page.form, err = h.EnvelopeForm(a); err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusOK, ContentType: "application/json", Produce: func(w io.Writer) error {
		err := page.write(r.Context(), w)
		h.recent.note(a.GUID, page.newest)
		return err
	}}, nil
}

// window holds the query of a log-cache read.
type window struct {
	Start, End int64 // in nanoseconds; the start is inclusive, the end is exclusive
	Limit      int
	Descending bool
	lines      bool // the requested types include log lines
}

// readWindow reads the query. Like log-cache, it ignores parameters that it does not
// know.
func readWindow(r *http.Request) (window, error) {
	w := window{Start: 0, End: math.MaxInt64, Limit: defaultLimit, lines: true}
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
		w.Start, err = strconv.ParseInt(value, 10, 64) // clients send a large negative number for the first line
	case "end_time":
		w.End, err = strconv.ParseInt(value, 10, 64)
	case "limit":
		w.Limit, err = strconv.Atoi(value)
		if err == nil && (w.Limit < 1 || w.Limit > maxLimit) {
			return rest.BadQuery("limit must be 1 to %d, not %d", maxLimit, w.Limit)
		}
	case "descending":
		w.Descending, err = strconv.ParseBool(value)
	case "envelope_types", "envelope_type":
		w.lines = slices.ContainsFunc(vs, func(v string) bool { return strings.EqualFold(v, "LOG") || strings.EqualFold(v, "ANY") })
	}
	if err != nil {
		return rest.BadQuery("%s has the invalid value %q", name, value)
	}
	return nil
}

// Open finds the lines of the window, the oldest first or the newest first.
func (w window) Open(ctx context.Context, l *logstream.Log) (*logPage, error) {
	p := &logPage{left: w.Limit}
	if w.Start >= w.End {
		return p, nil
	}
	var f logstream.Filter
	if w.Start > 0 {
		f.Since = time.Unix(0, w.Start)
	}
	if w.End != math.MaxInt64 {
		f.Until = time.Unix(0, max(w.End, 1))
	}
	last := l.LastSeq()
	if !w.Descending {
		c, err := l.Select(0, f)
		if err != nil {
			return nil, err
		}
		p.c = c.UpTo(last).Brief()
		return p, p.Next(ctx) // the error of an unreadable log becomes the response
	}
	c, err := l.SelectNewest(ctx, w.Limit, f)
	if err != nil {
		return nil, err
	}
	if p.rest, err = collect(ctx, c.UpTo(last)); err != nil {
		return nil, err
	}
	slices.Reverse(p.rest)
	p.rest = p.rest[:min(len(p.rest), w.Limit)]
	return p, p.Next(ctx)
}

// collect reads all lines of a cursor.
func collect(ctx context.Context, c *logstream.Cursor) ([]logstream.Envelope, error) {
	var out []logstream.Envelope
	for {
		es, err := nextLines(ctx, &c)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, es...)
	}
}

// nextLines returns the next lines of a cursor. It skips lines that the retention drops
// in the meantime: the log itself has a line about those.
func nextLines(ctx context.Context, c **logstream.Cursor) ([]logstream.Envelope, error) {
	es, err := (*c).Next(ctx)
	if errors.Is(err, logstream.ErrTrimmed) {
		*c, _ = (*c).Skip()
		return nil, nil
	}
	return slices.DeleteFunc(es, func(e logstream.Envelope) bool { return e.Time.IsZero() }), err
}

// logCacheMeta shows the stored lines of each app that the caller can see.
func (h *Handlers) logCacheMeta(r *http.Request) (any, error) {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	apps, err := h.Platform.Registry.Apps()
	if err != nil {
		return nil, err
	}
	out := v3.LogCacheMeta{Meta: map[string]v3.LogCacheSource{}}
	for _, a := range apps {
		if !perms.SeesSpace(a.Space) {
			continue
		}
		l, err := h.Platform.Logs.App(a.GUID)
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

// recentTimes remembers the time of the newest line of polled logs, so that a poll of a
// quiet log reads nothing.
type recentTimes struct {
	mu   sync.Mutex
	last map[string]lineTime // by app; guarded by mu
}

type lineTime struct {
	seq  uint64
	time int64
}

func (t *recentTimes) note(app string, newest lineTime) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil || len(t.last) > maxRecent {
		t.last = map[string]lineTime{}
	}
	if t.last[app].seq < newest.seq {
		t.last[app] = newest
	}
}

// maxRecent limits the memory for entries of deleted apps.
const maxRecent = 4096

// nothingSince reports whether the log has no lines at or after start. seq is the
// number of its last line.
func (t *recentTimes) nothingSince(app string, seq uint64, start int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.last[app]
	return seq == 0 || ok && known.seq == seq && known.time < start
}
