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

// streamEndpoints returns the endpoints of this file.
func (h *Handlers) streamEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /stream/v1/services/{guid}", Needs: access.ReadSecrets, Resource: access.ServiceInstance, // a server can log secrets
			Raw: http.HandlerFunc(h.streamService), Shape: rest.ReturnsBytes(streamKinds...).Query(logParameterNames...),
		},
		{
			Pattern: "GET /stream/v1/apps/{guid}", Needs: access.Read, Resource: access.App,
			Raw: http.HandlerFunc(h.streamLog), Shape: rest.ReturnsBytes(streamKinds...).Query(logParameterNames...),
		},
		{Pattern: "GET /stream/v1/apps/{guid}/verify", Needs: access.Read, Resource: access.App, Handler: h.verifyLog, Shape: rest.Returns[v3.LogReport](200)},
	}
}

// Heartbeat is the interval of heartbeats on a stream without lines.
const Heartbeat = 15 * time.Second

// streamPause is the time between two writes of a stream with many lines. Fewer and
// larger writes slow down the writer of the log less. A single line is sent at once.
const streamPause = 5 * time.Millisecond

// streamLog sends an app's log from the client's last position. It sends server-sent
// events, whose IDs are the sequence numbers of their lines, or the short form if the
// client requests it. It stops when the request does, or after the last requested line.
func (h *Handlers) streamLog(w http.ResponseWriter, r *http.Request) {
	a, err := h.Present.App(r)
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	h.stream(w, r, a, func() error { return h.stays(r.Context(), a.GUID) })
}

// stream sends the log of an app or of a service instance. It calls may from time to
// time to check whether the client still has permission.
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
		return // the client disconnected
	}
	f := openStream{Out: out, Beat: h.Beat, CheckAccess: may}
	err = f.Run(r.Context(), c.Brief())
	if errors.Is(err, io.EOF) {
		_ = out.send(out.form.end(nil)) // an error means that the client disconnected
		return
	}
	if err != nil && r.Context().Err() == nil && !errors.Is(err, logstream.ErrClosed) && !errors.Is(err, errGone) {
		h.Platform.Log.Warn("log stream failed", "request", rest.RequestID(r.Context()), "app", a.GUID, "err", err)
	}
}

// streamCount counts the open streams.
type streamCount struct {
	mu        sync.Mutex // guards the fields below
	now, most int
}

// manyFollowers is the number of concurrent streams after which freeing memory is
// worthwhile.
const manyFollowers = 16

func (f *streamCount) join() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now++
	f.most = max(f.most, f.now)
}

// leave returns memory to the system when the last of many streams is closed. The Go
// runtime would take two minutes to do so in an idle daemon.
func (f *streamCount) leave() {
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

// stays returns an error if the caller can no longer read an app's log.
func (h *Handlers) stays(ctx context.Context, guid string) error {
	a, err := h.Platform.Registry.App(guid)
	if err != nil {
		return err
	}
	return h.remains(ctx, access.Read, a.Space)
}

// remains returns an error if the caller no longer has a permission in a space.
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

// openStream is an open stream.
type openStream struct {
	Out         *lineWriter
	Beat        time.Duration
	CheckAccess func() error // returns an error if the client can no longer read
}

// looks is the number of heartbeats between two permission checks.
const looks = 4

// Run writes lines as they arrive. It reports lines that the retention dropped before
// they were read as a gap.
func (f openStream) Run(ctx context.Context, c *logstream.Cursor) error {
	sent, checked := time.Time{}, time.Now()
	for {
		if err := waitForPause(ctx, sent); err != nil {
			return err
		}
		if time.Since(checked) >= looks*f.Beat {
			if err := f.CheckAccess(); err != nil {
				return err
			}
			checked = time.Now()
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
			err = f.encode(ctx, c, es)
			c.Release() // a slow client holds only the lines being sent to it
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

// encode encodes lines, and more lines if they are stored already, for one write. It does
// not search for them longer than the pause between two writes.
func (f openStream) encode(ctx context.Context, c *logstream.Cursor, es []logstream.Envelope) error {
	err := f.Out.encode(es)
	if !c.Behind() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, streamPause)
	defer cancel()
	for err == nil && c.Behind() && len(f.Out.buf) < sendSize {
		more, stop := c.Stored(ctx)
		if stop != nil || len(more) == 0 {
			return nil // Next returns the same error
		}
		err = f.Out.add(more)
	}
	return err
}

// waitForPause waits until streamPause has passed since the last write.
func waitForPause(ctx context.Context, sent time.Time) error {
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

// verifyLog reads an app's whole log and reports whether it is complete and undamaged.
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

// lostEnd detects a log that is shorter than it was, which the log itself cannot
// detect. An app's log always has a first line, and crash records name lines by number.
func (h *Handlers) lostEnd(a app.App, l *logstream.Log) ([]string, error) {
	last := l.LastSeq()
	if last == 0 {
		return []string{"the log is empty, but dewd writes a line when an app is created: the segment files of the log are missing"}, nil
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
	return []string{fmt.Sprintf("the log ends with line %d, but a crash record names line %d: the last segment files of the log are missing", last, named)}, nil
}

// errGone means that the client has disconnected.
var errGone = errors.New("the client closed the connection")

// lineForm is an encoding of lines.
type lineForm struct {
	contentType string
	line        func(b []byte, l *v3.Line) ([]byte, error)
	texts       bool                              // lines are sent as texts records, except gaps
	beat        func(b []byte, seq uint64) []byte // a heartbeat, with the number of the last line read
	end         func(b []byte) []byte             // marks the end of all requested lines
}

// eventForm is the default encoding: server-sent events.
var eventForm = lineForm{
	contentType: "text/event-stream",
	line: func(b []byte, l *v3.Line) ([]byte, error) {
		data, err := l.MarshalJSON() // called directly: json.Marshal would validate its output again
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

// shortForm is the encoding for clients that read millions of lines.
var shortForm = lineForm{
	contentType: v3.LinesType,
	line:        func(b []byte, l *v3.Line) ([]byte, error) { return v3.AppendLine(b, l), nil },
	beat:        v3.AppendBeat,
	end:         v3.AppendEnd,
}

// textForm is the short form for clients that need only the texts.
var textForm = lineForm{contentType: v3.TextsType, line: shortForm.line, texts: true, beat: v3.AppendBeat, end: v3.AppendEnd}

// appendTexts appends texts records with lines. A gap is a line record.
func appendTexts(b []byte, es []logstream.Envelope) []byte {
	for len(es) > 0 {
		if es[0].Flags&logstream.Gap != 0 {
			l := presentLine(&es[0])
			b, es = v3.AppendLine(b, &l), es[1:]
			continue
		}
		start, n := len(b), 0
		b = v3.BeginTexts(b)
		for n < len(es) && es[n].Flags&logstream.Gap == 0 && len(b)-start < v3.MaxTexts {
			b = append(b, es[n].Text...)
			if es[n].Flags&logstream.Cut == 0 {
				b = append(b, '\n')
			}
			n++
		}
		b, es = v3.EndTexts(b, start, es[n-1].Seq), es[n:]
	}
	return b
}

// lineWriter writes lines. The writer of the log never waits for it: a slow client only
// gets its lines later.
type lineWriter struct {
	w     io.Writer
	flush func() error
	form  lineForm
	buf   []byte
}

// newLineWriter starts the response in the encoding that the client requests.
func newLineWriter(w http.ResponseWriter, r *http.Request) *lineWriter {
	form := eventForm
	switch accept := r.Header.Get("Accept"); {
	case strings.Contains(accept, v3.TextsType):
		form = textForm
	case strings.Contains(accept, v3.LinesType):
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

// encode encodes lines into the buffer, which must be sent before the next call.
func (o *lineWriter) encode(es []logstream.Envelope) error {
	o.buf = o.buf[:0]
	if cap(o.buf) > keptBuffer {
		o.buf = nil
	}
	return o.add(es)
}

// add encodes more lines into the buffer.
func (o *lineWriter) add(es []logstream.Envelope) (err error) {
	b := o.buf
	if o.form.texts {
		o.buf = appendTexts(b, es)
		return nil
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

// sendSize is how many bytes a stream collects for one write, if so many lines are stored.
// With one more read, they fit into a buffer that is reused.
const sendSize = 48 << 10

// keptBuffer is the maximum size of a buffer that is reused.
const keptBuffer = 128 << 10

// gap reports missing lines. It carries the number of the last one, so a client that
// reconnects continues after it.
func (o *lineWriter) gap(count int64, last uint64) error {
	if count <= 0 {
		return nil
	}
	l := v3.Line{
		Seq: last, Time: time.Now().UTC(), Source: "CELL", Stream: logstream.Err.String(), Flags: []string{v3.FlagGap},
		Text: fmt.Appendf(nil, "%d lines missing: log retention deleted them before they were read", count),
		Lost: &v3.Loss{Lines: count, Cause: logstream.LostRetention},
	}
	b, err := o.form.line(nil, &l)
	if err != nil {
		return err
	}
	return o.send(b)
}

// beat sends the number of the last line read. A client that reconnects continues
// there, even if no line matched.
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

// lineFlags holds the names of flags, for every combination of them.
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
	// streamKinds lists the content types of a stream.
	streamKinds = []string{"text/event-stream", v3.LinesType, v3.TextsType}
	// logParameterNames lists the query parameters of a stream.
	logParameterNames = slices.Sorted(maps.Keys(logParameters))
)

// streamService sends the log of the server of a service instance.
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
