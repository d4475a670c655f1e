package drain

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dewrun/dew/egress"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/store"
)

// Config configures Drains.
type Config struct {
	DB   *store.DB
	Logs *logstream.Logs
	// Targets returns the desired drains.
	Targets func() ([]Target, error)
	// Host returns the host name of an app for its lines: org.space.app.
	Host  func(app string) string
	Roots *x509.CertPool // to verify certificates (nil: the system's)
	// Egress limits the addresses of the receivers of restricted targets.
	Egress egress.Policy
	Logger *slog.Logger
}

// Stats are the statistics of a drain since the daemon started.
type Stats struct {
	App, Name string
	Connected bool
	Sent      uint64 // lines that the receiver has
	Repeated  uint64 // lines that it may have twice because a connection broke
	Refused   uint64 // lines that it refused with 4xx
	Dropped   uint64 // lines that the retention dropped before they were sent
	Err       string // the reason if it is not connected
}

// Drains sends log lines. Create it with New.
type Drains struct {
	c         Config
	positions store.Bucket[position]
	wake      chan struct{} // capacity 1
	retry     time.Duration // the first wait after a failure
	rest      time.Duration // settled, except in tests

	mu        sync.Mutex // guards followers
	followers map[string]*follower
}

// position is the position of a receiver in the log.
type position struct {
	Key  string `json:"key"`
	Next uint64 `json:"next"` // number of the first line that it does not have
}

// reloadInterval is how often the targets are read if no change is reported.
const reloadInterval = time.Minute

// New returns Drains. It sends nothing before Run.
func New(c Config) *Drains {
	return &Drains{c: c, positions: store.In[position](c.DB, "drains"), wake: make(chan struct{}, 1), retry: time.Second, rest: settled, followers: map[string]*follower{}}
}

// Changed reports that the targets may have changed. It never blocks.
func (d *Drains) Changed() {
	select {
	case d.wake <- struct{}{}:
	default: // already pending
	}
}

// Stats returns the statistics of all drains.
func (d *Drains) Stats() []Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Stats
	for _, f := range d.followers {
		out = append(out, f.status())
	}
	return out
}

// Run sends lines until ctx is cancelled.
func (d *Drains) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	again := time.NewTicker(reloadInterval)
	defer again.Stop()
	for {
		if err := d.sync(ctx, &running); err != nil && ctx.Err() == nil {
			d.c.Logger.Error("cannot list the log drains", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		case <-again.C:
		}
	}
}

// sync starts new drains and stops deleted ones.
func (d *Drains) sync(ctx context.Context, running *sync.WaitGroup) error {
	targets, err := d.c.Targets()
	if err != nil {
		return err
	}
	wanted := make(map[string]Target, len(targets))
	for _, t := range targets {
		if known, ok := wanted[t.key()]; ok && !known.Restricted {
			continue // set by an administrator: the lines are sent there in any case
		}
		wanted[t.key()] = t
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, f := range d.followers {
		if t, ok := wanted[key]; ok && t.Restricted == f.target.Restricted {
			f.reload(t.TLS)
			continue
		}
		f.end()
		delete(d.followers, key)
	}
	for key, t := range wanted {
		if d.followers[key] != nil {
			continue
		}
		f, err := d.follow(ctx, t)
		if err != nil {
			d.c.Logger.Error("cannot start a log drain", "app", t.App, "drain", t.Name, "err", err)
			continue
		}
		d.followers[key] = f
		running.Go(f.run)
	}
	return d.deletePositions(wanted)
}

// deletePositions deletes the positions of deleted drains. A drain that is created again starts
// with new lines.
func (d *Drains) deletePositions(wanted map[string]Target) error {
	all, err := d.positions.All()
	if err != nil {
		return err
	}
	for _, m := range all {
		if _, ok := wanted[m.Key]; ok {
			continue
		}
		if err := d.positions.Delete(m.Key); err != nil {
			return err
		}
	}
	return nil
}

// follow returns the follower of a target, at the position of the last one.
func (d *Drains) follow(ctx context.Context, t Target) (*follower, error) {
	u, err := parseURL(t.URL)
	if err != nil {
		return nil, err
	}
	log, err := d.c.Logs.App(t.App)
	if err != nil {
		return nil, fmt.Errorf("cannot read the app's log: %w", err)
	}
	next := log.LastSeq() + 1
	kept, err := d.positions.Get(t.key())
	switch {
	case err == nil:
		next = min(next, kept.Next) // a log that was deleted and created again has smaller numbers
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	default:
		// Store it at once: the next daemon must know the start even if this one exits
		// now.
		if err := d.positions.Put(t.key(), position{Key: t.key(), Next: next}); err != nil {
			return nil, err
		}
	}
	f := &follower{d: d, target: t, url: u, log: log, next: next, reconnect: make(chan struct{}, 1), tls: t.TLS}
	f.ctx, f.end = context.WithCancel(ctx)
	return f, nil
}
