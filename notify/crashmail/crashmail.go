// Package crashmail notifies the users of a space that one of its apps crashed.
package crashmail

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/notify"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/store"
)

// KindCrash is the kind of crash notifications, which dew itself sends.
const KindCrash = "crash"

// Kinds returns the kinds that dew itself sends, for Server.Register.
func Kinds() []notify.Kind {
	return []notify.Kind{{Client: notify.PlatformClient, ID: KindCrash, Description: "An instance of an app crashed"}}
}

// Crash describes a crashed instance.
type Crash struct {
	App         string // guid
	Instance    string // id
	Type        string // of the process
	Index       int
	Description string // APP/PROC/WEB: Exited with status 1
	Sentence    string // the explanation; can be empty
	Count       int    // in a row
	At          time.Time
	NextStart   time.Time
	GivenUp     bool
}

// Crashes notifies the users of an app's space that it crashed, if that is enabled for
// the app.
type Crashes struct {
	db        *store.DB
	watched   store.Bucket[watched]
	registry  *registry.Registry
	directory delivery.Directory
	queue     *delivery.Queue
	log       *slog.Logger
	pending   chan Crash
}

// watched is an app with crash notifications.
type watched struct {
	App   string    `json:"app"`
	Since time.Time `json:"since"`
	// Reported lists the instances whose crash was already reported, newest last,
	// because crash records can arrive more than once.
	Reported []string `json:"told,omitempty"`
}

const (
	maxReported = 100 // the maximum number of records of a slot
	maxPending  = 256 // crashes that wait to be reported
)

// New returns the Crashes with the settings stored in db.
func New(db *store.DB, reg *registry.Registry, directory delivery.Directory, queue *delivery.Queue, log *slog.Logger) *Crashes {
	return &Crashes{
		db: db, watched: store.In[watched](db, "crash mails"), registry: reg, directory: directory, queue: queue, log: log,
		pending: make(chan Crash, maxPending),
	}
}

// Enabled reports whether crash notifications are enabled for an app.
func (c *Crashes) Enabled(guid string) (bool, error) {
	_, err := c.watched.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read the crash notification setting of app %s: %w", guid, err)
	}
	return true, nil
}

// Set enables or disables crash notifications of an app.
func (c *Crashes) Set(guid string, enabled bool) error {
	err := c.db.Update(func(tx *store.Tx) error {
		ws := c.watched.With(tx)
		if !enabled {
			return ws.Delete(guid)
		}
		if _, err := ws.Get(guid); !errors.Is(err, store.ErrNotFound) {
			return err // already enabled
		}
		return ws.Put(guid, watched{App: guid, Since: time.Now()})
	})
	if err != nil {
		return fmt.Errorf("cannot store the crash notification setting of app %s: %w", guid, err)
	}
	return nil
}

// Enqueue queues a crash. It never blocks: if too many crashes arrive at once, it drops
// some.
func (c *Crashes) Enqueue(crash Crash) {
	select {
	case c.pending <- crash:
	default:
		c.log.Warn("too many crashes at the same time; no mail is sent about this crash", "app", crash.App, "instance", crash.Instance)
	}
}

// Run sends notifications about crashes until ctx is cancelled.
func (c *Crashes) Run(ctx context.Context) error {
	for {
		select {
		case crash := <-c.pending:
			if err := c.notify(ctx, crash); err != nil && ctx.Err() == nil {
				c.log.Error("cannot send mails about a crash", "app", crash.App, "instance", crash.Instance, "err", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// recipients returns the users of a space, or the administrators if the space has no
// users. A machine with a single user has no roles.
func (c *Crashes) recipients(ctx context.Context, space delivery.Audience) (people []delivery.Person, err error) {
	for p, err := range space.People {
		if err != nil {
			return nil, err
		}
		people = append(people, p)
	}
	if len(people) > 0 {
		return people, nil
	}
	admins, err := c.directory.WithScope(ctx, auth.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	for p, err := range admins.People {
		if err != nil {
			return nil, err
		}
		people = append(people, p)
	}
	return people, nil
}

// shouldNotify selects crashes of a crash loop: the 1st, 2nd, 4th, 8th, ... in a row,
// and the last.
func shouldNotify(c Crash) bool {
	return c.GivenUp || c.Count&(c.Count-1) == 0
}

// notify enqueues the mails about a crash, once.
func (c *Crashes) notify(ctx context.Context, crash Crash) error {
	if on, err := c.Enabled(crash.App); err != nil || !on || !shouldNotify(crash) {
		return err
	}
	a, err := c.registry.App(crash.App)
	if errors.Is(err, app.ErrNotFound) {
		return c.watched.Delete(crash.App)
	}
	if err != nil {
		return err
	}
	audience, err := c.directory.InSpace(ctx, a.Space)
	if err != nil {
		return err
	}
	people, err := c.recipients(ctx, audience)
	if err != nil {
		return err
	}
	n := crashNotice(a, crash)
	n.Space, n.Org = audience.Space, audience.Org
	return c.db.Update(func(tx *store.Tx) error {
		w, err := c.watched.With(tx).Get(crash.App)
		if errors.Is(err, store.ErrNotFound) || err == nil && (crash.At.Before(w.Since) || slices.Contains(w.Reported, crash.Instance)) {
			return nil
		}
		if err != nil {
			return err
		}
		w.Reported = append(w.Reported, crash.Instance)
		w.Reported = w.Reported[max(0, len(w.Reported)-maxReported):]
		if err := c.watched.With(tx).Put(crash.App, w); err != nil {
			return err
		}
		_, err = c.queue.EnqueueIn(tx, n, people)
		return err
	})
}

func crashNotice(a app.App, c Crash) delivery.Notice {
	next := "dew starts another instance immediately."
	switch {
	case c.GivenUp:
		next = "dew does not start the instance again, because it crashed too often. To start it again, run: dew restart " + a.Name
	case c.NextStart.After(c.At.Add(time.Second)):
		next = "dew starts another instance at " + c.NextStart.UTC().Format(time.RFC3339) + "."
	}
	cause := c.Description
	if c.Sentence != "" {
		cause = c.Sentence + "\n(" + c.Description + ")"
	}
	text := fmt.Sprintf("Instance %d of process %s of app %s crashed at %s, for the %s time in a row:\n\n%s\n\n%s\n\nFor details and what to do, run: dew why %s\n",
		c.Index, c.Type, a.Name, c.At.UTC().Format(time.RFC3339), ordinal(c.Count), cause, next, a.Name)
	return delivery.Notice{
		Version: delivery.V1, Client: notify.PlatformClient, SourceDescription: "dew", Kind: KindCrash, KindDescription: Kinds()[0].Description,
		Subject: "App " + a.Name + " crashed", Text: text, Endorsement: notify.EndorseSpace, Received: time.Now(),
	}
}

// ordinal returns 1st, 2nd, 3rd, 4th and so on.
func ordinal(n int) string {
	ending := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			ending = "st"
		case 2:
			ending = "nd"
		case 3:
			ending = "rd"
		}
	}
	return strconv.Itoa(n) + ending
}
