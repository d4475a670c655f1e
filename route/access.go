package route

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/logstream"
)

const (
	lineQueue = 4096 // access lines that wait to be written
	lineBatch = 256  // lines per write
	// Values from clients are truncated in access lines, to keep them readable.
	maxLinePath   = 4 << 10
	maxLineHeader = 512
	lineTime      = "2006-01-02T15:04:05.000000000Z"
)

// access has the data of an access line.
type access struct {
	app        string
	host       string
	began      time.Time
	took       time.Duration
	method     string
	path       string
	proto      string
	status     int
	in, out    int64 // bytes of both bodies
	referer    string
	agent      string
	client     string
	instance   string // address (empty: no request was sent)
	instanceID string
	index      string
	failure    string
	id         string
	forward    forwarded
	note       string // if set, the line is only this message of the router, on stderr
}

// access collects the data of the request's access line.
func (x *exchange) access(req *http.Request) *access {
	a := &access{
		app:     x.entry.destinations[0].App,
		host:    req.Host,
		began:   x.began,
		took:    time.Since(x.began),
		method:  req.Method,
		path:    req.RequestURI,
		proto:   req.Proto,
		status:  x.answer.status,
		out:     x.answer.bytes,
		referer: req.Referer(),
		agent:   req.UserAgent(),
		client:  req.RemoteAddr,
		failure: x.failure,
		id:      x.id.String(),
		forward: x.forward,
	}
	if x.body != nil {
		a.in = x.body.count()
	}
	if e := x.target.endpoint; e != nil {
		a.instanceID, a.index, a.instance = string(e.instance), strconv.Itoa(e.slot.Index), x.target.address()
		if x.via == nil { // otherwise it is the service's
			a.app = e.process.app
		}
	}
	return a
}

// line returns the text of an access line in Cloud Foundry's format.
func (a *access) line() []byte {
	b := make([]byte, 0, 768)
	b = append(b, printable(a.host, maxLineHeader)...)
	b = append(b, " - ["...)
	b = a.began.UTC().AppendFormat(b, lineTime)
	b = append(b, "] "...)
	b = strconv.AppendQuote(b, cut(a.method, maxLineHeader)+" "+cut(a.path, maxLinePath)+" "+a.proto)
	for _, n := range [...]int64{int64(a.status), a.in, a.out} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	for _, v := range [...]string{a.referer, a.agent, a.client, a.instance} {
		b = append(b, ' ')
		b = appendValue(b, v)
	}
	for _, p := range [...][2]string{
		{"x_forwarded_for", a.forward.addresses},
		{"x_forwarded_proto", a.forward.proto},
		{"vcap_request_id", a.id},
	} {
		b = appendPair(b, p[0], p[1])
	}
	b = strconv.AppendFloat(append(b, " response_time:"...), a.took.Seconds(), 'f', 6, 64)
	for _, p := range [...][2]string{
		{"app_id", a.app},
		{"app_index", a.index},
		{"instance_id", a.instanceID},
		{"x_cf_routererror", a.failure},
		{"x_b3_traceid", a.forward.trace},
		{"x_b3_spanid", a.forward.span},
	} {
		b = appendPair(b, p[0], p[1])
	}
	return b
}

func appendPair(b []byte, key, value string) []byte {
	b = append(b, ' ')
	b = append(b, key...)
	b = append(b, ':')
	return appendValue(b, value)
}

func appendValue(b []byte, v string) []byte {
	if v == "" {
		v = "-"
	}
	return strconv.AppendQuote(b, cut(v, maxLineHeader))
}

// printable returns s without characters that would break a line.
func printable(s string, limit int) string {
	if len(s) <= limit && !strings.ContainsFunc(s, unprintable) {
		return s
	}
	q := strconv.Quote(cut(s, limit))
	return q[1 : len(q)-1]
}

// unprintable reports whether a character must be quoted.
func unprintable(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "..."
}

// accessLog writes access lines asynchronously. Its queue is bounded: lines that do not
// fit are dropped, counted, and reported in the app's log.
type accessLog struct {
	write   func(app string, es ...logstream.Envelope) error
	log     *slog.Logger
	queue   chan *access
	dropped atomic.Uint64

	mu   sync.Mutex        // guards lost
	lost map[string]uint64 // by app: dropped and not reported yet
}

func newAccessLog(write func(app string, es ...logstream.Envelope) error, log *slog.Logger) *accessLog {
	return &accessLog{write: write, log: log, queue: make(chan *access, lineQueue), lost: map[string]uint64{}}
}

// put never blocks.
func (l *accessLog) put(a *access) {
	select {
	case l.queue <- a:
	default:
		l.drop(a.app, 1)
	}
}

func (l *accessLog) drop(app string, n uint64) {
	l.dropped.Add(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[app] += n
}

// run writes lines until ctx is cancelled, and then the remaining ones.
func (l *accessLog) run(ctx context.Context) {
	for {
		select {
		case a := <-l.queue:
			l.flush(a)
		case <-ctx.Done():
			l.drain()
			return
		}
	}
}

func (l *accessLog) drain() {
	for {
		select {
		case a := <-l.queue:
			l.flush(a)
		default:
			return
		}
	}
}

// flush writes a and the lines queued after it, one batch per app.
func (l *accessLog) flush(a *access) {
	batch := map[string][]logstream.Envelope{}
	for n := 0; a != nil; n++ {
		batch[a.app] = append(batch[a.app], a.envelope())
		if n == lineBatch {
			break
		}
		select {
		case a = <-l.queue:
		default:
			a = nil
		}
	}
	for app, n := range l.takeLost() {
		missing := "1 access log line is"
		if n > 1 {
			missing = fmt.Sprintf("%d access log lines are", n)
		}
		e := envelope(logstream.Err, []byte(missing+" missing: requests arrived faster than dewd could write their lines"))
		e.Flags = logstream.Gap
		batch[app] = append(batch[app], e)
	}
	for _, app := range slices.Sorted(maps.Keys(batch)) {
		es := batch[app]
		if err := l.write(app, es...); err != nil {
			l.dropped.Add(uint64(len(es)))
			l.log.Warn("cannot write access log lines", "app", app, "lines", len(es), "err", err)
		}
	}
}

func (a *access) envelope() logstream.Envelope {
	if a.note != "" {
		return envelope(logstream.Err, []byte(a.note))
	}
	return envelope(logstream.Out, a.line())
}

func (l *accessLog) takeLost() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lost) == 0 {
		return nil
	}
	out := l.lost
	l.lost = map[string]uint64{}
	return out
}

func envelope(s logstream.Stream, text []byte) logstream.Envelope {
	return logstream.Envelope{Source: logstream.Source{Type: "RTR"}, Stream: s, Text: text}
}
