package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// newest sends the newest lines of the log in the short form.
func (d *fakeDaemon) newest(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.query = r.URL.Query()
	d.mu.Unlock()
	lines := d.lines
	if n, err := strconv.Atoi(r.URL.Query().Get("newest")); err == nil {
		lines = lines[len(lines)-min(n, len(lines)):]
	}
	w.Header().Set("Content-Type", v3.LinesType)
	var b []byte
	for i, e := range lines {
		l := v3.Line{Seq: uint64(i + 1), Time: time.Unix(0, e.Timestamp), Source: e.Tags["source_type"], Stream: e.Log.Type, Text: e.Log.Payload}
		if strings.HasSuffix(string(l.Text), "…") {
			l.Flags = []string{v3.FlagCut}
		}
		b = v3.AppendLine(b, &l)
	}
	_, _ = w.Write(v3.AppendEnd(b)) // the reader is still connected
}

func TestLogs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	for _, text := range []string{"one", "two", "three"} {
		d.say("APP/PROC/WEB", "0", text)
	}
	r := d.dew("logs", "shop", "--recent", "-n", "2")
	r.must(t, 0, "[APP/PROC/WEB/0] OUT two\n", "[APP/PROC/WEB/0] OUT three\n")
	if strings.Contains(r.out, "one") {
		t.Errorf("more than two lines:\n%s", r.out)
	}
	var l v3.Line
	if err := json.Unmarshal([]byte(d.dew("logs", "shop", "--recent", "-n", "1", "--json").out), &l); err != nil || string(l.Text) != "three" {
		t.Errorf("got %+v, %v", l, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &until{text: "OUT bye", then: cancel} // stop following after this line
	err := newApp("dev", &console.Console{Out: out, Err: io.Discard, In: strings.NewReader("")}).RunContext(ctx, []string{"dew", "--run", d.run, "logs", "shop"})
	result{out: out.String(), status: command.StatusOf(err), err: err}.must(t, 0, "[APP/PROC/WEB/SIDECAR/CONFIG SERVER/0] OUT hello", "OUT bye")
}

// until calls a function when a text is written.
type until struct {
	bytes.Buffer
	text string
	then func()
}

func (u *until) Write(b []byte) (int, error) {
	n, err := u.Buffer.Write(b)
	if strings.Contains(u.String(), u.text) {
		u.then()
	}
	return n, err
}

// --raw writes the output of the app and not a byte more.
func TestLogsRaw(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	want := "one\xff\x00\nlong, …and its end\n\n"
	for _, text := range []string{"one\xff\x00", "long, …", "and its end", ""} {
		d.say("APP/PROC/WEB", "0", text)
	}
	if got := d.dew("logs", "shop", "--recent", "--raw").out; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// --raw shows no lines of the platform.
func TestLogsRawNoPlatform(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("logs", "shop", "--recent", "--raw").must(t, 0)
	if got := d.query.Get("no_platform"); got != "true" {
		t.Errorf("asked %v", d.query)
	}
}

// Flags that select stored lines make the command exit after them. Otherwise it
// follows, and with -f it always follows.
func TestLogsEnd(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.sidecars = []v3.Sidecar{{Name: "x"}}
	for args, follows := range map[string]bool{
		"":                        true,
		"-n 5":                    true,
		"--sidecar x":             true,
		"--no-sidecars":           true,
		"--process web":           true,
		"--instance 0":            true,
		"--grep x":                true,
		"--stream err":            true,
		"--raw":                   true,
		"--json":                  true,
		"--recent":                false,
		"--since 10m":             false,
		"--since-last-start":      false,
		"--until 1m":              false,
		"--crash 1":               false,
		"--raw --since 1m":        false,
		"-f --since 10m":          true,
		"--follow --recent":       true,
		"-f --since-last-start":   true,
		"--json --until 1m -f":    true,
		"--recent --grep x --raw": false,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out := &until{text: "hello", then: cancel}
		err := newApp("dev", &console.Console{Out: out, Err: io.Discard, In: strings.NewReader("")}).RunContext(ctx, append([]string{"dew", "--run", d.run, "logs", "shop"}, strings.Fields(args)...))
		cancel()
		if got := strings.Contains(out.String(), "hello"); err != nil || got != follows { // the daemon sends hello only to followers
			t.Errorf("%s: follows: %v, want %v (%v)", args, got, follows, err)
		}
	}
}

// The daemon searches for a plain text, and dew for a regular expression; -n counts the
// matching lines.
func TestLogsGrep(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	for i := range 20 {
		d.say("APP/PROC/WEB", "0", "line "+strconv.Itoa(i))
	}
	if got := d.dew("logs", "shop", "--recent", "--raw", "-n", "2", "--grep", "[13579]$").out; got != "line 17\nline 19\n" {
		t.Errorf("got %q", got)
	}
	if d.query.Has("newest") || d.query.Has("contains") {
		t.Errorf("asked %v", d.query)
	}
	d.dew("logs", "shop", "--recent", "-n", "2", "--grep", "line 1").must(t, 0)
	if d.query.Get("contains") != "line 1" || d.query.Get("newest") != "2" {
		t.Errorf("asked %v", d.query)
	}
	d.dew("logs", "shop", "--recent", "-n", "2", "--grep", "line 1[0-9]*").must(t, 0)
	if d.query.Get("contains") != "line 1" || d.query.Has("newest") {
		t.Errorf("asked %v", d.query)
	}
	if got := d.dew("logs", "shop", "--recent", "--raw", "-n", "2", "--grep", "^line 1$").out; got != "line 1\n" {
		t.Errorf("got %q", got)
	}
}

// Each flag becomes a query parameter of the request.
func TestLogsQuery(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.sidecars = []v3.Sidecar{{Name: "agent"}}
	d.dew("logs", "shop", "--recent", "--process", "worker", "--sidecar", "agent", "--instance", "0", "--stream", "err",
		"--since", "2026-01-02T03:04:05Z", "--until", "2026-01-02T03:04:06.5Z", "--since-last-start").must(t, 0)
	want := url.Values{
		"follow": {"false"}, "process": {"worker"}, "sidecar": {"agent"}, "instance": {"0"}, "stream": {"ERR"},
		"since": {"2026-01-02T03:04:05Z"}, "until": {"2026-01-02T03:04:06.5Z"}, "since_last_start": {"true"},
	}
	if got := d.query.Encode(); got != want.Encode() {
		t.Errorf("asked %s, want %s", got, want.Encode())
	}
	d.dew("logs", "shop", "--recent", "--no-sidecars", "--crash", "2").must(t, 0)
	if got := d.query.Encode(); got != "crash=2&follow=false&no_sidecars=true" {
		t.Errorf("asked %s", got)
	}
	for args, want := range map[string]string{
		"--stream both":                         "neither out nor err",
		"--sidecar a --no-sidecars":             "cannot be used together",
		"--crash 0":                             "less than 1",
		"--instance -1":                         "less than 0",
		"--since yesterday":                     "is not a time",
		"--since 2026-01-02 --until 2026-01-01": "must be before",
		"--grep (":                              "missing closing",
		"--raw --json":                          "cannot be used together",
		"--since-last-start --crash 1":          "cannot be used together",
	} {
		d.dew(append([]string{"logs", "shop"}, strings.Fields(args)...)...).must(t, console.StatusUsage, want)
	}
}

func TestLogsVerify(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.report = v3.LogReport{OK: true, Lines: 3, First: 1, Last: 3, Segments: 1}
	d.dew("logs", "shop", "--verify").must(t, 0, "Checked 3 lines (numbers 1 to 3)")
	d.report = v3.LogReport{OK: true, Lines: 1, First: 9, Last: 9, Gaps: 1, Lost: 8}
	d.dew("logs", "shop", "--verify").must(t, 0, "Gaps: 1, missing lines: 8") // the retention dropped them
	d.report = v3.LogReport{Problems: []string{"found line 5, want line 4"}}
	d.dew("logs", "shop", "--verify").must(t, console.StatusFailed, "found line 5, want line 4")
}

// The error for a crash that does not exist names the app and the next command.
func TestLogsNoCrash(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.withOther("shop").refuse = "The query parameter is invalid: crash 9 does not exist: 1 crash is recorded"
	d.dew("logs", "shop", "--crash", "9").must(t, 1, "app shop: crash 9 does not exist: 1 crash is recorded", "To list the crashes: dew crashes shop")
	d = newDaemon(t)
	d.withOther("shop")
	d.dew("logs", "shop", "--crash", "1").must(t, 0, "Crash 1 of shop has no lines")
}

// The logs of a sidecar that the app does not have are an error that names the sidecars,
// unless the log still has lines of it.
func TestLogsOfUnknownSidecar(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("logs", "shop", "--recent", "--sidecar", "nope").must(t, 1, "app shop has no sidecars")
	d.sidecars = []v3.Sidecar{{Name: "config-server"}, {Name: "agent"}}
	d.dew("logs", "shop", "--recent", "--sidecar", "nope").must(t, 1, `app shop has no sidecar "nope"; its sidecars: "config-server", "agent"`)
	d.dew("logs", "shop", "--recent", "--sidecar", "config-servr").must(t, 1, `did you mean "config-server"?`)
	d.say("APP/PROC/WEB/SIDECAR/OLD", "0", "still here")
	d.dew("logs", "shop", "--recent", "--sidecar", "old").must(t, 0, "still here")
}
