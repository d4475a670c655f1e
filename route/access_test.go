package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/dewrun/dew/logstream"
)

func TestAccessLines(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"), routeTo("empty", "", "b"))
	w.run()
	w.instance("a", 2, echo)
	req := w.request(http.MethodPost, "shop", "/cart?item=\"1\"", strings.NewReader("12345"))
	req.Header.Set("Referer", "http://a/")
	req.Header.Set("User-Agent", "test\tagent")
	w.do(req)
	const id = `[0-9a-f]{8}-[0-9a-f-]{27}`
	want := `^\S+ \[RTR/0\] OUT shop\.dew\.localhost:8080 - \[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z\] "POST /cart\?item=\\"1\\" HTTP/1\.1" 200 5 5 ` +
		`"http://a/" "test\\tagent" "127\.0\.0\.1:\d+" "10\.201\.97\.50:8080" x_forwarded_for:"127\.0\.0\.1" x_forwarded_proto:"http" ` +
		`vcap_request_id:"` + id + `" response_time:\d\.\d{6} app_id:"a" app_index:"2" instance_id:"a-2" x_cf_routererror:"-" ` +
		`x_b3_traceid:"[0-9a-f]{32}" x_b3_spanid:"[0-9a-f]{16}"$`
	if line := <-w.lines; !regexp.MustCompile(want).MatchString(line) {
		t.Errorf("line = %s\nwant  %s", line, want)
	}
	w.get("empty", "/")
	want = `"GET / HTTP/1\.1" 503 0 \d+ "-" ".*" "127\.0\.0\.1:\d+" "-" .* app_id:"b" app_index:"-" instance_id:"-" x_cf_routererror:"no_endpoints"`
	if line := <-w.lines; !regexp.MustCompile(want).MatchString(line) {
		t.Errorf("line = %s\nwant  %s", line, want)
	}
}

// Lines that cannot be written in time are counted and reported, and requests do not
// wait.
func TestFullQueueDropsAndReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := map[string][]string{}
		l := newAccessLog(func(app string, es ...logstream.Envelope) error {
			for _, e := range es {
				got[app] = append(got[app], string(e.Text))
				if e.Flags == logstream.Gap && e.Stream != logstream.Err {
					t.Errorf("gap on %s", e.Stream)
				}
			}
			return nil
		}, slog.New(slog.DiscardHandler))
		for i := range lineQueue + 10 {
			l.put(&access{app: "a", path: fmt.Sprint(i)})
		}
		l.put(&access{app: "b"})
		if n := l.dropped.Load(); n != 11 {
			t.Errorf("dropped = %d, want 11", n)
		}
		ctx, cancel := context.WithCancel(context.Background())
		go l.run(ctx)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if n := len(got["a"]); n != lineQueue+1 {
			t.Errorf("lines = %d, want %d and one that tells", n, lineQueue)
		}
		text := strings.Join(got["a"], "\n")
		if strings.Count(text, "10 access log lines are missing") != 1 || len(got["b"]) != 1 || !strings.HasPrefix(got["b"][0], "1 access log line is missing") {
			t.Errorf("text: %q", got["b"])
		}
	})
}

// When the daemon exits, queued lines are still written.
func TestQueueIsWrittenAtTheEnd(t *testing.T) {
	n := 0
	l := newAccessLog(func(_ string, es ...logstream.Envelope) error { n += len(es); return nil }, slog.New(slog.DiscardHandler))
	for range 1000 {
		l.put(&access{app: "a"})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l.run(ctx)
	if n != 1000 {
		t.Errorf("written = %d, want 1000", n)
	}
}

func TestLinesThatCannotBeWrittenAreCounted(t *testing.T) {
	l := newAccessLog(func(string, ...logstream.Envelope) error { return errors.New("full") }, slog.New(slog.DiscardHandler))
	l.put(&access{app: "a"})
	l.drain()
	if n := l.dropped.Load(); n != 1 {
		t.Errorf("dropped = %d, want 1", n)
	}
}

// For any request, the access line is one line of text with a limited length.
func FuzzAccessLine(f *testing.F) {
	f.Add("shop", "GET", "/", "curl")
	f.Add("a\nb", "G\"T", "/\x00\xff", strings.Repeat("é", 1000))
	f.Fuzz(func(t *testing.T, host, method, path, agent string) {
		line := (&access{host: host, method: method, path: path, agent: agent}).line()
		if !utf8.Valid(line) || strings.ContainsFunc(string(line), func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("line = %q", line)
		}
		if len(line) > 4*(maxLinePath+4*maxLineHeader)+1000 {
			t.Errorf("line has %d bytes", len(line))
		}
	})
}
