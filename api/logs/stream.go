package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
)

// streamEndpoints are the endpoints of this file.
func (h *Handlers) streamEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /stream/v1/services/{guid}", Needs: access.ReadSecrets, Resource: access.ServiceInstance, // a server may print anything
			Raw: http.HandlerFunc(h.streamService), Shape: rest.ReturnsBytes(streamKinds...).Query(logParameterNames...),
		},
		{
			Pattern: "GET /stream/v1/apps/{guid}", Needs: access.Read, Resource: access.App,
			Raw: http.HandlerFunc(h.streamLog), Shape: rest.ReturnsBytes(streamKinds...).Query(logParameterNames...),
		},
		{Pattern: "GET /stream/v1/apps/{guid}/verify", Needs: access.Read, Resource: access.App, Handler: h.verifyLog, Shape: rest.Returns[v3.LogReport](200)},
	}
}

// Heartbeat is how often a stream without lines says that it is alive.
const Heartbeat = 15 * time.Second

// streamPause is how long a stream that has much to say waits between two
// writes: fewer and larger ones cost the writer of the log less. Who waits for a
// single line gets it at once.
const streamPause = 5 * time.Millisecond

// streamLog sends an app's log, from where the client was: as server-sent events,
// whose ids are the sequence numbers of their lines, or in the short form that the
// client asks for. It ends with the request, or behind the last line asked for.
func (h *Handlers) streamLog(w http.ResponseWriter, r *http.Request) {
	a, err := h.Present.App(r)
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	h.stream(w, r, a, func() error { return h.stays(r.Context(), a.GUID) })
}

// stream sends the log of an app, or of what has a log like one. It asks may from
// time to time whether it is to go on.
func (h *Handlers) stream(w http.ResponseWriter, r *http.Request, a app.App, may func() error) {
	l, err := h.Platform.Logs.App(a.GUID)
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	c, err := h.cursorOf(r, a, l)
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	h.followers.join()
	defer h.followers.leave()
	out := newLineWriter(w, r)
	if err := out.beat(c); err != nil {
		return // the client is gone
	}
	f := following{Out: out, Beat: h.Beat, May: may}
	err = f.Run(r.Context(), c.Brief())
	if errors.Is(err, io.EOF) {
		_ = out.send(out.form.end(nil)) // a client that left before is gone as well
		return
	}
	if err != nil && r.Context().Err() == nil && !errors.Is(err, logstream.ErrClosed) && !errors.Is(err, errGone) {
		h.Platform.Log.Warn("log stream ended", "request", rest.RequestID(r.Context()), "app", a.GUID, "err", err)
	}
}

// followers counts the streams that are open.
type followers struct {
	mu        sync.Mutex // guards what follows
	now, most int
}

// manyFollowers is how many at once leave garbage that is worth a collection.
const manyFollowers = 16

func (f *followers) join() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now++
	f.most = max(f.most, f.now)
}

// leave gives memory back to the system when the last of many leaves: a daemon that
// has nothing more to do would collect its garbage two minutes later.
func (f *followers) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	if f.now > 0 {
		return
	}
	if f.most >= manyFollowers {
		go debug.FreeOSMemory()
	}
	f.most = 0
}

// stays tells why somebody who was let in to an app's log may not stay.
func (h *Handlers) stays(ctx context.Context, guid string) error {
	a, err := h.Platform.Registry.App(guid)
	if err != nil {
		return err
	}
	return h.remains(ctx, access.Read, a.Space)
}

// remains tells why somebody who had a need granted in a space has it no more.
func (h *Handlers) remains(ctx context.Context, n access.Need, space string) error {
	who, err := h.Platform.Auth.Current(access.Principal(ctx))
	if err != nil {
		return err
	}
	perms, err := h.Access.PermissionsOf(who)
	if err == nil && (!access.HasScope(who, http.MethodGet) || n == access.Read && !perms.SeesSpace(space) || n != access.Read && !perms.Can(n, space)) {
		err = access.ErrNotAuthorized
	}
	return err
}

// following is a stream on its way.
type following struct {
	Out  *lineWriter
	Beat time.Duration
	May  func() error // tells why the client may not read on
}

// looks is every how many beats it is asked whether the client still may.
const looks = 4

// Run writes lines as they come. A line that the retention dropped before it was
// read is told of as a gap.
func (f following) Run(ctx context.Context, c *logstream.Cursor) error {
	sent, asked := time.Time{}, time.Now()
	for {
		if err := pace(ctx, sent); err != nil {
			return err
		}
		if time.Since(asked) >= looks*f.Beat {
			if err := f.May(); err != nil {
				return err
			}
			asked = time.Now()
		}
		bounded, cancel := context.WithTimeout(ctx, f.Beat)
		es, err := c.Next(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && c.Past(time.Now()):
			return io.EOF
		case errors.Is(err, context.DeadlineExceeded):
			err = f.Out.beat(c)
		case errors.Is(err, logstream.ErrTrimmed):
			var gone int64
			c, gone = c.Skip()
			err = f.Out.gap(gone, c.At()-1)
		case err == nil:
			err = f.Out.encode(es)
			c.Release() // a slow client holds no more than what is sent to it
			if err == nil {
				err = f.Out.send(f.Out.buf)
			}
			sent = time.Now()
			if c.Behind() {
				sent = time.Time{}
			}
		}
		if err != nil {
			return err
		}
	}
}

// pace waits until the last write is long enough ago.
func pace(ctx context.Context, sent time.Time) error {
	rest := streamPause - time.Since(sent)
	if rest <= 0 {
		return nil
	}
	t := time.NewTimer(rest)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// verifyLog reads an app's whole log and tells whether it is as it was written.
func (h *Handlers) verifyLog(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	l, err := h.Platform.Logs.App(a.GUID)
	if err != nil {
		return nil, err
	}
	report, err := l.Verify(r.Context())
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	problems := report.Missing
	if err != nil {
		problems = append(strings.Split(err.Error(), "\n"), problems...)
	}
	lost, err := h.lostEnd(a, l)
	if err != nil {
		return nil, err
	}
	problems = append(problems, lost...)
	return v3.LogReport{
		OK: len(problems) == 0, Segments: report.Segments, Frames: report.Frames, Lines: report.Lines, Bytes: report.Bytes,
		Streams: report.Streams, Gaps: report.Gaps, Lost: report.Lost, First: report.First, Last: report.Last, Problems: append([]string{}, problems...),
	}, nil
}

// lostEnd finds what a log cannot tell of itself: that it is shorter than it was. An
// app's log has a line from the beginning, and crash records name lines by number.
func (h *Handlers) lostEnd(a app.App, l *logstream.Log) ([]string, error) {
	last := l.LastSeq()
	if last == 0 {
		return []string{"the log is empty: dewd writes a line when an app is created, so its segment files are gone"}, nil
	}
	records, err := h.Platform.ExitsOf(a.GUID)
	if err != nil {
		return nil, err
	}
	named := uint64(0)
	for _, r := range records {
		for _, lines := range r.Lines {
			named = max(named, lines.To)
		}
	}
	if named <= last {
		return nil, nil
	}
	return []string{fmt.Sprintf("the log ends with line %d, but a crash record names line %d: its segment files are gone", last, named)}, nil
}

// errGone says that the client does not listen any more.
var errGone = errors.New("the client is gone")

// lineForm is how lines look on the wire.
type lineForm struct {
	contentType string
	line        func(b []byte, l *v3.Line) ([]byte, error)
	beat        func(b []byte, seq uint64) []byte // a sign of life, and up to where the log was read
	end         func(b []byte) []byte             // of all that was asked for
}

// eventForm is for everybody.
var eventForm = lineForm{
	contentType: "text/event-stream",
	line: func(b []byte, l *v3.Line) ([]byte, error) {
		data, err := l.MarshalJSON() // what it gives needs no second look
		if err != nil {
			return b, fmt.Errorf("cannot encode line %d: %w", l.Seq, err)
		}
		b = append(b, "id: "...)
		b = strconv.AppendUint(b, l.Seq, 10)
		b = append(append(b, "\ndata: "...), data...)
		return append(b, "\n\n"...), nil
	},
	beat: func(b []byte, seq uint64) []byte { return fmt.Appendf(b, ":heartbeat\nid: %d\n\n", seq) },
	end:  func(b []byte) []byte { return append(b, "event: end\ndata: {}\n\n"...) },
}

// shortForm is for those who read a million lines.
var shortForm = lineForm{
	contentType: v3.LinesType,
	line:        func(b []byte, l *v3.Line) ([]byte, error) { return v3.AppendLine(b, l), nil },
	beat:        v3.AppendBeat,
	end:         v3.AppendEnd,
}

// lineWriter writes lines. The writer of the log never waits for it: a slow client
// only reads later.
type lineWriter struct {
	w     io.Writer
	flush func() error
	form  lineForm
	buf   []byte
}

// newLineWriter answers in the form that the client asks for.
func newLineWriter(w http.ResponseWriter, r *http.Request) *lineWriter {
	form := eventForm
	if strings.Contains(r.Header.Get("Accept"), v3.LinesType) {
		form = shortForm
	}
	h := w.Header()
	h.Set("Content-Type", form.contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	return &lineWriter{w: w, flush: http.NewResponseController(w).Flush, form: form}
}

// encode makes the bytes of lines, to be sent before the next call.
func (o *lineWriter) encode(es []logstream.Envelope) (err error) {
	b := o.buf[:0]
	if cap(b) > keptBuffer {
		b = nil
	}
	for i := range es {
		l := presentLine(&es[i])
		if b, err = o.form.line(b, &l); err != nil {
			return err
		}
	}
	o.buf = b
	return nil
}

// keptBuffer bounds the buffer that is used again.
const keptBuffer = 128 << 10

// gap has the number of the last line that is missing, so a client that comes
// back goes on behind it.
func (o *lineWriter) gap(count int64, last uint64) error {
	if count <= 0 {
		return nil
	}
	l := v3.Line{
		Seq: last, Time: time.Now().UTC(), Source: "CELL", Stream: logstream.Err.String(), Flags: []string{v3.FlagGap},
		Text: fmt.Appendf(nil, "%d lines missing: the retention dropped them before they were read", count),
		Lost: &v3.Loss{Lines: count, Cause: logstream.LostRetention},
	}
	b, err := o.form.line(nil, &l)
	if err != nil {
		return err
	}
	return o.send(b)
}

// beat tells up to where the log was read: a client that comes back goes on there,
// also when no line was for it.
func (o *lineWriter) beat(c *logstream.Cursor) error {
	return o.send(o.form.beat(nil, c.At()-1))
}

func (o *lineWriter) send(b []byte) error {
	if _, err := o.w.Write(b); err != nil {
		return errGone
	}
	if err := o.flush(); err != nil {
		return errGone
	}
	return nil
}

// lineFlags are the names of flags, for every combination of them.
var lineFlags = func() (lists [16][]string) {
	for bits := range lists {
		for _, f := range []struct {
			flag logstream.Flags
			name string
		}{
			{logstream.Late, v3.FlagLate},
			{logstream.Cut, v3.FlagCut},
			{logstream.Partial, v3.FlagPartial},
			{logstream.Gap, v3.FlagGap},
		} {
			if logstream.Flags(bits)&f.flag != 0 {
				lists[bits] = append(lists[bits], f.name)
			}
		}
	}
	return lists
}()

func presentLine(e *logstream.Envelope) v3.Line {
	l := v3.Line{
		Seq: e.Seq, Time: e.Time, Source: e.Source.Type, Index: e.Source.Index, Instance: e.Source.InstanceID,
		Stream: e.Stream.String(), Text: e.Text, Flags: lineFlags[e.Flags&0x0f],
	}
	if e.Lost != nil {
		l.Lost = &v3.Loss{Lines: e.Lost.Lines, Bytes: e.Lost.Bytes, Cause: e.Lost.Cause}
	}
	return l
}

var (
	// streamKinds are the forms of a log that is followed.
	streamKinds = []string{"text/event-stream", v3.LinesType}
	// logParameterNames are what can be said of the lines to follow.
	logParameterNames = slices.Sorted(maps.Keys(logParameters))
)

// streamService sends the log of the server behind a service instance.
func (h *Handlers) streamService(w http.ResponseWriter, r *http.Request) {
	i, err := h.Present.ServiceInstance(r)
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	h.stream(w, r, app.App{GUID: i.GUID, Name: i.Name, Space: i.Space}, func() error {
		i, err := h.Platform.Services.Instance(i.GUID)
		if err != nil {
			return err
		}
		return h.remains(r.Context(), access.ReadSecrets, i.Space)
	})
}
