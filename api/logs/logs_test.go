package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// The stream reports lines that the retention dropped before they were read, with a
// number from which the client can continue.
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
		if err == nil && (x.Limit < 1 || x.Limit > maxLimit) {
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
		q, err := readLogQuery(values)
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

// The number of a gap is the number of the last missing line, even if no line before it
// matched the filter.
func TestStreamGapNumber(t *testing.T) {
	t.Parallel()
	l := openLog(t, logstream.Options{SegmentBytes: 4096, Retention: 4096})
	line := logstream.Envelope{Source: logstream.Source{Type: "APP/PROC/WEB"}, Stream: logstream.Out, Text: []byte(strings.Repeat("x", 1000))}
	for range 3 {
		if err := l.Append(line); err != nil {
			t.Fatal(err)
		}
	}
	c := must(l.Select(1, logstream.Filter{Contains: "never"}))(t)
	if _, err := c.UpTo(l.LastSeq()).Next(t.Context()); !errors.Is(err, io.EOF) || c.At() != 4 {
		t.Fatalf("at line %d: %v, want 4 and nothing", c.At(), err)
	}
	for range 100 {
		if err := l.Append(line); err != nil {
			t.Fatal(err)
		}
	}
	testkit.EventuallyTrue(t, "the retention works", func() bool { return l.Kept().Dropped > 50 })
	got := httptest.NewRecorder()
	f := openStream{Out: newLineWriter(got, httptest.NewRequest(http.MethodGet, "/", nil)), Beat: time.Hour, CheckAccess: func() error { return nil }}
	if err := f.Run(t.Context(), c.UpTo(l.LastSeq())); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	var gap v3.Line
	_, data, _ := strings.Cut(got.Body.String(), "data: ")
	data, _, _ = strings.Cut(data, "\n")
	if err := json.Unmarshal([]byte(data), &gap); err != nil || gap.Lost == nil || gap.Seq != 3+uint64(gap.Lost.Lines) {
		t.Errorf("gap = %+v, %v, want the number of its last line", gap, err)
	}
}

// If two processes have the same index, frequent starts of one do not hide the start of
// the other.
func TestStreamSinceLastStart(t *testing.T) {
	t.Parallel()
	db := must(store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{NoSync: true}))(t)
	t.Cleanup(func() { _ = db.Close() })
	reg := registry.New(db)
	space := must(reg.EnsureDefaults("dew.localhost"))(t)
	a := must(reg.PutApp(app.App{Name: "shop", Space: space.GUID}))(t)
	l := openLog(t, logstream.Options{})
	worker := must(reg.PutProcess(app.Process{App: a.GUID, Type: "worker", Instances: 1, MemoryMB: 64}))(t)
	cell := func(id, text string) logstream.Envelope {
		return logstream.Envelope{Source: logstream.Source{Type: "CELL", InstanceID: id}, Stream: logstream.Out, Text: []byte(text)}
	}
	es := []logstream.Envelope{
		cell("old", creating), cell("web", creating), cell("web", created), cell("first", creating), cell("second", creating), cell("third", created),
	}
	if err := l.Append(es...); err != nil {
		t.Fatal(err)
	}
	running := func(process, id string) []runtime.Status {
		return []runtime.Status{{Slot: runtime.SlotID{Process: process}, Instance: runtime.InstanceID(id), State: runtime.Running}}
	}
	for _, tt := range []struct {
		web, worker, query string
		first              uint64
	}{
		{"web", "second", "", es[1].Seq},
		{"web", "second", "&process=worker", es[4].Seq},
		{"web", "third", "&process=worker", es[5].Seq}, // its start was tried before
		{"", "", "&process=web", es[4].Seq},            // the newest start of any
		{"lost", "second", "", 1},
	} {
		slots := fakeProcesses{a.GUID: running(a.GUID, tt.web), worker.GUID: running(worker.GUID, tt.worker)}
		h := &Handlers{Platform: &platform.Platform{Registry: reg, Processes: slots}}
		q := must(readLogQuery(must(url.ParseQuery("since_last_start=true" + tt.query))(t)))(t)
		if err := h.narrowToStart(t.Context(), a, l, &q); err != nil || max(q.Filter.First, 1) != tt.first {
			t.Errorf("%+v begins at %d, %v", tt, q.Filter.First, err)
		}
	}
}

// Reads return the same lines as a scan of the whole log: the oldest lines since a
// time, or the newest before a time.
func TestLogCacheWindows(t *testing.T) {
	t.Parallel()
	l := openLog(t, logstream.Options{})
	for i := range 35 { // batches of different sizes
		line := logstream.Envelope{Source: logstream.Source{Type: "APP/PROC/WEB"}, Stream: logstream.Out, Text: []byte(strconv.Itoa(i))}
		if err := l.Append(slices.Repeat([]logstream.Envelope{line}, 1+i*2)...); err != nil {
			t.Fatal(err)
		}
	}
	all := must(l.NewestOf(t.Context(), 10000, logstream.Filter{}))(t)
	if len(all) != 35*35 {
		t.Fatalf("lines = %d, want 1225", len(all))
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	moment := func() int64 { return all[rnd.IntN(len(all))].Time.UnixNano() + rnd.Int64N(3) - 1 }
	for range 60 {
		x := window{Start: moment(), End: moment(), Limit: 1 + rnd.IntN(maxLimit), Descending: rnd.IntN(2) == 0}
		if rnd.IntN(3) == 0 {
			x.End = math.MaxInt64
		}
		var want []uint64
		for _, e := range all {
			if at := e.Time.UnixNano(); at >= x.Start && at < x.End {
				want = append(want, e.Seq)
			}
		}
		if x.Descending {
			slices.Reverse(want)
		}
		want = want[:min(len(want), x.Limit)]
		var got []uint64
		for p := must(x.Open(t.Context(), l))(t); len(p.Lines) > 0; must(0, p.Next(t.Context()))(t) {
			for _, e := range p.Lines {
				got = append(got, e.Seq)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v gives %v, want %v", x, got, want)
		}
	}
}

// fakeProcesses has the slots of processes by guid.
type fakeProcesses map[string][]runtime.Status

func (f fakeProcesses) Instances(process string) []runtime.Status { return f[process] }

func (f fakeProcesses) Usage(context.Context, string, int) (runtime.Usage, bool) {
	return runtime.Usage{}, false
}

func (f fakeProcesses) Signal(context.Context, string, int, string, runtime.SentSignal) error {
	return nil
}

func (f fakeProcesses) RestartInstance(string, int) error { return nil }

func openLog(t *testing.T, o logstream.Options) *logstream.Log {
	t.Helper()
	stored := must(logstream.Open(t.TempDir(), o))(t)
	t.Cleanup(func() { _ = stored.Close() })
	return must(stored.App("a"))(t)
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
