package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/testkit"
)

// otherApp is an app in addition to shop, with a log that can be followed.
type otherApp struct {
	app v3.App

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	lines   []v3.Line
	cut     int // number of times its streams were closed
	gone    bool
	refuse  string // reason why a stream is refused
}

func (d *fakeDaemon) withOther(name string) *otherApp {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := &otherApp{app: v3.App{GUID: "guid-" + name, Name: name, State: v3.AppStarted}, changed: make(chan struct{})}
	d.others = append(d.others, a)
	return a
}

// allApps returns the existing apps. The caller holds d.mu.
func (d *fakeDaemon) allApps() []v3.App {
	var all []v3.App
	if d.app != nil {
		all = append(all, *d.app)
	}
	if d.other != nil {
		all = append(all, *d.other)
	}
	for _, a := range d.others {
		a.change(func() {
			if !a.gone {
				all = append(all, a.app)
			}
		})
	}
	return all
}

func (a *otherApp) change(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn()
	close(a.changed)
	a.changed = make(chan struct{})
}

// print adds a line with a time in seconds.
func (a *otherApp) print(second int, text string) {
	a.add(v3.Line{Time: time.Unix(int64(second), 0), Source: "APP/PROC/WEB", Stream: "OUT", Text: []byte(text)})
}

// printAs adds a line of a source.
func (a *otherApp) printAs(source, stream, text string) {
	a.add(v3.Line{Time: time.Now(), Source: source, Stream: stream, Text: []byte(text)})
}

func (a *otherApp) add(l v3.Line) {
	a.change(func() {
		l.Seq = uint64(len(a.lines) + 1)
		a.lines = append(a.lines, l)
	})
}

// restart closes all streams, as a restart of dewd does.
func (a *otherApp) restart() { a.change(func() { a.cut++ }) }

// remove deletes the app.
func (a *otherApp) remove() { a.change(func() { a.cut++; a.gone = true }) }

// otherStream streams the log of an app other than shop.
func (d *fakeDaemon) otherStream(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	i := slices.IndexFunc(d.others, func(a *otherApp) bool { return a.app.GUID == r.PathValue("guid") })
	a := d.others[i]
	d.requests = append(d.requests, "GET "+r.URL.Path)
	d.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		w.WriteHeader(http.StatusNotFound)
		d.encode(w, v3.Errors{Errors: []v3.Error{{Code: v3.CodeNotFound, Title: v3.TitleNotFound, Detail: "App not found"}}})
		return
	}
	if a.refuse != "" {
		w.WriteHeader(http.StatusBadRequest)
		d.encode(w, v3.Errors{Errors: []v3.Error{{Code: 10005, Title: "CF-BadQueryParameter", Detail: a.refuse}}})
		return
	}
	w.Header().Set("Content-Type", v3.LinesType)
	at := 0
	if n, err := strconv.Atoi(r.URL.Query().Get("newest")); err == nil {
		at = max(0, len(a.lines)-n)
	}
	if n, err := strconv.Atoi(r.Header.Get("Last-Event-ID")); err == nil {
		at = n
	}
	b := v3.AppendBeat(nil, uint64(at))
	for cut := a.cut; a.cut == cut && r.Context().Err() == nil; {
		for ; at < len(a.lines); at++ {
			if source := r.URL.Query().Get("source"); source == "" || source == a.lines[at].Source {
				b = v3.AppendLine(b, &a.lines[at])
			}
		}
		if r.URL.Query().Get("follow") == "false" {
			_, _ = w.Write(v3.AppendEnd(b))
			return
		}
		_, _ = w.Write(b)
		_ = http.NewResponseController(w).Flush()
		b = nil
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		a.mu.Lock()
	}
}

func TestLogsOfSeveralApps(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	shop, cart := d.withOther("shop"), d.withOther("cart-service")
	for i := range 3 {
		shop.print(10*i, "shop "+strconv.Itoa(i))
		cart.print(10*i+5, "cart "+strconv.Itoa(i))
	}
	if got := d.dew("logs", "cart-service", "shop", "--raw", "--recent").out; got != "shop 0\ncart 0\nshop 1\ncart 1\nshop 2\ncart 2\n" {
		t.Errorf("merged: %q", got)
	}
	if got := d.dew("logs", "--all", "--raw", "--recent", "-n", "1").out; got != "shop 2\ncart 2\n" {
		t.Errorf("-n counts per app: %q", got)
	}
	if got := d.dew("logs", "--all", "--raw", "--recent", "-n", "2", "--grep", "[01]$").out; got != "shop 0\ncart 0\nshop 1\ncart 1\n" {
		t.Errorf("-n counts matching lines per app: %q", got)
	}
	lines := strings.Split(d.dew("logs", "--all", "--recent").out, "\n")
	if !strings.HasPrefix(lines[0], "shop         | ") || !strings.HasPrefix(lines[1], "cart-service | ") || !strings.HasSuffix(lines[1], "[APP/PROC/WEB/0] OUT cart 0") {
		t.Errorf("names: %q", lines[:2])
	}
	var l struct{ App, Text string }
	if err := json.Unmarshal([]byte(strings.Split(d.dew("logs", "--all", "--recent", "--json").out, "\n")[1]), &l); err != nil || l.App != "cart-service" || l.Text != "cart 0" {
		t.Errorf("--json: %+v, %v", l, err)
	}
	if got := d.dew("logs", "shop", "shop", "--recent", "-n", "1").out; strings.Contains(got, "|") || strings.Count(got, "shop 2") != 1 {
		t.Errorf("the same app twice: %q", got)
	}
}

// Nothing is streamed if one of the apps does not exist.
func TestLogsOfUnknownApp(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.withOther("shop").print(1, "one")
	r := d.dew("logs", "shop", "shpo", "--recent")
	if r.must(t, 1, `"shpo"`, `did you mean "shop"?`); r.out != "" || d.count("GET /stream/v1/apps/guid-shop") != 0 {
		t.Errorf("streamed %q, asked %v", r.out, d.requests)
	}
	for args, want := range map[string]string{
		"logs":                        "logs needs APP, --all",
		"logs shop --all":             "leave out shop",
		"logs --all --service db":     "cannot be used with APP or --all",
		"logs shop cart --crash 1":    "need exactly one app",
		"logs --all --verify":         "need exactly one app",
		"logs shop -f --crash 1":      "--follow and --crash cannot be used together",
		"logs shop --follow --verify": "--follow and --verify cannot be used together",
	} {
		d.dew(strings.Fields(args)...).must(t, console.StatusUsage, want)
	}
}

// Each app is followed across restarts, without lost or duplicate lines. Apps can be
// added and removed.
func TestLogsFollowSeveralApps(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	shop, cart := d.withOther("shop"), d.withOther("cart")
	shop.print(1, "shop 0")
	cart.print(2, "cart 0")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, talk := &watched{}, &watched{}
	done := make(chan error)
	go func() {
		c := &console.Console{Out: out, Err: talk, In: strings.NewReader("")}
		done <- newApp("dev", c).RunContext(ctx, []string{"dew", "--run", d.run, "logs", "--all", "--raw"})
	}()
	out.await(t, "cart 0\n")
	var late *otherApp
	for i := 1; i <= 20; i++ {
		shop.print(10*i, "shop "+strconv.Itoa(i))
		cart.print(10*i, "cart "+strconv.Itoa(i))
		switch i {
		case 5, 15:
			shop.restart()
			cart.restart()
		case 10:
			late = d.withOther("late")
			late.print(1, "late 0")
		}
	}
	out.await(t, "shop 20\n")
	out.await(t, "cart 20\n")
	out.await(t, "late 0\n")
	cart.remove()
	talk.await(t, "App cart was deleted, or you can no longer see it")
	late.print(2, "late 1")
	out.await(t, "late 1\n")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
	got := map[string][]string{}
	for text := range strings.Lines(out.String()) {
		name, n, _ := strings.Cut(strings.TrimSpace(text), " ")
		got[name] = append(got[name], n)
	}
	var want []string
	for i := range 21 {
		want = append(want, strconv.Itoa(i))
	}
	if !slices.Equal(got["shop"], want) || !slices.Equal(got["cart"], want) || !slices.Equal(got["late"], want[:2]) {
		t.Errorf("got %v", got)
	}
	if talk.String() != "App cart was deleted, or you can no longer see it\n" {
		t.Errorf("said:\n%s", talk)
	}
}

// watched is a buffer that tests can wait on.
type watched struct {
	mu sync.Mutex
	b  strings.Builder
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(b)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func (w *watched) await(t *testing.T, text string) {
	t.Helper()
	testkit.Eventually(t, text, func() error {
		if got := w.String(); !strings.Contains(got, text) {
			return fmt.Errorf("it is not in:\n%s", got)
		}
		return nil
	})
}
