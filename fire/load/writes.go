package load

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dewrun/dew/fire/world"
)

// Value is a value that was written through the API.
type Value struct {
	Acknowledged string   // newest value with an answer
	Pending      []string // values after it, without an answer
}

// label is the label that Writes changes. A new value changes nothing that runs.
const label = "fire"

// writeTimeout limits one write.
const writeTimeout = 10 * time.Second

// Writes changes a label of an app until ctx is done, and notes what dewd has
// acknowledged.
func Writes(ctx context.Context, w *world.World, l *Ledger, a App) {
	const every = 300 * time.Millisecond
	for n := 1; ; n++ {
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return
		}
		value := strconv.Itoa(n)
		l.write(a.Name, value, func() error {
			ctx, cancel := context.WithTimeout(ctx, writeTimeout)
			defer cancel()
			return w.Client.Daemon().SetLabels(ctx, "/v3/apps/"+a.GUID, map[string]*string{label: &value})
		})
	}
}

// write notes a value before it is written, and its acknowledgement.
func (l *Ledger) write(name, value string, put func() error) {
	l.mu.Lock()
	v := l.values[name]
	v.Pending = append(v.Pending, value)
	l.values[name] = v
	l.mu.Unlock()
	if err := put(); err != nil {
		l.Count("writes failed", 1)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values[name] = Value{Acknowledged: value}
	l.counts["writes"]++
}

// Values returns the newest values by app.
func (l *Ledger) Values() map[string]Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]Value{}
	for name, v := range l.values {
		out[name] = Value{v.Acknowledged, slices.Clone(v.Pending)}
	}
	return out
}

// Written compares the value that a dewd has with one that was noted before the read. A
// write without an answer can have happened or not.
func Written(ctx context.Context, w *world.World, a App, noted Value, after func() Value) error {
	labels, err := w.Client.Daemon().Labels(ctx, "/v3/apps/"+a.GUID)
	if err != nil {
		return err
	}
	got := ""
	if v := labels[label]; v != nil {
		got = *v
	}
	later := after()
	if got == noted.Acknowledged || got == later.Acknowledged || slices.Contains(noted.Pending, got) || slices.Contains(later.Pending, got) {
		return nil
	}
	// The load wrote several values between the two notes.
	n, err := strconv.Atoi(got)
	low, _ := strconv.Atoi(noted.Acknowledged) // empty before the first acknowledgement
	high, _ := strconv.Atoi(later.Acknowledged)
	if err == nil && low < n && n <= high {
		return nil
	}
	return fmt.Errorf("%s has the value %q, and dewd acknowledged %q", a.Name, got, noted.Acknowledged)
}

// Spaces creates spaces until ctx is done, and notes their names.
func Spaces(ctx context.Context, w *world.World, l *Ledger, org string) {
	const every = 2 * time.Second
	for n := 1; ; n++ {
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return
		}
		name := fmt.Sprintf("space-%04d", n)
		cctx, cancel := context.WithTimeout(ctx, writeTimeout)
		_, err := w.Client.Orgs().CreateSpace(cctx, org, name)
		cancel()
		if err == nil {
			l.mu.Lock()
			l.spaces = append(l.spaces, name)
			l.counts["writes"]++
			l.mu.Unlock()
		}
	}
}

// Spaces returns the names of the spaces that dewd has acknowledged.
func (l *Ledger) Spaces() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.spaces)
}
