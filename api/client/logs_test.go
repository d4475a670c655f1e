package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
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

func TestRecent(t *testing.T) {
	c, _ := ask(t, logOf(t, 1500))
	for _, n := range []int{0, 1, 1200, 9999} {
		lines, err := c.Recent(t.Context(), "a", n)
		if err != nil {
			t.Fatal(err)
		}
		if len(lines) != min(n, 1500) {
			t.Errorf("%d lines, want %d", len(lines), n)
		}
		for i, l := range lines {
			if want := strconv.Itoa(1500 - len(lines) + i + 1); string(l.Text) != want {
				t.Fatalf("line %d is %s, want %s", i, l.Text, want)
			}
		}
	}
	lines, err := c.Recent(t.Context(), "a", 1)
	if err != nil {
		t.Fatal(err)
	}
	if l := lines[0]; l.Source != "APP/PROC/WEB" || l.Index != 2 || l.Stream != "ERR" || l.Time.UnixNano() != 1500 {
		t.Errorf("got %+v", l)
	}
}

func TestSince(t *testing.T) {
	c, _ := ask(t, logOf(t, 1500))
	lines, err := c.Since(t.Context(), "a", time.Unix(0, 11))
	if err != nil || len(lines) != 1490 || string(lines[0].Text) != "11" || string(lines[1489].Text) != "1500" {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

// A stream that breaks off goes on behind the last line, without a line twice.
func TestStreamResumes(t *testing.T) {
	var asked []string
	c, _ := ask(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery+" "+r.Header.Get("Last-Event-ID"))
		from := map[int]uint64{1: 1, 2: 0, 3: 2}[len(asked)] // the third time a line is sent again
		if from == 0 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fmt.Fprint(w, ": hello\n\n")
		for seq := from; seq < from+2; seq++ {
			b, err := json.Marshal(v3.Line{Seq: seq, Text: []byte(strconv.FormatUint(seq, 10))})
			if err != nil {
				t.Error(err)
			}
			fmt.Fprintf(w, "id: %d\ndata: %s\n\n", seq, b)
		}
	})
	var got []string
	for l, err := range c.Stream(t.Context(), "a", 5) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, string(l.Text)); len(got) == 3 {
			break
		}
	}
	if !slices.Equal(got, []string{"1", "2", "3"}) || !slices.Equal(asked, []string{"newest=5 ", " 2", " 2"}) {
		t.Errorf("got %q, asked %q", got, asked)
	}
}

func TestStreamEnds(t *testing.T) {
	c, _ := ask(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "gone") {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"errors":[{"code":1,"title":"T","detail":"App not found"}]}`)
			return
		}
		http.NewResponseController(w).Flush() //nolint:errcheck // the reader leaves
		<-r.Context().Done()
	})
	for _, err := range c.Stream(t.Context(), "gone", 1) {
		if !NotFound(err) {
			t.Errorf("got %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for _, err := range c.Stream(ctx, "quiet", 1) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
}

func TestEventsReader(t *testing.T) {
	for text, want := range map[string][]string{
		"data: a\n\ndata:b\n\n":            {"a", "b"},
		"id: 1\nevent: x\ndata: a\r\n\r\n": {"a"},
		"data: a\ndata: b\n\n":             {"a\nb"},
		": beat\n\n":                       {"-"},
		"data: unfinished":                 nil,
		"\n\n\n":                           nil,
		"data:\n\n":                        {""},
	} {
		var got []string
		err := events(strings.NewReader(text), func(data []byte) error {
			if data == nil {
				data = []byte("-")
			}
			got = append(got, string(data))
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("id: 1\ndata: {\"seq\":1}\n\n: beat\n\n")
	f.Add("data: a\ndata: b\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		f := follower{}
		last := uint64(0)
		err := events(strings.NewReader(text), func(data []byte) error {
			return f.line(data, func(l v3.Line) bool {
				if l.Seq < last {
					t.Errorf("line %d after %d", l.Seq, last)
				}
				last = l.Seq
				return true
			})
		})
		_ = err // what is no event is an error, never a panic
	})
}
