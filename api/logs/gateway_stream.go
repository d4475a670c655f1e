package logs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/logstream"
)

const (
	// GaugeInterval is the time between two container metrics of an instance.
	GaugeInterval = 15 * time.Second
	// gatewayBatch is the maximum number of envelopes in one event.
	gatewayBatch = 100
	// discoverPause collects the changes of many apps before a stream looks for new apps.
	discoverPause = 100 * time.Millisecond
	// formAge is how long the names in envelopes are used. A rename shows after it.
	formAge = 10 * time.Second
)

// gatewayStream is an open stream of the gateway.
type gatewayStream struct {
	h      *Handlers
	q      gatewayQuery
	who    auth.Principal
	member *shardMember
	events chan []byte // from the readers of logs
	failed chan error  // the first error of a reader

	following map[string]bool // apps whose logs are read
	changed   <-chan struct{} // closed when apps change after the last discover
}

// appChanges tells streams that apps were created or changed.
type appChanges struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at a change; guarded by mu
}

// next returns a channel that is closed at the next change.
func (a *appChanges) next() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.changed
}

// notify wakes the streams.
func (a *appChanges) notify() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// AppsChanged makes open streams look for new apps. Call it after a process was created.
func (h *Handlers) AppsChanged() { h.appChanges.notify() }

// run sends events until the client disconnects or loses its permission.
func (s *gatewayStream) run(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithCancel(r.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	s.member = s.h.shards.join(s.who, s.q)
	defer s.h.shards.leave(s.member)
	// Follow first: a line that an app prints after the response has started is sent.
	if err := s.discover(ctx, &readers, true); err != nil {
		s.h.Fail(w, r, err)
		return nil
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	send := func(event []byte) error {
		if _, err := w.Write(event); err != nil {
			return err
		}
		return flush()
	}
	if err := flush(); err != nil {
		return err
	}
	return s.loop(ctx, &readers, send)
}

// loop sends events, heartbeats and metrics.
func (s *gatewayStream) loop(ctx context.Context, readers *sync.WaitGroup, send func([]byte) error) error {
	beat := time.NewTimer(s.h.Beat)
	defer beat.Stop()
	check := time.NewTicker(looks * s.h.Beat)
	defer check.Stop()
	discover := time.NewTimer(0)
	discover.Stop()
	defer discover.Stop()
	gauges := time.NewTimer(0)
	defer gauges.Stop()
	for {
		var event []byte
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event = <-s.events:
		case err = <-s.failed:
		case <-gauges.C:
			gauges.Reset(s.h.GaugeInterval)
			event, err = s.gauges(ctx)
		case t := <-beat.C:
			event = fmt.Appendf(nil, "event: heartbeat\ndata: %d\n\n", t.Unix())
		case <-s.changed:
			s.changed = nil
			discover.Reset(discoverPause)
		case <-discover.C:
			err = s.discover(ctx, readers, false)
		case <-check.C:
			err = s.check()
		}
		if err != nil {
			return err
		}
		if len(event) == 0 {
			continue
		}
		if err := send(event); err != nil {
			return nil //nolint:nilerr // the client disconnected
		}
		beat.Reset(s.h.Beat)
	}
}

// check returns an error if the client can no longer read.
func (s *gatewayStream) check() error {
	who, err := s.h.Platform.Auth.Current(s.who)
	if err != nil {
		return err
	}
	if !access.HasScope(who, http.MethodGet) && !access.SeesAllLogs(who) {
		return access.ErrNotAuthorized
	}
	return s.h.mayRead(who, s.q.sources)
}

// apps returns the apps that the query selects.
func (s *gatewayStream) apps() ([]app.App, error) {
	if len(s.q.sources) == 0 {
		return s.h.Platform.Registry.Apps()
	}
	var out []app.App
	for _, guid := range s.q.sources {
		a, err := s.h.Platform.Registry.App(guid)
		switch {
		case err == nil:
			out = append(out, a)
		case !errors.Is(err, app.ErrNotFound):
			return nil, err
		}
	}
	return out, nil
}

// discover starts to read the logs of new apps. At the start of the stream, it skips the
// lines that exist.
func (s *gatewayStream) discover(ctx context.Context, readers *sync.WaitGroup, start bool) error {
	if !s.q.log && !s.q.tmr {
		return nil
	}
	s.changed = s.h.appChanges.next()
	apps, err := s.apps()
	if err != nil {
		return err
	}
	for _, a := range apps {
		if s.following[a.GUID] {
			continue
		}
		l, err := s.h.Platform.Logs.App(a.GUID)
		if err != nil {
			return err
		}
		from := uint64(0)
		if start {
			from = l.LastSeq() + 1
		}
		s.following[a.GUID] = true
		readers.Go(func() { s.follow(ctx, a.GUID, l.Cursor(from).Brief()) })
	}
	return nil
}

// follow sends the lines of one app until its log is deleted or ctx is done.
func (s *gatewayStream) follow(ctx context.Context, guid string, c *logstream.Cursor) {
	err := s.sendLines(ctx, guid, c)
	if ctx.Err() != nil || errors.Is(err, logstream.ErrClosed) || errors.Is(err, app.ErrNotFound) {
		return
	}
	select {
	case s.failed <- fmt.Errorf("cannot read the log of app %s: %w", guid, err):
	default: // the stream already ends
	}
}

func (s *gatewayStream) sendLines(ctx context.Context, guid string, c *logstream.Cursor) error {
	var form envelopeForm
	var made time.Time
	for {
		es, err := nextLines(ctx, &c)
		if err == nil && time.Since(made) > formAge {
			form, err = s.form(guid)
			made = time.Now()
		}
		if err != nil {
			return err
		}
		events, err := s.encode(form, es)
		c.Release()
		for _, event := range events {
			select {
			case s.events <- event:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err != nil {
			return err
		}
	}
}

// form returns the encoder for the envelopes of an app.
func (s *gatewayStream) form(guid string) (envelopeForm, error) {
	a, err := s.h.Platform.Registry.App(guid)
	if err != nil {
		return envelopeForm{}, err
	}
	form, err := s.h.EnvelopeForm(a)
	form.gateway = true
	return form, err
}

// encode returns lines as events.
func (s *gatewayStream) encode(form envelopeForm, es []logstream.Envelope) (events [][]byte, err error) {
	for group := range slices.Chunk(es, gatewayBatch/2) { // a request is a line and a timer
		b, n := []byte(gatewayHead), 0
		for i := range group {
			e := &group[i]
			if !s.member.takes(form.app.GUID, e.Seq) {
				continue
			}
			if s.q.log {
				b = separate(b, &n)
				if b, err = form.append(b, e); err != nil {
					return events, err
				}
			}
			if t, ok := timerOf(form, e); ok && s.q.tmr {
				b = separate(b, &n)
				if b, err = appendJSON(b, t); err != nil {
					return events, err
				}
			}
		}
		if n > 0 {
			events = append(events, append(b, gatewayTail...))
		}
	}
	return events, nil
}

const (
	gatewayHead = `data: {"batch":[`
	gatewayTail = "]}\n\n"
)

// separate appends a comma, except before the first of n envelopes.
func separate(b []byte, n *int) []byte {
	if *n++; *n > 1 {
		b = append(b, ',')
	}
	return b
}

func appendJSON(b []byte, v v3.GatewayEnvelope) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(b, text...), err
}
