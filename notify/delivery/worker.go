package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of Compose and Send for messages that must not be sent again. After any other
// error, the Courier tries again.
var (
	// ErrUnsubscribed means that the recipient has unsubscribed.
	ErrUnsubscribed = errors.New("the recipient has unsubscribed")
	// ErrUndeliverable means that the recipient has no address.
	ErrUndeliverable = errors.New("the recipient has no email address")
	// ErrRefused means that the mail server will never accept the mail.
	ErrRefused = errors.New("the mail server refused the mail")
)

// ErrUnanswered means that the mail server got the whole mail, but its answer is not
// known. The Courier tries again, so the mail can arrive twice.
var ErrUnanswered = errors.New("the mail server may have accepted the mail")

// Composer checks a message at its delivery and renders the mail. notify.Server
// implements it.
type Composer interface {
	// Compose returns the mail of a message: the rendered template with To, ReplyTo,
	// Subject, Text and HTML. The Courier adds the rest. m.Email is set if an address
	// is known. It returns ErrUnsubscribed or ErrUndeliverable if there is nothing to
	// send.
	Compose(ctx context.Context, m Message, n Notice) (Mail, error)
}

// Mailer sends mails. It is implemented by smtp.Client and inbox.Inbox. Send returns
// ErrUndeliverable or ErrRefused for a mail that can never be sent.
type Mailer interface {
	Send(ctx context.Context, m Mail) error
}

// CourierConfig configures a Courier.
type CourierConfig struct {
	Queue     *Queue
	Directory Directory
	Composer  Composer
	Mailer    Mailer
	From      string // sender of mails without a From address
	Workers   int    // 0: DefaultWorkers
	// Journal is the file that records mails while they are handed over. If it is empty,
	// more mails are sent twice after a crash.
	Journal string
	Metrics *Metrics // nil: deliveries are not counted
	Logger  *slog.Logger
}

const (
	// DefaultWorkers is how many mails are sent at the same time.
	DefaultWorkers = 10
	// sweepEvery is how often old messages are dropped.
	sweepEvery = time.Hour
	// settleRetry is the time until a failed write to the store is repeated.
	settleRetry = time.Second
	// courierGrace is how long a mail that is being sent can take when the daemon
	// exits. An aborted mail is sent again.
	courierGrace = 3 * time.Second
	// maxReady is the number of messages that are read before a worker is free.
	maxReady = 20
)

// Courier sends the messages of the Queue through the Mailer, and retries those that
// failed.
//
//	Queue ─ due ─▶ Run ─ slot ─▶ deliver (several) ─ done ─▶ Run ─ settle ─▶ Queue
//
// Only Run knows which messages are under way. If the daemon is killed while the answer
// of the mail server is awaited, the message is sent again: at least once, never lost.
type Courier struct {
	c       CourierConfig
	slow    *slowMails
	journal *journal               // of the current Run; nil: none
	last    atomic.Pointer[Notice] // the next message usually has the same notice

	stalledSince atomic.Pointer[time.Time] // see StalledSince
}

// NewCourier creates a Courier.
func NewCourier(c CourierConfig) (*Courier, error) {
	for name, missing := range map[string]bool{
		"Queue": c.Queue == nil, "Directory": c.Directory == nil, "Composer": c.Composer == nil, "Post": c.Mailer == nil,
		"From": c.From == "", "Logger": c.Logger == nil,
	} {
		if missing {
			return nil, fmt.Errorf("cannot create the courier without %s", name)
		}
	}
	if c.Workers <= 0 {
		c.Workers = DefaultWorkers
	}
	return &Courier{c: c, slow: newSlowMails()}, nil
}

// runState is the state of Run.
type runState struct {
	*Courier
	slots    chan struct{} // has an element for every worker that is busy
	attempts sync.WaitGroup
	done     chan Outcome
	underWay map[string]bool
	ready    []string            // due, not yet given to a worker
	parked   map[string][]string // due, but their domain is slow; by domain
	nParked  int
	settling []Outcome // results to record
	checkDue bool      // a message may be due
	waiting  bool      // the store failed: wait for the alarm
	timer    *time.Timer

	lastEnded   time.Time // when a message ended, or the queue was empty
	lastProblem error     // of the last attempt that failed
}

// Run delivers messages until ctx is cancelled. If a message under way is not finished
// in time, the next Run delivers it again.
func (c *Courier) Run(ctx context.Context) error {
	if err := c.openJournal(); err != nil {
		return err
	}
	r := &runState{
		Courier: c, checkDue: true, underWay: map[string]bool{}, parked: map[string][]string{}, timer: time.NewTimer(settleRetry),
		slots: make(chan struct{}, c.c.Workers),
		// The buffer holds everything under way, so no attempt ever blocks.
		done: make(chan Outcome, c.c.Workers+maxSlow+maxReady),
	}
	defer r.timer.Stop()
	// A mail that is being sent can finish after ctx is cancelled.
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(courierGrace, cancel) })
	defer stop()
	sweep, check := time.NewTicker(sweepEvery), time.NewTicker(checkEvery)
	defer sweep.Stop()
	defer check.Stop()
	r.lastEnded = time.Now()
	for ctx.Err() == nil {
		r.step(ctx, sending, sweep.C, check.C)
	}
	r.attempts.Wait()
	close(r.done)
	for o := range r.done {
		r.collect(o)
	}
	return errors.Join(r.record(), c.closeJournal())
}

// step waits for one event.
func (r *runState) step(ctx, sending context.Context, sweep, check <-chan time.Time) {
	if !r.waiting {
		r.settle()
		r.readDue()
	}
	var slot chan<- struct{}
	if len(r.ready) > 0 {
		slot = r.slots
	}
	select {
	case slot <- struct{}{}:
		r.start(sending, r.ready[0])
		r.ready = r.ready[1:]
	case o := <-r.done:
		r.collect(o)
		for len(r.done) > 0 {
			r.collect(<-r.done)
		}
	case <-r.c.Queue.wake:
		r.checkDue = true
	case <-r.timer.C:
		r.checkDue, r.waiting = true, false
	case <-sweep:
		if err := r.c.Queue.Sweep(time.Now().Add(-EndedRetention)); err != nil {
			r.c.Logger.Error("cannot delete old notification messages", "err", err)
		}
	case <-check:
		r.checkQueue()
	case <-ctx.Done():
	}
}

// collect takes the outcome of an attempt.
func (r *runState) collect(o Outcome) {
	if o.parked && !r.slow.busy(o.domain) {
		r.ready = append(r.ready, o.Message) // in the meantime it can be tried
		return
	}
	if o.parked && r.nParked < maxParked {
		r.parked[o.domain] = append(r.parked[o.domain], o.Message)
		r.nParked++
		r.checkDue = true // there is room for another one
		return
	}
	if o.parked {
		o.Postponed = true
	}
	r.settling = append(r.settling, o)
	if ids := r.parked[o.domain]; len(ids) > 0 && !o.parked {
		r.ready = append(r.ready, ids[0])
		r.nParked--
		if r.parked[o.domain] = ids[1:]; len(ids) == 1 {
			delete(r.parked, o.domain)
		}
	}
}

// settle records the results. While the store fails, no more messages are given to
// workers: they would be sent again and again.
func (r *runState) settle() {
	if err := r.record(); err != nil {
		r.c.Logger.Error("cannot store delivery results; dewd tries again", "messages", len(r.settling), "err", err)
		r.sleep(settleRetry)
	}
}

// record stores the results, if there are any.
func (r *runState) record() error {
	if len(r.settling) == 0 {
		return nil
	}
	if err := r.c.Queue.Settle(r.settling, time.Now()); err != nil {
		return err
	}
	ids := make([]string, len(r.settling))
	for i, o := range r.settling {
		ids[i] = o.Message
		delete(r.underWay, o.Message)
	}
	if r.journal != nil {
		if err := r.journal.forget(ids); err != nil {
			r.c.Logger.Error("cannot clean up the list of mails that are being sent", "err", err)
		}
	}
	r.logFailures()
	r.observe(r.settling)
	r.settling, r.checkDue = nil, true
	return nil
}

// logFailures logs the messages that were not delivered, with the last reason.
func (r *runState) logFailures() {
	var retried, refused int
	var again, final error
	for _, o := range r.settling {
		switch {
		case o.Postponed:
		case !o.Status.Ended():
			retried++
			again = o.Problem
		case o.Status == Failed:
			refused++
			final = o.Problem
		}
	}
	if retried > 0 {
		r.c.Logger.Warn("cannot deliver messages; dewd tries again later", "messages", retried, "err", again)
	}
	if refused > 0 {
		r.c.Logger.Warn("messages were refused; dewd does not try again", "messages", refused, "err", final)
	}
}

func (r *runState) sleep(d time.Duration) {
	r.waiting = true
	r.timer.Reset(d)
}

// readDue reads the messages that are due, and sets the alarm for the next one.
func (r *runState) readDue() {
	if !r.checkDue || r.waiting || len(r.ready) > 0 {
		return
	}
	r.checkDue = false
	capacity := cap(r.done) - (len(r.underWay) - r.nParked)
	if capacity <= 0 {
		return // it looks again when one of them is done
	}
	ids, later, err := r.c.Queue.Next(time.Now(), capacity, r.underWay)
	if err != nil {
		r.c.Logger.Error("cannot read the queue of messages", "err", err)
		r.sleep(settleRetry)
		return
	}
	for _, id := range ids {
		r.underWay[id] = true
	}
	r.ready = ids
	if len(ids) == 0 && !later.IsZero() {
		r.timer.Reset(time.Until(later))
	}
}

// start makes one attempt in the background. Its slot is free again when the attempt
// has ended, or has become slow.
func (r *runState) start(sending context.Context, id string) {
	r.attempts.Go(func() {
		release := sync.OnceFunc(func() { <-r.slots })
		defer release()
		o := r.attempt(sending, id, release)
		if sending.Err() != nil && !o.Status.Ended() {
			return // left for the next Run
		}
		r.done <- o
	})
}

// attempt tries to deliver one message. A panic in a template fails only this attempt,
// not the daemon.
func (c *Courier) attempt(ctx context.Context, id string, release func()) (o Outcome) {
	defer func() {
		if p := recover(); p != nil {
			c.c.Logger.Error("panic while delivering a message", "message", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			o = Outcome{Message: id, Status: Retry, Problem: fmt.Errorf("cannot deliver the message: panic: %v", p)}
		}
	}()
	m, err := c.c.Queue.Message(id)
	var n Notice
	if err == nil {
		n, err = c.notice(m.Notice)
	}
	if err != nil {
		return Outcome{Message: id, Status: Retry, Problem: err}
	}
	o = c.deliver(ctx, m, n, release)
	o.Message, o.Client, o.kind, o.received = id, n.Client, n.Kind, n.Received
	return o
}

// notice returns the notice of a message.
func (c *Courier) notice(id string) (Notice, error) {
	if last := c.last.Load(); last != nil && last.ID == id {
		return *last, nil
	}
	n, err := c.c.Queue.Notice(id)
	if err == nil {
		c.last.Store(&n)
	}
	return n, err
}

// deliver delivers one message: it looks up the address, composes the mail and sends
// it.
func (c *Courier) deliver(ctx context.Context, m Message, n Notice, release func()) Outcome {
	if m.Email == "" && m.User != "" {
		p, err := c.c.Directory.User(ctx, m.User)
		if err != nil && !errors.Is(err, ErrNoUser) {
			return Outcome{Status: m.Status, Problem: fmt.Errorf("cannot look up the email address of user %s: %w", m.User, err)}
		}
		m.Email = p.Email
	}
	domain := strings.ToLower(m.Email[strings.LastIndexByte(m.Email, '@')+1:])
	if c.slow.busy(domain) {
		return Outcome{Status: m.Status, domain: domain, parked: true}
	}
	mail, err := c.c.Composer.Compose(ctx, m, n)
	if err == nil {
		err = c.send(ctx, mail.withDefaults(m, n, c.c.From), c.slow.watch(domain, release))
	}
	o := outcome(err, n.Version)
	o.domain = domain
	return o
}

// outcome returns the result of an attempt that ended with err.
func outcome(err error, version int) Outcome {
	switch {
	case err == nil:
		return Outcome{Status: Delivered}
	case errors.Is(err, ErrUnsubscribed) && version == V2:
		return Outcome{Status: Delivered, Problem: err} // version 2 counts it as sent
	case errors.Is(err, ErrUnsubscribed):
		return Outcome{Status: Unsubscribed, Problem: err}
	case errors.Is(err, ErrUndeliverable):
		return Outcome{Status: Undeliverable, Problem: err}
	case errors.Is(err, ErrRefused):
		return Outcome{Status: Failed, Problem: err}
	}
	return Outcome{Status: Retry, Problem: err}
}

// send sends a mail, records its hand-over, and calls finished.
func (c *Courier) send(ctx context.Context, m Mail, finished func()) error {
	defer finished()
	if c.journal == nil {
		return c.c.Mailer.Send(ctx, m)
	}
	h := &journalHandover{j: c.journal, id: m.ID}
	m.Handover = h
	err := c.c.Mailer.Send(ctx, m)
	if err != nil || !h.began {
		return err
	}
	if err := c.journal.record(m.ID, accepted); err != nil {
		c.c.Logger.Error("a mail can arrive twice if dewd stops now", "message", m.ID, "err", err)
	}
	return nil
}

// openJournal settles the mails that the mail server accepted before the last Run ended
// without recording it. Those whose answer is unknown are sent again.
func (c *Courier) openJournal() (err error) {
	if c.c.Journal == "" {
		return nil
	}
	if c.journal, err = openJournal(c.c.Journal); err != nil {
		return err
	}
	known := c.journal.with(accepted)
	outcomes := make([]Outcome, len(known))
	for i, id := range known {
		outcomes[i] = Outcome{Message: id, Status: Delivered}
	}
	if len(outcomes) > 0 {
		if err := c.c.Queue.Settle(outcomes, time.Now()); err != nil {
			return errors.Join(err, c.closeJournal())
		}
	}
	unknown := c.journal.with(handedOver)
	if len(unknown) > 0 {
		const some = 10
		c.c.Logger.Warn("these mails are sent again and can arrive twice: the answer of the mail server was not read before dewd stopped",
			"messages", len(unknown), "first", strings.Join(unknown[:min(some, len(unknown))], " "))
	}
	return c.journal.forget(append(known, unknown...))
}

func (c *Courier) closeJournal() error {
	if c.journal == nil {
		return nil
	}
	return c.journal.close()
}
