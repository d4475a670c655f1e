package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// Errors of Compose for messages that must not be sent. After any other error, the
// Courier tries again.
var (
	// ErrUnsubscribed means that the recipient has unsubscribed.
	ErrUnsubscribed = errors.New("the recipient has unsubscribed")
	// ErrUndeliverable means that the recipient has no address.
	ErrUndeliverable = errors.New("the recipient has no email address")
)

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
// ErrUndeliverable for a mail that can never be sent.
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
	Logger    *slog.Logger
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
)

// Courier sends the messages of the Queue through the Mailer, and retries those that
// failed.
//
//	Queue ─ due ─▶ Run ─ work ─▶ deliver (several) ─ done ─▶ Run ─ settle ─▶ Queue
//
// Only Run knows which messages are under way. If the daemon is killed after a message
// was sent but before it was settled, the message is sent again: at least once, never
// lost.
type Courier struct {
	c CourierConfig
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
	return &Courier{c: c}, nil
}

// runState is the state of Run.
type runState struct {
	*Courier
	work     chan string
	done     chan Outcome
	underWay map[string]bool
	ready    []string  // due, not yet given to a worker
	settling []Outcome // results to record
	checkDue bool      // a message may be due
	waiting  bool      // the store failed: wait for the alarm
	timer    *time.Timer
}

// Run delivers messages until ctx is cancelled. If a message under way is not finished
// in time, the next Run delivers it again.
func (c *Courier) Run(ctx context.Context) error {
	capacity := 2 * c.c.Workers
	r := &runState{
		Courier: c, checkDue: true, underWay: map[string]bool{}, timer: time.NewTimer(settleRetry),
		work: make(chan string, capacity),
		// The buffer holds everything under way, so no worker ever blocks.
		done: make(chan Outcome, capacity+c.c.Workers),
	}
	defer r.timer.Stop()
	var workers sync.WaitGroup
	for range c.c.Workers {
		workers.Go(func() { c.deliverAll(ctx, r.work, r.done) })
	}
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for ctx.Err() == nil {
		r.step(ctx, sweep.C)
	}
	close(r.work)
	workers.Wait()
	close(r.done)
	for o := range r.done {
		r.settling = append(r.settling, o)
	}
	if len(r.settling) == 0 {
		return nil
	}
	return c.c.Queue.Settle(r.settling, time.Now())
}

// step waits for one event.
func (r *runState) step(ctx context.Context, sweep <-chan time.Time) {
	if !r.waiting {
		r.settle()
		r.readDue()
	}
	var out chan<- string
	var first string
	if len(r.ready) > 0 {
		out, first = r.work, r.ready[0]
	}
	select {
	case out <- first:
		r.ready = r.ready[1:]
	case o := <-r.done:
		r.settling = append(r.settling, o)
		for len(r.done) > 0 {
			r.settling = append(r.settling, <-r.done)
		}
	case <-r.c.Queue.wake:
		r.checkDue = true
	case <-r.timer.C:
		r.checkDue, r.waiting = true, false
	case <-sweep:
		if err := r.c.Queue.Sweep(time.Now().Add(-EndedRetention)); err != nil {
			r.c.Logger.Error("cannot delete old messages", "err", err)
		}
	case <-ctx.Done():
	}
}

// settle records the results. While the store fails, no more messages are given to
// workers: they would be sent again and again.
func (r *runState) settle() {
	if len(r.settling) == 0 {
		return
	}
	if err := r.c.Queue.Settle(r.settling, time.Now()); err != nil {
		r.c.Logger.Error("cannot store delivery results; dewd tries again", "messages", len(r.settling), "err", err)
		r.sleep(settleRetry)
		return
	}
	failed := 0
	var problem error
	for _, o := range r.settling {
		delete(r.underWay, o.Message)
		if !o.Status.Ended() {
			failed++
			problem = o.Problem
		}
	}
	if failed > 0 {
		r.c.Logger.Warn("cannot deliver messages; dewd tries again later", "messages", failed, "err", problem)
	}
	r.settling, r.checkDue = nil, true
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
	capacity := cap(r.done) - len(r.underWay)
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

// deliverAll delivers one message after the other until there is no more work.
func (c *Courier) deliverAll(ctx context.Context, work <-chan string, done chan<- Outcome) {
	// A mail that is being sent can finish after ctx is cancelled.
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(courierGrace, cancel) })
	defer stop()
	var last Notice // the next message usually has the same notice
	for id := range work {
		if ctx.Err() != nil {
			continue // left for the next Run
		}
		o := c.attempt(sending, id, &last)
		if sending.Err() != nil && !o.Status.Ended() {
			continue
		}
		done <- o
	}
}

// attempt tries to deliver one message. A panic in a template fails only this attempt,
// not the daemon.
func (c *Courier) attempt(ctx context.Context, id string, last *Notice) (o Outcome) {
	defer func() {
		if p := recover(); p != nil {
			c.c.Logger.Error("panic while delivering a message", "message", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			o = Outcome{Message: id, Status: Retry, Problem: fmt.Errorf("cannot deliver the message: panic: %v", p)}
		}
	}()
	m, err := c.c.Queue.Message(id)
	if err == nil && m.Notice != last.ID {
		*last, err = c.c.Queue.notices.Get(m.Notice)
	}
	if err != nil {
		*last = Notice{}
		return Outcome{Message: id, Status: Retry, Problem: err}
	}
	o = c.deliver(ctx, m, *last)
	o.Message, o.Client = id, last.Client
	return o
}

// deliver delivers one message: it looks up the address, composes the mail and sends
// it.
func (c *Courier) deliver(ctx context.Context, m Message, n Notice) Outcome {
	if m.Email == "" && m.User != "" {
		p, err := c.c.Directory.User(ctx, m.User)
		if err != nil && !errors.Is(err, ErrNoUser) {
			return Outcome{Status: m.Status, Problem: fmt.Errorf("cannot look up the email address of user %s: %w", m.User, err)}
		}
		m.Email = p.Email
	}
	mail, err := c.c.Composer.Compose(ctx, m, n)
	if err == nil {
		err = c.c.Mailer.Send(ctx, mail.withDefaults(m, n, c.c.From))
	}
	switch {
	case err == nil:
		return Outcome{Status: Delivered}
	case errors.Is(err, ErrUnsubscribed) && n.Version == V2:
		return Outcome{Status: Delivered, Problem: err} // version 2 counts it as sent
	case errors.Is(err, ErrUnsubscribed), errors.Is(err, ErrUndeliverable):
		return Outcome{Status: Undeliverable, Problem: err}
	}
	return Outcome{Status: Retry, Problem: err}
}
