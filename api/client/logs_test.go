package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// logOf answers reads from a log of n lines, one per nanosecond from 1 on.
func logOf(t *testing.T, n int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		number := func(name string, otherwise int64) int64 {
			v, err := strconv.ParseInt(q.Get(name), 10, 64)
			if err != nil {
				return otherwise
			}
			return v
		}
		from, to, limit := max(1, number("start_time", 1)), min(n+1, number("end_time", n+1)), number("limit", 100)
		var batch []v3.LogCacheEnvelope
		for at := from; at < to; at++ {
			batch = append(batch, v3.LogCacheEnvelope{
				Timestamp: at, InstanceID: "2", Tags: map[string]string{"source_type": "APP/PROC/WEB"}, Log: &v3.LogCacheLog{Payload: []byte(strconv.FormatInt(at, 10)), Type: "ERR"},
			})
		}
		if q.Get("descending") == "true" {
			slices.Reverse(batch)
		}
		if err := json.NewEncoder(w).Encode(v3.LogCacheRead{Envelopes: v3.LogCacheBatch{Batch: batch[:min(int64(len(batch)), limit)]}}); err != nil {
			t.Error(err)
		}
	}
}

func TestSince(t *testing.T) {
	c, _ := newTestClient(t, logOf(t, 1500))
	lines, err := c.Logs().Since(t.Context(), "a", time.Unix(0, 11))
	if err != nil || len(lines) != 1490 || string(lines[0].Text) != "11" || string(lines[1489].Text) != "1500" {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

// logsOf collects the texts of up to n lines. It stops reading after the last one.
func logsOf(ctx context.Context, c *Client, app string, q LogQuery, n int) ([]string, error) {
	enough := errors.New("enough")
	var got []string
	err := c.Logs().Stream(ctx, app, q, Lines{Line: func(l *v3.Line) error {
		if got = append(got, string(l.Text)); len(got) == n {
			return enough
		}
		return nil
	}})
	if errors.Is(err, enough) {
		err = nil
	}
	return got, err
}

// forms write lines as the daemon does.
var forms = map[string]struct {
	kind string
	line func(l v3.Line) []byte
	beat func(seq uint64) []byte
	end  []byte
}{
	"events": {"text/event-stream", func(l v3.Line) []byte {
		b, err := json.Marshal(l)
		if err != nil {
			panic(err)
		}
		return fmt.Appendf(nil, "id: %d\ndata: %s\n\n", l.Seq, b)
	}, func(seq uint64) []byte { return fmt.Appendf(nil, ":heartbeat\nid: %d\n\n", seq) }, []byte("event: end\ndata: {}\n\n")},
	"short": {v3.LinesType, func(l v3.Line) []byte { return v3.AppendLine(nil, &l) }, func(seq uint64) []byte { return v3.AppendBeat(nil, seq) }, v3.AppendEnd(nil)},
}

// A stream that breaks off continues after the last line, delivers no line twice, and
// reports the interruption.
func TestLogsResume(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			var queries []string
			c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
				queries = append(queries, r.URL.RawQuery+" "+r.Header.Get("Last-Event-ID"))
				from := map[int]uint64{1: 1, 2: 0, 3: 2}[len(queries)] // the third time a line is sent again
				if from == 0 {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
				w.Header().Set("Content-Type", form.kind)
				w.Write(form.beat(map[int]uint64{1: 0, 3: 2}[len(queries)])) //nolint:errcheck // the reader is there
				for seq := from; seq < from+2; seq++ {
					w.Write(form.line(v3.Line{Seq: seq, Time: time.Unix(1, 0), Text: []byte(strconv.FormatUint(seq, 10))})) //nolint:errcheck // the reader is there
				}
			})
			var notices []string
			q := LogQuery{Newest: 5, Follow: true, Process: "web", SinceLastStart: true, Notice: func(text string) { notices = append(notices, text) }}
			got, err := logsOf(t.Context(), c, "a", q, 3)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"newest=5&process=web&since_last_start=true ", "process=web 2", "process=web 2"}
			if !slices.Equal(got, []string{"1", "2", "3"}) || !slices.Equal(queries, want) {
				t.Errorf("got %q, asked %q", got, queries)
			}
			if len(notices) != 2 || !strings.Contains(notices[0], "lost the connection to dewd") || notices[1] != "connected to dewd again" {
				t.Errorf("notices = %q", notices)
			}
		})
	}
}

// A client that had no line when the connection broke continues where it started. A
// client whose log became shorter reads the new lines.
func TestLogsPlace(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			var queries []string
			c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
				queries = append(queries, r.URL.RawQuery+" "+r.Header.Get("Last-Event-ID"))
				w.Header().Set("Content-Type", form.kind)
				at := []uint64{40, 40, 20}[len(queries)-1]
				w.Write(form.beat(at)) //nolint:errcheck // the reader is there
				if len(queries) > 1 {
					w.Write(form.line(v3.Line{Seq: at + 1, Time: time.Unix(1, 0), Text: []byte(strconv.FormatUint(at+1, 10))})) //nolint:errcheck // the reader is there
				}
			})
			got, err := logsOf(t.Context(), c, "a", LogQuery{Newest: 0, Follow: true}, 2)
			if err != nil || !slices.Equal(got, []string{"41", "21"}) || !slices.Equal(queries, []string{"newest=0 ", " 40", " 41"}) {
				t.Errorf("got %q, %v, asked %q", got, err, queries)
			}
		})
	}
}

// A slow reader is not mistaken for an unreachable daemon.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &follower{q: LogQuery{Notice: func(string) {}}}
		e := &timedReader{f: f, r: strings.NewReader("0123456789"), quiet: time.AfterFunc(quietLimit, cancel)}
		for range 3 {
			if _, err := io.ReadFull(e, make([]byte, 2)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(patience + quietLimit) // a slow reader
		}
		if ctx.Err() != nil {
			t.Error("the daemon was given up while nobody listened")
		}
		e.r = neverReader{ctx}
		if _, err := e.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("a quiet daemon: %v", err)
		}
		if quiet := time.Since(f.seen); quiet != quietLimit {
			t.Errorf("it was quiet for %v", quiet)
		}
	})
}

// neverReader sends nothing until its context is done.
type neverReader struct{ ctx context.Context }

func (n neverReader) Read([]byte) (int, error) {
	<-n.ctx.Done()
	return 0, n.ctx.Err()
}

// A stream finishes only when all selected lines are delivered.
func TestLogsEnd(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			times := 0
			c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
				times++
				w.Header().Set("Content-Type", form.kind)
				w.Write(form.line(v3.Line{Seq: uint64(times), Time: time.Unix(1, 0), Text: []byte("x")})) //nolint:errcheck // the reader is there
				if times == 2 {
					w.Write(form.end) //nolint:errcheck // the reader is there
				}
			})
			got, err := logsOf(t.Context(), c, "a", LogQuery{}, 10)
			if err != nil || len(got) != 2 || times != 2 {
				t.Errorf("got %q after %d tries, %v", got, times, err)
			}
		})
	}
}

func TestLogsFail(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "gone") {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"errors":[{"code":1,"title":"T","detail":"App not found"}]}`)
			return
		}
		http.NewResponseController(w).Flush() //nolint:errcheck // the reader leaves
		leave()
		<-r.Context().Done()
	})
	if _, err := logsOf(t.Context(), c, "gone", LogQuery{Newest: 1}, 1); !NotFound(err) {
		t.Errorf("got %v", err)
	}
	if _, err := logsOf(ctx, c, "quiet", LogQuery{Newest: 1}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestEventsReader(t *testing.T) {
	for text, want := range map[string][]string{
		"data: a\n\ndata:b\n\n":                  {" a", " b"},
		"id: 1\nevent: x\ndata: a\r\n\r\n":       {"x a"},
		"data: a\ndata: b\n\n":                   {" a\nb"},
		": beat\n\n":                             nil,
		": beat\nid: 7\n\n":                      {"-7"},
		"data: unfinished":                       nil,
		"\n\n\n":                                 nil,
		"data:\n\n":                              {" "},
		"data\n\n":                               {" "},
		"event: end\ndata: {}\n\ndata: next\n\n": {"end {}", " next"},
		"event: end\n\ndata: next\n\n":           {" next"},
	} {
		var got []string
		err := events(strings.NewReader(text), func(e event) error {
			if e.data == nil {
				got = append(got, "-"+e.id)
			} else {
				got = append(got, e.kind+" "+string(e.data))
			}
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("id: 1\ndata: {\"seq\":1}\n\n: beat\n\n")
	f.Add("data: a\ndata: b\n\nevent: end\ndata: {}\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines := 0
		f := follower{each: Lines{
			Line: func(l *v3.Line) error {
				lines++
				return nil
			},
			Flush: func() error { return nil },
		}}
		err := f.events(strings.NewReader(text))
		_ = err // invalid events are an error, never a panic
		if lines > strings.Count(text, "data") {
			t.Errorf("%d lines of %q", lines, text)
		}
	})
}
