package logs

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/logstream"
)

// BenchmarkStream reads a log over HTTP, in the short form and as events.
func BenchmarkStream(b *testing.B) {
	const lines = 200_000
	logs, err := logstream.Open(b.TempDir(), logstream.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer logs.Close()
	l, err := logs.App("app")
	if err != nil {
		b.Fatal(err)
	}
	es := make([]logstream.Envelope, 1000)
	for i := range lines / len(es) {
		for j := range es {
			es[j] = logstream.Envelope{Source: logstream.Source{Type: "APP/PROC/WEB", InstanceID: "0123abcd-0123-0123-0123-0123"}, Stream: logstream.Out, Text: fmt.Appendf(nil, "%099d", i*1000+j)}
		}
		if err := l.Append(es...); err != nil {
			b.Fatal(err)
		}
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := newLineWriter(w, r)
		if err := (openStream{Out: out, Beat: Heartbeat}).Run(r.Context(), l.Cursor(1).UpTo(lines).Brief()); !errors.Is(err, io.EOF) {
			b.Error(err)
		}
		_ = out.send(out.form.end(nil)) // the reader is still connected
	}))
	defer srv.Close()
	for _, form := range []string{v3.TextsType, v3.LinesType, "text/event-stream"} {
		b.Run(form, func(b *testing.B) {
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, srv.URL, nil)
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Accept", form)
				resp, err := srv.Client().Do(r)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, resp.Body); err != nil || n < lines*99 {
					b.Fatal(n, err)
				}
				resp.Body.Close()
			}
			b.ReportMetric(lines*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
