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

// Config is what Drains need.
type Config struct {
	DB   *store.DB
	Logs *logstream.Logs
	// Targets are the drains that there should be.
	Targets func() ([]Target, error)
	// Host is what stands for an app as the host of its lines: org.space.app.
	Host  func(app string) string
	Roots *x509.CertPool // that certificates are checked with; nil: the system's
	// Egress decides where the receivers of restricted targets may be.
	Egress egress.Policy
	Logger *slog.Logger
}

// Stats is how a drain does, since the daemon started.
type Stats struct {
	App, Name string
	Connected bool
	Sent      uint64 // lines that the receiver has
	Repeated  uint64 // lines that it may have twice, because a connection broke off
	Refused   uint64 // lines that it did not want: answers 4xx
	Dropped   uint64 // lines that the retention dropped before they were sent
	Err       string // why it is not connected
}

// Drains send lines. Make them with New.
type Drains struct {
	c      Config
	places *store.Bucket[mark]
	wake   chan struct{} // holds one
	retry  time.Duration // the first wait after a failure
	rest   time.Duration // settled, but for tests

	mu        sync.Mutex // guards followers
	followers map[string]*follower
}

// mark is how far the receiver of a drain has the log.
type mark struct {
	Key  string `json:"key"`
	Next uint64 `json:"next"` // number of the first line that it has not
}

// lookAgain is how often the targets are read, should nobody have told of a change.
const lookAgain = time.Minute

// New makes Drains. Nothing is sent before Run.
func New(c Config) *Drains {
	return &Drains{c: c, places: store.In[mark](c.DB, "drains"), wake: make(chan struct{}, 1), retry: time.Second, rest: settled, followers: map[string]*follower{}}
}

// Changed says that the targets may be others now. It never waits.
func (d *Drains) Changed() {
	select {
	case d.wake <- struct{}{}:
	default: // it is known already
	}
}

// Stats tells how all drains do.
func (d *Drains) Stats() []Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Stats
	for _, f := range d.followers {
		out = append(out, f.status())
	}
	return out
}

// Run sends until ctx ends.
func (d *Drains) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		if err := d.sync(ctx, &running); err != nil && ctx.Err() == nil {
			d.c.Logger.Error("cannot read which drains there are", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		case <-again.C:
		}
	}
}

// sync begins the drains that are new and ends those that are no more.
func (d *Drains) sync(ctx context.Context, running *sync.WaitGroup) error {
	targets, err := d.c.Targets()
	if err != nil {
		return err
	}
	wanted := make(map[string]Target, len(targets))
	for _, t := range targets {
		if known, ok := wanted[t.key()]; ok && !known.Restricted {
			continue // an administrator's: the lines go there anyway
		}
		wanted[t.key()] = t
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, f := range d.followers {
		if t, ok := wanted[key]; ok && t.Restricted == f.target.Restricted {
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
			d.c.Logger.Error("cannot begin a drain", "app", t.App, "drain", t.Name, "err", err)
			continue
		}
		d.followers[key] = f
		running.Go(f.run)
	}
	return d.forget(wanted)
}

// forget drops the places of drains that are no more. A drain that comes back
// begins with what is printed then.
func (d *Drains) forget(wanted map[string]Target) error {
	all, err := d.places.All()
	if err != nil {
		return err
	}
	for _, m := range all {
		if _, ok := wanted[m.Key]; ok {
			continue
		}
		if err := d.places.Delete(m.Key); err != nil {
			return err
		}
	}
	return nil
}

// follow makes the follower of a target, at the place where the last one was.
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
	kept, err := d.places.Get(t.key())
	switch {
	case err == nil:
		next = min(next, kept.Next) // a log that began anew has smaller numbers
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	default:
		// Kept at once: a daemon that ends now must not forget where it began.
		if err := d.places.Put(t.key(), mark{Key: t.key(), Next: next}); err != nil {
			return nil, err
		}
	}
	f := &follower{d: d, target: t, url: u, log: log, next: next}
	f.ctx, f.end = context.WithCancel(ctx)
	return f, nil
}
