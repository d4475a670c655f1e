package smoke

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

const (
	appsEvery = 200 * time.Millisecond
	tailLines = 200 // of each app, kept for the report
)

// tail follows the lines of all apps of a place from when they come into being.
type tail struct {
	ask   *client.Client
	space string
	show  func(app string, l *v3.Line) // may be nil

	mu   sync.Mutex
	last map[string][]string // guarded by mu: by app

	stop context.CancelFunc
	all  sync.WaitGroup
}

func startTail(ctx context.Context, ask *client.Client, space string, show func(string, *v3.Line)) *tail {
	ctx, stop := context.WithCancel(ctx)
	t := &tail{ask: ask, space: space, show: show, last: map[string][]string{}, stop: stop}
	t.all.Go(func() { t.find(ctx) })
	return t
}

// find begins to follow every app that appears.
func (t *tail) find(ctx context.Context) {
	tick := time.NewTicker(appsEvery)
	defer tick.Stop()
	seen := map[string]bool{}
	for {
		apps, _ := t.ask.Apps().ListIn(ctx, t.space) // what fails now works the next time, or others tell
		for _, a := range apps {
			if !seen[a.GUID] {
				seen[a.GUID] = true
				t.all.Go(func() { t.follow(ctx, a) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (t *tail) follow(ctx context.Context, a v3.App) {
	_ = t.ask.Logs().Stream(ctx, a.GUID, client.LogQuery{Newest: -1, Follow: true}, client.Lines{Line: func(l *v3.Line) error {
		if l.Source != "RTR" {
			t.keep(a.Name, lineText(l))
		}
		if t.show != nil && l.Source != "STG" { // push shows what staging prints
			t.show(a.Name, l)
		}
		return nil
	}}) // it ends with ctx, or with the app
}

func (t *tail) keep(app, line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last[app] = newest(append(t.last[app], line))
}

func newest(lines []string) []string { return lines[max(0, len(lines)-tailLines):] }

// end stops following, and takes the newest lines from the log: the last words may
// not have come yet. Where it does not answer, what came stands.
func (t *tail) end(ctx context.Context) {
	t.stop()
	t.all.Wait()
	apps, _ := t.ask.Apps().ListIn(ctx, t.space)
	for _, a := range apps {
		var lines []string
		err := t.ask.Logs().Stream(ctx, a.GUID, client.LogQuery{Newest: 10 * tailLines}, client.Lines{Line: func(l *v3.Line) error {
			if l.Source != "RTR" {
				lines = newest(append(lines, lineText(l)))
			}
			return nil
		}})
		if err == nil && len(lines) > 0 {
			t.last[a.Name] = newest(lines)
		}
	}
}

// text is the newest lines of every app.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, app := range sortedKeys(t.last) {
		fmt.Fprintf(&b, "== the last lines of %s\n%s\n", app, strings.Join(t.last[app], "\n"))
	}
	return b.String()
}

// lineText is a line as dew logs writes it.
func lineText(l *v3.Line) string {
	return fmt.Sprintf("%s [%s/%d] %s %s", l.Time.UTC().Format("2006-01-02T15:04:05.000Z07:00"), l.Source, l.Index, l.Stream, l.Text)
}
