package logs

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/logstream"
)

// What the retention dropped before it was read is told of, with a number that
// the client can go on from.
func TestStreamGap(t *testing.T) {
	var b bytes.Buffer
	out := &lineWriter{w: &b, flush: func() error { return nil }, form: eventForm}
	if err := out.gap(3, 7); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if !strings.HasPrefix(text, "id: 7\ndata: ") || !strings.Contains(text, "3 lines missing") || !strings.Contains(text, `"flags":["gap"]`) {
		t.Errorf("gap = %q, want number 7 and how many", text)
	}
}

func TestPresentLineFlags(t *testing.T) {
	got := presentLine(&logstream.Envelope{Flags: logstream.Late | logstream.Cut | logstream.Partial | logstream.Gap}).Flags
	if diff := cmp.Diff(got, []string{"late", "cut", "partial", "gap"}); diff != "" {
		t.Errorf("flags differ (-got +want):\n%s", diff)
	}
}

func FuzzWindow(f *testing.F) {
	f.Add("start_time=-6795364578871345152&limit=1000&descending=true&envelope_types=LOG")
	f.Add("end_time=9223372036854775807&limit=0")
	f.Add("start_time=%00&limit")
	f.Fuzz(func(t *testing.T, query string) {
		r := &http.Request{URL: &url.URL{Path: "/", RawQuery: query}}
		x, err := readWindow(r)
		if err == nil && (x.Limit < 1 || x.Limit > MaxLimit) {
			t.Errorf("%q gives limit %d", query, x.Limit)
		}
		if _, err := rest.ReadQuery(r.WithContext(rest.WithShape(r.Context(), rest.PageOf[v3.App]("names")))); err != nil {
			if status, _ := rest.ToError(err); status != http.StatusBadRequest {
				t.Errorf("%q = %d, want 400", query, status)
			}
		}
	})
}

func FuzzLogQuery(f *testing.F) {
	f.Add("process=web&sidecar=a&instance=3&stream=ERR&contains=%ff&since=2006-01-02T15:04:05.5Z&until=2007-01-02T15:04:05Z&newest=7&follow=false")
	f.Add("crash=1&from=9&source=API&no_sidecars=true&since_last_start=true")
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		q, err := ReadLogQuery(values)
		if err != nil {
			if status, _ := rest.ToError(err); status != http.StatusBadRequest {
				t.Errorf("%q = %d, want 400", query, status)
			}
			return
		}
		for name := range values {
			if logParameters[name] == nil {
				t.Errorf("%q was taken", query)
			}
		}
		if q.newest < -1 || q.crash < 0 || q.Filter.Instance != nil && *q.Filter.Instance < 0 {
			t.Errorf("%q = %+v", query, q)
		}
		q.Filter.Matches(logstream.Envelope{Text: []byte(query)})
	})
}
