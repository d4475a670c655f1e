package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/logstream"
)

// heartbeat is how often a stream without lines says that it is alive.
const heartbeat = 15 * time.Second

// streamLog sends an app's log as server-sent events, from where the client was:
// each event's id is the sequence number of its line. It ends with the request.
func (s *Server) streamLog(w http.ResponseWriter, r *http.Request) {
	a, err := s.appOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	l, err := s.c.Logs.App(a.GUID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	from, err := streamFrom(r, l.LastSeq())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	out := &eventWriter{w: w, flush: http.NewResponseController(w).Flush, last: max(from, 1) - 1}
	if err := out.comment("ok"); err != nil {
		return // the client is gone
	}
	if err := follow(r.Context(), l.Cursor(from), out, s.beat); err != nil && r.Context().Err() == nil && !errors.Is(err, logstream.ErrClosed) && !errors.Is(err, errGone) {
		s.log.Warn("log stream ended", "request", requestID(r.Context()), "app", a.GUID, "err", err)
	}
}

// streamFrom is the sequence number that a stream begins with. A client that
// comes back says what it had last; else it may name a line, or how many of the
// newest it wants. Without a word it gets everything.
func streamFrom(r *http.Request, last uint64) (uint64, error) {
	q := r.URL.Query()
	for name := range q {
		if name != "from" && name != "newest" {
			return 0, badQuery("Unknown query parameter(s): '%s'. Valid parameters are: 'from', 'newest'", name)
		}
	}
	read := func(name, text string) (uint64, error) {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return 0, badQuery("%s must be a whole number, not %q", name, text)
		}
		return n, nil
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		n, err := read("Last-Event-ID", id)
		return min(n, last) + 1, err // of a log that is no more: what comes now is new
	}
	if q.Has("from") {
		return read("from", q.Get("from"))
	}
	if q.Has("newest") {
		n, err := read("newest", q.Get("newest"))
		return last - min(n, last) + 1, err
	}
	return 1, nil
}

// follow writes lines as they come. A line that the retention dropped before it
// was read is told of as a gap.
func follow(ctx context.Context, c *logstream.Cursor, out *eventWriter, beat time.Duration) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, beat)
		es, err := c.Next(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			err = out.comment("heartbeat")
		case errors.Is(err, logstream.ErrTrimmed):
			var gone int64
			c, gone = c.Skip()
			err = out.gap(gone)
		case err == nil:
			err = out.lines(es)
		}
		if err != nil {
			return err
		}
	}
}

// errGone says that the client does not listen any more.
var errGone = errors.New("the client is gone")

// eventWriter writes server-sent events. The writer of the log never waits for
// it: a slow client only reads later.
type eventWriter struct {
	w     http.ResponseWriter
	flush func() error
	last  uint64 // number of the last line
}

func (o *eventWriter) lines(es []logstream.Envelope) error {
	var buf []byte
	for _, e := range es {
		data, err := json.Marshal(presentLine(e))
		if err != nil {
			return fmt.Errorf("cannot encode line %d: %w", e.Seq, err)
		}
		buf = fmt.Appendf(buf, "id: %d\ndata: %s\n\n", e.Seq, data)
		o.last = e.Seq
	}
	return o.send(buf)
}

// gap has the number of the last line that is missing, so a client that comes
// back goes on behind it.
func (o *eventWriter) gap(count int64) error {
	if count <= 0 {
		return nil
	}
	o.last += uint64(count)
	data, err := json.Marshal(v3.Line{
		Seq: o.last, Time: time.Now().UTC(), Source: "CELL", Stream: logstream.Err.String(), Flags: []string{v3.FlagGap},
		Text: fmt.Appendf(nil, "%d lines missing: the retention dropped them before they were read", count),
	})
	if err != nil {
		return fmt.Errorf("cannot encode a gap: %w", err)
	}
	return o.send(fmt.Appendf(nil, "id: %d\ndata: %s\n\n", o.last, data))
}

func (o *eventWriter) comment(text string) error { return o.send([]byte(":" + text + "\n\n")) }

func (o *eventWriter) send(b []byte) error {
	if _, err := o.w.Write(b); err != nil {
		return errGone
	}
	if err := o.flush(); err != nil {
		return errGone
	}
	return nil
}

func presentLine(e logstream.Envelope) v3.Line {
	out := v3.Line{
		Seq: e.Seq, Time: e.Time.UTC(), Source: e.Source.Type, Index: e.Source.Index, Instance: e.Source.InstanceID,
		Stream: e.Stream.String(), Text: e.Text,
	}
	for _, f := range []struct {
		flag logstream.Flags
		name string
	}{
		{logstream.Late, v3.FlagLate},
		{logstream.Cut, v3.FlagCut},
		{logstream.Partial, v3.FlagPartial},
		{logstream.Gap, v3.FlagGap},
	} {
		if e.Flags&f.flag != 0 {
			out.Flags = append(out.Flags, f.name)
		}
	}
	return out
}
