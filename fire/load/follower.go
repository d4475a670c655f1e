package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/fire/world"
	"github.com/dewrun/dew/logstream"
)

// exitLine is the beginning of the line that an exit record adds to the log.
const exitLine = "App instance exited"

// Follower reads the log of one app from its first line, and checks the numbers of the
// lines as they arrive. It is safe for concurrent use.
type Follower struct {
	app    App
	ledger *Ledger
	stored bool // it reads an old log, whose first lines dewd can have deleted

	mu       sync.Mutex
	place    client.LogPlace
	last     map[Printer]int // number of the newest line
	exits    map[string]int  // exit lines by instance
	problems []string
	lines    int
	numbered int  // lines of the app's processes
	pruned   bool // the log began with a later line, because dewd deletes old ones
}

// NewFollower returns a follower that has read nothing yet.
func NewFollower(a App, l *Ledger) *Follower {
	return &Follower{app: a, ledger: l, last: map[Printer]int{}, exits: map[string]int{}}
}

// NewReader returns a follower for ReadAll.
func NewReader(a App, l *Ledger) *Follower {
	f := NewFollower(a, l)
	f.stored = true
	return f
}

// App is the name of the app.
func (f *Follower) App() string { return f.app.Name }

// Follow reads lines until ctx is done. It connects again after every failure.
func (f *Follower) Follow(ctx context.Context, w *world.World) {
	for ctx.Err() == nil {
		err := f.stream(ctx, w, true)
		if err == nil || ctx.Err() != nil {
			continue
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// ReadAll reads the stored log from its oldest line to its end.
func (f *Follower) ReadAll(ctx context.Context, w *world.World) error { return f.stream(ctx, w, false) }

func (f *Follower) stream(ctx context.Context, w *world.World, follow bool) error {
	f.mu.Lock()
	place := f.place
	f.mu.Unlock()
	q := client.LogQuery{Newest: -1, Follow: follow, Place: &place}
	return w.Client.Logs().Stream(ctx, f.app.GUID, q, client.Lines{Line: f.line})
}

// line checks one line.
func (f *Follower) line(l *v3.Line) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stored && f.lines == 0 && l.Seq > 1 {
		f.pruned = true
	} else if l.Seq != f.place.Seq+1 {
		f.problem("line %d follows line %d", l.Seq, f.place.Seq)
	}
	f.place = client.LogPlace{Seq: l.Seq, Known: true}
	f.lines++
	if l.Lost != nil {
		f.gap(l)
		return nil
	}
	text := string(l.Text)
	if strings.HasPrefix(text, exitLine) {
		_, rest, _ := strings.Cut(text, `"instance":"`)
		id, _, _ := strings.Cut(rest, `"`)
		f.exits[id]++
		return nil
	}
	if p, n, ok := numbered(text); ok {
		f.numbered++
		f.number(p, n)
	} else if l.Stream == "OUT" && strings.HasPrefix(l.Source, "APP/PROC/") {
		f.unknown(l)
	}
	return nil
}

// unknown reports a line that no process can have printed. An instance that cannot write
// its output can have one.
func (f *Follower) unknown(l *v3.Line) {
	if !f.ledger.Endings()[l.Instance].LosesOutput {
		f.problem("line %d of instance %s has %d bytes and no number: %q", l.Seq, l.Instance, len(l.Text), l.Text[:min(len(l.Text), 200)])
	}
}

// gap checks a gap record. Only an instance whose shim was killed can have one. dewd also
// counts the old lines that it has deleted; if a follower misses one of them, the numbers
// have a hole.
func (f *Follower) gap(l *v3.Line) {
	if l.Lost.Cause != logstream.LostRetention && !f.ledger.Endings()[l.Instance].LosesOutput {
		f.problem("line %d: %d lines of instance %s are lost: %s", l.Seq, l.Lost.Lines, l.Instance, l.Lost.Cause)
	}
}

// numbered reads a line of the counter: role, instance, number.
func numbered(text string) (Printer, int, bool) {
	fields := strings.Fields(text)
	if len(fields) < 3 || fields[0] != "main" && fields[0] != "sidecar" {
		return Printer{}, 0, false
	}
	n, err := strconv.Atoi(fields[2])
	return Printer{fields[1], fields[0]}, n, err == nil
}

// number checks the number of a line against the line before it.
func (f *Follower) number(p Printer, n int) {
	last, known := f.last[p]
	if want := last + 1; n != want && (known || !f.pruned) {
		if f.cut(p, n, want) {
			return
		}
		f.problem("%s of instance %s printed line %d after line %d", p.Role, p.Instance, n, want-1)
	}
	f.last[p] = n
}

// cut reports whether a line is the beginning of the wanted one, because its instance
// could not write the rest.
func (f *Follower) cut(p Printer, n, want int) bool {
	return f.ledger.Endings()[p.Instance].LosesOutput && strings.HasPrefix(strconv.Itoa(want), strconv.Itoa(n))
}

func (f *Follower) problem(format string, args ...any) {
	const most = 20
	if len(f.problems) < most {
		f.problems = append(f.problems, f.app.Name+": "+fmt.Sprintf(format, args...))
	}
}

// Problems returns the violations so far.
func (f *Follower) Problems() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.problems...)
}

// Exits returns the number of exit lines by instance.
func (f *Follower) Exits() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.exits)
}

// Lines returns the number of lines so far.
func (f *Follower) Lines() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lines
}

// Numbered returns the number of lines that the app's processes printed.
func (f *Follower) Numbered() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.numbered
}

// Missing returns an error if lines are missing that processes reported to have printed.
func (f *Follower) Missing(printed map[Printer]int) error {
	endings := f.ledger.Endings()
	slots := f.ledger.Seen()
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for p, n := range printed {
		if slots[p.Instance].App != f.app.Name || endings[p.Instance].LosesOutput {
			continue
		}
		if last, known := f.last[p]; last < n && (known || !f.pruned) {
			errs = append(errs, fmt.Errorf("%s: %s of instance %s printed %d lines, and the log has %d", f.app.Name, p.Role, p.Instance, n, last))
		}
	}
	return errors.Join(errs...)
}
