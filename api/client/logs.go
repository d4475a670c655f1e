package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/dewrun/dew/api/v3"
)

const (
	readLimit  = 1000             // of lines in one read
	quietLimit = 45 * time.Second // three heartbeats
	patience   = 30 * time.Second // with a daemon that is away
	maxEvent   = 1 << 20          // a line has at most 64 KiB; its JSON is longer
)

// beginning is what clients of log-cache send to mean "from the first line".
const beginning = "-6795364578871345152"

// Recent reads the newest lines of an app, at most n, oldest first. They carry no
// sequence number.
func (c *Client) Recent(ctx context.Context, app string, n int) ([]v3.Line, error) {
	q := url.Values{"descending": {"true"}, "envelope_types": {"LOG"}, "start_time": {beginning}}
	var lines []v3.Line
	for len(lines) < n {
		limit := min(n-len(lines), readLimit)
		q.Set("limit", strconv.Itoa(limit))
		var r v3.LogCacheRead
		if _, err := c.call(ctx, http.MethodGet, "/api/v1/read/"+escape(app)+"?"+q.Encode(), nil, &r); err != nil {
			return nil, err
		}
		for _, e := range r.Envelopes.Batch {
			lines = append(lines, lineOf(e))
		}
		if len(r.Envelopes.Batch) < limit {
			break
		}
		q.Set("end_time", strconv.FormatInt(r.Envelopes.Batch[limit-1].Timestamp, 10))
	}
	slices.Reverse(lines)
	return lines, nil
}

// Since reads the lines of an app from a moment on, oldest first. The next call
// asks from behind the last line's time: no two lines have the same.
func (c *Client) Since(ctx context.Context, app string, t time.Time) ([]v3.Line, error) {
	var lines []v3.Line
	for {
		q := url.Values{"envelope_types": {"LOG"}, "limit": {strconv.Itoa(readLimit)}, "start_time": {strconv.FormatInt(t.UnixNano(), 10)}}
		var r v3.LogCacheRead
		if _, err := c.call(ctx, http.MethodGet, "/api/v1/read/"+escape(app)+"?"+q.Encode(), nil, &r); err != nil {
			return nil, err
		}
		for _, e := range r.Envelopes.Batch {
			lines = append(lines, lineOf(e))
		}
		if len(r.Envelopes.Batch) < readLimit {
			return lines, nil
		}
		t = lines[len(lines)-1].Time.Add(1)
	}
}

func lineOf(e v3.LogCacheEnvelope) v3.Line {
	l := v3.Line{Time: time.Unix(0, e.Timestamp), Source: e.Tags["source_type"], Instance: e.Tags["instance_guid"], Stream: "OUT"}
	l.Index, _ = strconv.Atoi(e.InstanceID) // the platform's own lines have none
	if e.Log != nil {
		l.Text, l.Stream = e.Log.Payload, e.Log.Type
	}
	return l
}

// Stream follows an app's lines: the newest ones first, at most n, then each as
// it is printed. When the connection ends it goes on behind the last line, for as
// long as the daemon is not away for more than half a minute. It ends with the
// error that ended it, or with ctx.
func (c *Client) Stream(ctx context.Context, app string, n int) iter.Seq2[v3.Line, error] {
	return func(yield func(v3.Line, error) bool) {
		f := follower{c: c, app: app, newest: n, seen: time.Now()}
		for {
			err := f.once(ctx, func(l v3.Line) bool { return yield(l, nil) })
			switch {
			case errors.Is(err, errEnough):
				return
			case ctx.Err() != nil:
				yield(v3.Line{}, ctx.Err())
				return
			case final(err) || time.Since(f.seen) > patience:
				yield(v3.Line{}, err)
				return
			}
			select {
			case <-time.After(maxPause):
			case <-ctx.Done():
			}
		}
	}
}

// errEnough is a reader that wants no more.
var errEnough = errors.New("the reader has enough")

// final tells whether asking again would give the same answer.
func final(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.Status < http.StatusInternalServerError
}

// follower remembers where a stream stands.
type follower struct {
	c      *Client
	app    string
	newest int
	last   uint64    // sequence number of the last line that was handed out
	seen   time.Time // when the daemon last said anything
}

// once reads one connection to its end.
func (f *follower) once(ctx context.Context, hand func(v3.Line) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(quietLimit, cancel)
	defer quiet.Stop()
	r := Request{Method: http.MethodGet, Path: "/stream/v1/apps/" + escape(f.app), Header: http.Header{"Accept": {"text/event-stream"}}}
	if f.last > 0 {
		r.Header.Set("Last-Event-ID", strconv.FormatUint(f.last, 10))
	} else {
		r.Path += "?newest=" + strconv.Itoa(f.newest)
	}
	resp, err := f.c.Send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, maxEvent)) // what there is of the sentence
		return errorOf(resp.StatusCode, b)
	}
	err = events(resp.Body, func(data []byte) error {
		f.seen = time.Now()
		quiet.Reset(quietLimit)
		return f.line(data, hand)
	})
	if err == nil || errors.Is(err, context.Canceled) {
		err = &Unreachable{Door: f.c.door, Err: errors.New("the log stream ended")}
	}
	return err
}

// line hands out what one event says; a heartbeat says nothing.
func (f *follower) line(data []byte, hand func(v3.Line) bool) error {
	if data == nil {
		return nil
	}
	var l v3.Line
	if err := json.Unmarshal(data, &l); err != nil {
		return fmt.Errorf("cannot read a log line: %w", err)
	}
	if l.Seq <= f.last && f.last > 0 {
		return nil
	}
	f.last = l.Seq
	if !hand(l) {
		return errEnough
	}
	return nil
}

// events reads server-sent events: each gives its data, a comment gives nil.
func events(r io.Reader, each func(data []byte) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), maxEvent)
	var data []byte
	for s.Scan() {
		line := s.Bytes()
		switch value, isData := bytes.CutPrefix(line, []byte("data:")); {
		case isData && data != nil:
			data = append(append(data, '\n'), bytes.TrimPrefix(value, []byte(" "))...)
		case isData:
			data = append([]byte{}, bytes.TrimPrefix(value, []byte(" "))...)
		case len(line) == 0 && data != nil:
			if err := each(data); err != nil {
				return err
			}
			data = nil
		case len(line) > 0 && line[0] == ':':
			if err := each(nil); err != nil {
				return err
			}
		}
	}
	return s.Err()
}
