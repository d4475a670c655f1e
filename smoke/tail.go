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
	tailLines = 200 // lines of each app, stored for the report
)

// tail follows the lines of all apps of a space from their creation on.
type tail struct {
	client *client.Client
	space  string
	show   func(app string, l *v3.Line) // can be nil

	mu   sync.Mutex
	last map[string][]string // by app; guarded by mu

	stop context.CancelFunc
	all  sync.WaitGroup
}

func startTail(ctx context.Context, daemon *client.Client, space string, show func(string, *v3.Line)) *tail {
	ctx, stop := context.WithCancel(ctx)
	t := &tail{client: daemon, space: space, show: show, last: map[string][]string{}, stop: stop}
	t.all.Go(func() { t.find(ctx) })
	return t
}

// find starts to follow every app that appears.
func (t *tail) find(ctx context.Context) {
	tick := time.NewTicker(appsEvery)
	defer tick.Stop()
	seen := map[string]bool{}
	for {
		apps, _ := t.client.Apps().ListIn(ctx, t.space) // an error is ignored: the next call works, or other steps report it
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
	_ = t.client.Logs().Stream(ctx, a.GUID, client.LogQuery{Newest: -1, Follow: true}, client.Lines{Line: func(l *v3.Line) error {
		if l.Source != "RTR" {
			t.keep(a.Name, lineText(l))
		}
		if t.show != nil && l.Source != "STG" { // push shows the output of staging
			t.show(a.Name, l)
		}
		return nil
	}}) // stops with ctx, or with the app
}

func (t *tail) keep(app, line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last[app] = newest(append(t.last[app], line))
}

func newest(lines []string) []string { return lines[max(0, len(lines)-tailLines):] }

// end stops following, and reads the newest lines from the log, because the last lines
// could be missing. If the daemon does not respond, the received lines remain.
func (t *tail) end(ctx context.Context) {
	t.stop()
	t.all.Wait()
	apps, _ := t.client.Apps().ListIn(ctx, t.space)
	for _, a := range apps {
		var lines []string
		err := t.client.Logs().Stream(ctx, a.GUID, client.LogQuery{Newest: 10 * tailLines}, client.Lines{Line: func(l *v3.Line) error {
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

// text returns the newest lines of every app.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, app := range sortedKeys(t.last) {
		fmt.Fprintf(&b, "== the last lines of %s\n%s\n", app, strings.Join(t.last[app], "\n"))
	}
	return b.String()
}

// lineText returns a line in the format of dew logs.
func lineText(l *v3.Line) string {
	return fmt.Sprintf("%s [%s/%d] %s %s", l.Time.UTC().Format("2006-01-02T15:04:05.000Z07:00"), l.Source, l.Index, l.Stream, l.Text)
}
