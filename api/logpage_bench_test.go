package api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/api/logs"
	"github.com/dewrun/dew/logstream"
)

const (
	pagedLines = 100_000
	fullPage   = 1000
)

// BenchmarkLogCache reads a log page by page, as clients of log-cache do. It measures
// the CPU time of server and client together per 1,000 lines. The baseline is the same
// bytes, encoded beforehand, between the same server and client, in turn.
func BenchmarkLogCache(b *testing.B) {
	w := newTestServer(b)
	a := w.createApp("shop")
	fillLog(b, w.log(a.GUID))
	var ready []byte
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ready" {
			w.s.Local().ServeHTTP(rw, r)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(ready) // the reader is still connected
	}))
	defer srv.Close()
	path := srv.URL + "/api/v1/read/" + a.GUID + "?envelope_types=LOG&limit=1000"
	b.Run("older to newer", func(b *testing.B) { // cf logs, and tools that copy logs
		start := int64(0)
		comparePages(b, srv, &ready, func() string { return fmt.Sprint(path, "&start_time=", start) }, func(last int64, full bool) {
			if start = last + 1; !full {
				start = 0 // start again with the first line
			}
		})
	})
	b.Run("newer to older", func(b *testing.B) {
		newest := time.Now().UnixNano()
		end := newest
		comparePages(b, srv, &ready, func() string { return fmt.Sprint(path, "&descending=true&end_time=", end) }, func(last int64, full bool) {
			if end = last; !full {
				end = newest
			}
		})
	})
	b.Run("newest", func(b *testing.B) { // cf logs --recent
		comparePages(b, srv, &ready, func() string { return path + "&descending=true&start_time=-6795364578871345152" }, func(int64, bool) {})
	})
}

// fillLog writes lines in batches of the size that a process without pauses produces.
func fillLog(b *testing.B, l *logstream.Log) {
	b.Helper()
	es := make([]logstream.Envelope, 4000)
	for range pagedLines / len(es) {
		for i := range es {
			es[i] = logstream.Envelope{Source: logstream.Source{Type: "APP/PROC/WEB", InstanceID: "0123abcd-0123-0123-0123-0123"}, Stream: logstream.Out, Text: fmt.Appendf(nil, "%099d", i)}
		}
		if err := l.Append(es...); err != nil {
			b.Fatal(err)
		}
	}
}

// comparePages reads pages, each followed by the same bytes, encoded beforehand.
func comparePages(b *testing.B, srv *httptest.Server, ready *[]byte, url func() string, read func(last int64, full bool)) {
	b.Helper()
	var page, floor time.Duration
	lines := 0
	for b.Loop() {
		began := cpuTime(b)
		body := fetchPage(b, srv, url())
		page += cpuTime(b) - began
		*ready = body
		began = cpuTime(b)
		fetchPage(b, srv, srv.URL+"/ready")
		floor += cpuTime(b) - began
		n := bytes.Count(body, []byte(logs.EnvelopeHead))
		if n == 0 {
			b.Fatalf("no lines in %.200s", body)
		}
		lines += n
		stamp, _, _ := bytes.Cut(body[bytes.LastIndex(body, []byte(logs.EnvelopeHead))+len(logs.EnvelopeHead):], []byte{'"'})
		last, err := strconv.ParseInt(string(stamp), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		read(last, n == fullPage)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(1e3*page.Seconds()/float64(lines)*1e3, "cpu-ms/1000lines")
	b.ReportMetric(1e3*floor.Seconds()/float64(lines)*1e3, "ready-made-ms")
	b.ReportMetric(page.Seconds()/floor.Seconds(), "times")
}

func fetchPage(b *testing.B, srv *httptest.Server, url string) []byte {
	b.Helper()
	resp, err := srv.Client().Get(url)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatalf("%s: %v %.200s", resp.Status, err, body)
	}
	return body
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
