package logs

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// appColours are the colours of app names, in the order of the apps. Cyan is for the
// platform.
var appColours = []string{console.Yellow, console.Green, "\x1b[35m", "\x1b[34m", "\x1b[96m", "\x1b[93m", "\x1b[92m", "\x1b[95m", "\x1b[94m"}

// appLog is one app whose lines are shown.
type appLog struct {
	guid, name, colour string
	place              client.LogPlace // the last line that was written
	next               chan *v3.Line   // its stored lines, in order
}

// appLogs writes the lines of several apps as one stream. It writes the stored
// lines in the order of their times; then it follows each app on its own.
//
// Only a few lines of each app are in memory at a time; the others wait in the daemon.
type appLogs struct {
	o       options
	api     *client.Client
	p       *linePrinter
	colours int // number of colours in use
}

func (s *appLogs) run(ctx context.Context, apps []v3.App) error {
	var logs []*appLog
	for _, a := range apps {
		logs = append(logs, s.join(a))
	}
	if len(logs) == 0 {
		s.p.say("There are no apps in this space")
	}
	logs, err := s.stored(ctx, logs)
	if err != nil || !s.o.Query.Follow {
		return err
	}
	if err := s.p.flush(); err != nil {
		return err
	}
	return s.follow(ctx, logs)
}

// join assigns a colour and a column to an app.
func (s *appLogs) join(a v3.App) *appLog {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	l := &appLog{guid: a.GUID, name: a.Name, colour: appColours[s.colours%len(appColours)], next: make(chan *v3.Line, 16)}
	s.colours++
	s.p.width = max(s.p.width, utf8.RuneCountInString(a.Name))
	return l
}

// stored writes the stored lines of all apps in the order of their times. It returns the
// apps that still exist.
func (s *appLogs) stored(ctx context.Context, logs []*appLog) ([]*appLog, error) {
	g, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex // guards left
	var left []*appLog
	for _, l := range logs {
		g.Go(func() error {
			defer close(l.next)
			err := s.readStored(ctx, l)
			if !isGone(err) {
				return err
			}
			s.p.say("%s", deletedText(l.name))
			mu.Lock()
			defer mu.Unlock()
			left = append(left, l)
			return nil
		})
	}
	g.Go(func() error { return s.merge(logs) })
	err := g.Wait()
	return slices.DeleteFunc(logs, func(l *appLog) bool { return slices.Contains(left, l) }), err
}

// readStored sends the stored lines of one app to merge.
func (s *appLogs) readStored(ctx context.Context, l *appLog) error {
	send := func(line *v3.Line) error {
		select {
		case l.next <- line:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var last []*v3.Line
	q := s.o.Query
	q.Follow, q.Place = false, &l.place
	err := s.api.Logs().Stream(ctx, l.guid, q, client.Lines{Line: func(line *v3.Line) error {
		if !s.o.matches(line) {
			return nil
		}
		kept := *line
		kept.Text = slices.Clone(line.Text)
		if s.o.Keep == 0 {
			return send(&kept)
		}
		last = append(last[max(0, len(last)+1-s.o.Keep):], &kept)
		return nil
	}})
	for _, line := range last {
		err = cmp.Or(err, send(line))
	}
	return err
}

// merge writes the lines of all apps in the order of their times.
func (s *appLogs) merge(logs []*appLog) error {
	var heads lineHeap
	for _, l := range logs {
		if line, ok := <-l.next; ok {
			heads = append(heads, head{l, line})
		}
	}
	heap.Init(&heads)
	for len(heads) > 0 {
		h := &heads[0]
		if err := s.p.line(h.of, h.line); err != nil {
			return err
		}
		if line, ok := <-h.of.next; ok {
			h.line = line
			heap.Fix(&heads, 0)
			continue
		}
		heap.Pop(&heads)
	}
	return nil
}

// head is the next line of an app.
type head struct {
	of   *appLog
	line *v3.Line
}

// lineHeap has the earliest line first.
type lineHeap []head

func (h lineHeap) Len() int           { return len(h) }
func (h lineHeap) Less(i, j int) bool { return h[i].line.Time.Before(h[j].line.Time) }
func (h lineHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push adds a head. It is part of heap.Interface.
func (h *lineHeap) Push(x any) {
	if one, ok := x.(head); ok {
		*h = append(*h, one)
	}
}

// Pop removes the last head.
func (h *lineHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// follow writes new lines of all apps as they arrive, until ctx is done or all apps are
// deleted.
func (s *appLogs) follow(ctx context.Context, logs []*appLog) error {
	g, ctx := errgroup.WithContext(ctx)
	follow := func(l *appLog) {
		g.Go(func() error {
			q := s.o.Query
			q.Place = &l.place
			if q.Newest = -1; !q.Since.IsZero() || q.SinceLastStart {
				q.Since, q.SinceLastStart = time.Time{}, false // the position already implies them
			}
			err := s.api.Logs().Stream(ctx, l.guid, q, client.Lines{Flush: s.p.flush, Line: func(line *v3.Line) error {
				if !s.o.matches(line) {
					return nil
				}
				return s.p.line(l, line)
			}})
			if isGone(err) {
				s.p.say("%s", deletedText(l.name))
				return nil
			}
			return err
		})
	}
	for _, l := range logs {
		follow(l)
	}
	if s.o.All {
		g.Go(func() error { return s.watchSpace(ctx, logs, follow) })
	}
	return g.Wait()
}

const (
	lookForApps = time.Second     // between two requests for the apps of a space
	lostSpace   = 2 * time.Minute // how long dewd can be unreachable, as for a stream
)

// watchSpace follows apps that are created later.
func (s *appLogs) watchSpace(ctx context.Context, logs []*appLog, follow func(*appLog)) error {
	known := map[string]bool{}
	for _, l := range logs {
		known[l.guid] = true
	}
	look := time.NewTicker(lookForApps)
	defer look.Stop()
	for answered := time.Now(); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		apps, err := s.api.Apps().List(ctx)
		away := (*client.Unreachable)(nil)
		switch {
		case err == nil:
			answered = time.Now()
		case !errors.As(err, &away) || time.Since(answered) > lostSpace:
			return err
		}
		for _, a := range apps {
			if !known[a.GUID] {
				known[a.GUID] = true
				follow(s.join(a))
			}
		}
	}
}

// isGone reports whether an app does not exist any more, or the user cannot see it.
func isGone(err error) bool {
	e := (*client.Error)(nil)
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

func deletedText(name string) string {
	return fmt.Sprintf("App %s was deleted, or you can no longer see it", name)
}

// oneNotice prints once that dewd is unreachable and once that it is back, even if many
// streams report it.
func oneNotice(p *linePrinter) func(text string) {
	var mu sync.Mutex
	away := false
	return func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if back := text == client.NoticeBack; back == away {
			away = !back
			p.say("%s", text)
		}
	}
}
