package logs

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// logQuery selects the lines of a stream.
type logQuery struct {
	Filter logstream.Filter
	follow bool
	from   uint64 // 0: the oldest line
	newest int    // of those that match the filter, or -1 for all

	sinceLastStart bool
	crash          int // 1 is the newest; 0: not set
}

// logParameters has a function for each query parameter.
var logParameters = map[string]func(q *logQuery, text string) error{
	"follow":           func(q *logQuery, text string) error { return setFlag(&q.follow, text) },
	"from":             func(q *logQuery, text string) (err error) { q.from, err = readNumber(text); return err },
	"newest":           func(q *logQuery, text string) error { return setCount(&q.newest, text, 0) },
	"source":           func(q *logQuery, text string) error { q.Filter.Source = text; return nil },
	"process":          func(q *logQuery, text string) error { q.Filter.Process = text; return nil },
	"sidecar":          func(q *logQuery, text string) error { q.Filter.Sidecar = text; return nil },
	"no_sidecars":      func(q *logQuery, text string) error { return setFlag(&q.Filter.NoSidecars, text) },
	"no_platform":      func(q *logQuery, text string) error { return setFlag(&q.Filter.NoPlatform, text) },
	"instance":         setInstance,
	"stream":           setStream,
	"contains":         func(q *logQuery, text string) error { q.Filter.Contains = text; return nil },
	"since":            func(q *logQuery, text string) error { return setTime(&q.Filter.Since, text) },
	"until":            func(q *logQuery, text string) error { return setTime(&q.Filter.Until, text) },
	"since_last_start": func(q *logQuery, text string) error { return setFlag(&q.sinceLastStart, text) },
	"crash":            func(q *logQuery, text string) error { return setCount(&q.crash, text, 1) },
}

// readLogQuery is strict: if it ignored an unknown parameter, the stream would show
// lines that the client did not request.
func readLogQuery(values url.Values) (logQuery, error) {
	q := logQuery{follow: true, newest: -1}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		set := logParameters[name]
		if set == nil {
			return q, rest.BadQuery("Unknown query parameter(s): '%s'. Valid parameters are: '%s'", name, strings.Join(slices.Sorted(maps.Keys(logParameters)), "', '"))
		}
		if len(values[name]) != 1 {
			return q, rest.BadQuery("%s is given %d times, but only one value is allowed", name, len(values[name]))
		}
		if values[name][0] == "" {
			return q, rest.BadQuery("%s is empty", name)
		}
		if err := set(&q, values[name][0]); err != nil {
			return q, rest.BadQuery("%s %v", name, err)
		}
	}
	return q, q.check()
}

// check refuses parameters that contradict each other.
func (q logQuery) check() error {
	f := q.Filter
	switch {
	case f.Sidecar != "" && f.NoSidecars:
		return rest.BadQuery("sidecar and no_sidecars cannot be used together")
	case q.from > 0 && q.newest >= 0:
		return rest.BadQuery("from and newest cannot be used together")
	case q.crash > 0 && q.sinceLastStart:
		return rest.BadQuery("crash and since_last_start cannot be used together")
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return rest.BadQuery("since must be before until")
	}
	return nil
}

func readNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, errors.New("must be a whole number, not " + strconv.Quote(text))
	}
	return n, nil
}

func setCount(n *int, text string, least int) error {
	v, err := strconv.ParseInt(text, 10, 32)
	if err != nil || int(v) < least {
		return errors.New("must be a whole number of at least " + strconv.Itoa(least) + ", not " + strconv.Quote(text))
	}
	*n = int(v)
	return nil
}

func setFlag(b *bool, text string) error {
	switch text {
	case "true":
		*b = true
	case "false":
		*b = false
	default:
		return errors.New("must be true or false, not " + strconv.Quote(text))
	}
	return nil
}

func setInstance(q *logQuery, text string) error {
	n := 0
	if err := setCount(&n, text, 0); err != nil {
		return err
	}
	q.Filter.Instance = &n
	return nil
}

func setStream(q *logQuery, text string) error {
	switch strings.ToUpper(text) {
	case "OUT":
		q.Filter.Stream = logstream.Out
	case "ERR":
		q.Filter.Stream = logstream.Err
	default:
		return errors.New("must be OUT or ERR, not " + strconv.Quote(text))
	}
	return nil
}

func setTime(t *time.Time, text string) error {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Year() < 1970 || at.Year() > maxYear {
		return errors.New("must be a time such as 2006-01-02T15:04:05Z, not " + strconv.Quote(text))
	}
	*t = at
	return nil
}

// maxYear is the last year whose times fit into the nanoseconds of a log.
const maxYear = 2261

// cursorOf returns a cursor for the lines that a request selects. A client that
// reconnects names the last line it got, and gets the matching lines after it.
func (h *Handlers) cursorOf(r *http.Request, a app.App, l *logstream.Log) (*logstream.Cursor, error) {
	q, err := readLogQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	last := l.LastSeq()
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		n, err := readNumber(id)
		if err != nil {
			return nil, rest.BadQuery("Last-Event-ID %v", err)
		}
		// If the number is from a deleted log, all lines from now on are new.
		q.from, q.newest = min(n, last)+1, -1
	}
	if err := h.narrow(r.Context(), a, l, &q); err != nil {
		return nil, err
	}
	var c *logstream.Cursor
	if q.newest >= 0 {
		c, err = l.SelectNewest(r.Context(), q.newest, q.Filter)
	} else {
		c, err = l.Select(q.from, q.Filter)
	}
	if err != nil {
		return nil, err
	}
	if !q.follow || c.Past(time.Now()) {
		c = c.UpTo(last)
	}
	return c, nil
}

// narrow translates a start or a crash into sequence numbers.
func (h *Handlers) narrow(ctx context.Context, a app.App, l *logstream.Log, q *logQuery) error {
	switch {
	case q.crash > 0:
		return h.narrowToCrash(ctx, a, l, q)
	case q.sinceLastStart:
		return h.narrowToStart(ctx, a, l, q)
	}
	return nil
}

// crashLines is the number of last lines of each process that are shown for a crash,
// unless the request sets one.
const crashLines = 20

// narrowToCrash limits the query to the last lines of each process of a crashed
// instance.
func (h *Handlers) narrowToCrash(ctx context.Context, a app.App, l *logstream.Log, q *logQuery) error {
	records, err := h.Platform.ExitsOf(a.GUID)
	if err != nil {
		return err
	}
	records = slices.DeleteFunc(records, func(r runtime.ExitRecord) bool {
		return q.Filter.Process != "" && !strings.EqualFold(r.Type, q.Filter.Process) || q.Filter.Instance != nil && r.Slot.Index != *q.Filter.Instance
	})
	if q.crash > len(records) {
		return rest.BadQuery("crash %d does not exist: %s", q.crash, crashCount(len(records)))
	}
	record := records[q.crash-1]
	count := q.newest
	if count < 0 {
		count = crashLines
	}
	q.Filter.InstanceID, q.Filter.Last, q.newest = string(record.Instance), max(l.LastSeq(), 1), -1
	tails := map[string]uint64{}
	for _, e := range append([]runtime.Exit{record.First}, record.Followers...) {
		if e.Source == "" { // the init process of the container prints nothing
			continue
		}
		f := q.Filter
		f.Source, f.NoGaps = e.Source, true
		if tails[e.Source], err = newestLine(ctx, l, count, f); err != nil {
			return err
		}
		if tails[e.Source] == 0 {
			delete(tails, e.Source)
		}
	}
	q.Filter.Tails = &tails
	q.Filter.First = slices.Min(append(slices.Collect(maps.Values(tails)), q.Filter.Last))
	return nil
}

// crashCount returns the number of recorded crashes as text.
func crashCount(n int) string {
	switch n {
	case 0:
		return "no crash is recorded"
	case 1:
		return "1 crash is recorded"
	}
	return strconv.Itoa(n) + " crashes are recorded"
}

// The first log lines of an instance. Only the second one exists if its start was tried
// before.
const (
	creating = "Creating container"
	created  = "Successfully created container"
)

// narrowToStart limits the query to lines since the earliest start of the desired
// instances.
func (h *Handlers) narrowToStart(ctx context.Context, a app.App, l *logstream.Log, q *logQuery) error {
	ps, err := h.Platform.Registry.Processes(a.GUID)
	if err != nil {
		return err
	}
	var first []uint64
	gone := map[int]int{} // instances that are not running, by index
	for _, p := range ps {
		if q.Filter.Process != "" && !strings.EqualFold(p.Type, q.Filter.Process) {
			continue
		}
		there := h.newestOf(p.GUID)
		for i := range p.Instances {
			if q.Filter.Instance != nil && i != *q.Filter.Instance {
				continue
			}
			if there[i] == "" {
				gone[i]++
				continue
			}
			seq, err := startOf(ctx, l, there[i])
			if err != nil {
				return err
			}
			first = append(first, seq)
		}
	}
	for i, n := range gone {
		seq, err := newestLine(ctx, l, n, logstream.Filter{NoGaps: true, Source: "CELL", Instance: &i, Contains: creating})
		if err != nil {
			return err
		}
		if seq > 0 { // 0: it never started
			first = append(first, seq)
		}
	}
	if len(first) > 0 {
		q.Filter.First = slices.Min(first)
	}
	return nil
}

// newestOf returns the instances of a process by index. If there are several, it
// returns the newest.
func (h *Handlers) newestOf(process string) map[int]runtime.InstanceID {
	out := map[int]runtime.InstanceID{}
	for _, st := range h.Platform.Processes.Instances(process) {
		if st.Instance != "" {
			out[st.Slot.Index] = st.Instance // the newest generation comes last
		}
	}
	return out
}

// startOf returns the number of the first line about an instance, or 0 if the line is
// no longer stored.
func startOf(ctx context.Context, l *logstream.Log, id runtime.InstanceID) (uint64, error) {
	for _, text := range []string{creating, created} {
		seq, err := newestLine(ctx, l, 1, logstream.Filter{NoGaps: true, Source: "CELL", InstanceID: string(id), Contains: text})
		if seq > 0 || err != nil {
			return seq, err
		}
	}
	return 0, nil
}

// newestLine returns the number of the n-th newest line that matches f, or of the
// oldest. It returns 0 if there is none.
func newestLine(ctx context.Context, l *logstream.Log, n int, f logstream.Filter) (uint64, error) {
	c, err := l.SelectNewest(ctx, n, f)
	if err != nil {
		return 0, err
	}
	es, err := c.UpTo(l.LastSeq()).Next(ctx)
	if errors.Is(err, io.EOF) || errors.Is(err, logstream.ErrTrimmed) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return es[0].Seq, nil
}
