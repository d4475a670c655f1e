package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeMailer accepts mails, fails, or blocks, as the test sets it.
type fakeMailer struct {
	mu    sync.Mutex
	fails error
	hold  chan struct{} // nil: Send does not block
	mails []Mail
	tries int
}

func (p *fakeMailer) Send(ctx context.Context, m Mail) error {
	if p.hold != nil {
		select {
		case <-p.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries++
	if p.fails != nil {
		return p.fails
	}
	p.mails = append(p.mails, m)
	return nil
}

func (p *fakeMailer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = err
}

// count returns how many mails were sent for each message.
func (p *fakeMailer) count() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := map[string]int{}
	for _, m := range p.mails {
		n[m.ID]++
	}
	return n
}

// composerFunc is a Composer.
type composerFunc func(m Message, n Notice) (Mail, error)

func (f composerFunc) Compose(_ context.Context, m Message, n Notice) (Mail, error) { return f(m, n) }

func plain(m Message, n Notice) (Mail, error) {
	if m.Email == "" {
		return Mail{}, ErrUndeliverable
	}
	return Mail{To: m.Email, Subject: n.Subject, Text: n.Text}, nil
}

// fakeDirectory has addresses by guid.
type fakeDirectory struct {
	Directory
	mu    sync.Mutex
	users map[string]string
	fails error
}

func (d *fakeDirectory) User(_ context.Context, guid string) (Person, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	email, ok := d.users[guid]
	switch {
	case d.fails != nil:
		return Person{}, d.fails
	case !ok:
		return Person{}, ErrNoUser
	}
	return Person{GUID: guid, Email: email}, nil
}

type courierWorld struct {
	t      *testing.T
	path   string
	q      *Queue
	mailer *fakeMailer
	dir    *fakeDirectory
	make   composerFunc
	stop   func() // stops Run and waits for it

	wrap    Mailer // if set, used instead of mailer
	journal string // if set, the file of the journal
	metrics *Metrics
	logger  *slog.Logger // nil: none
	current *Courier
}

// inCourierWorld runs fn in virtual time with a running courier.
func inCourierWorld(t *testing.T, fn func(w *courierWorld)) {
	synctest.Test(t, func(t *testing.T) {
		w := &courierWorld{t: t, path: filepath.Join(t.TempDir(), "dew.db"), mailer: &fakeMailer{}, dir: &fakeDirectory{users: map[string]string{}}, make: plain}
		w.start()
		defer func() { w.stop() }()
		fn(w)
	})
}

func (w *courierWorld) start() {
	w.t.Helper()
	db := openDB(w.t, w.path)
	w.q = NewQueue(db)
	c := w.courier(w.q)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run = %v", err)
		}
		if err := db.Close(); err != nil {
			w.t.Error(err)
		}
		w.stop = func() {}
	}
}

func (w *courierWorld) courier(q *Queue) *Courier {
	w.t.Helper()
	w.metrics = NewMetrics()
	config := CourierConfig{
		Queue: q, Directory: w.dir, Composer: composerFunc(func(m Message, n Notice) (Mail, error) { return w.make(m, n) }),
		Mailer: w.mailer, From: "dew@example.com", Journal: w.journal, Metrics: w.metrics, Logger: slog.New(slog.DiscardHandler),
	}
	if w.logger != nil {
		config.Logger = w.logger
	}
	if w.wrap != nil {
		config.Mailer = w.wrap
	}
	c, err := NewCourier(config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.current = c
	return c
}

// pass waits for d, and then until nothing more happens.
func (w *courierWorld) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *courierWorld) want(id string, want Status) {
	w.t.Helper()
	if got := status(w.t, w.q, id); got != want {
		w.t.Errorf("message is %s, want %s", got, want)
	}
}

func TestCourierDelivers(t *testing.T) {
	inCourierWorld(t, func(w *courierWorld) {
		w.dir.users["known"] = "known@example.com"
		n := Notice{Client: "mailer", Kind: "news", Subject: "Hello", Text: "text", Received: time.Now()}
		ms := enqueue(t, w.q, n, Person{GUID: "a", Email: "a@example.com"}, Person{GUID: "known"}, Person{Email: "bare@example.com"}, Person{GUID: "gone"})
		w.pass(time.Second)
		for i, want := range []Status{Delivered, Delivered, Delivered, Undeliverable} {
			w.want(ms[i].ID, want)
		}
		to := map[string]Mail{}
		for _, m := range w.mailer.mails {
			to[m.To] = m
		}
		if len(to) != 3 || to["known@example.com"].User != "known" {
			t.Errorf("mails = %+v", w.mailer.mails)
		}
		m := to["a@example.com"]
		if m.ID != ms[0].ID || m.Client != "mailer" || m.Kind != "news" || m.From != "dew@example.com" || m.Subject != "Hello" || m.Sent.IsZero() || !m.Received.Equal(n.Received) {
			t.Errorf("mail = %+v", m)
		}
		if senders, err := w.q.SendersTo("a"); err != nil || len(senders) != 1 || senders[0] != "mailer" {
			t.Errorf("SendersTo = %q, %v", senders, err)
		}
	})
}

// A server that is down for a while delays messages, but none is lost.
func TestCourierServerDown(t *testing.T) {
	inCourierWorld(t, func(w *courierWorld) {
		w.mailer.fail(errors.New("connection refused"))
		ms := enqueue(t, w.q, Notice{Client: "c"}, people(50)...)
		w.pass(2 * time.Minute) // at once, and after 1 minute
		if w.mailer.tries != 100 {
			t.Errorf("attempts = %d, want 100", w.mailer.tries)
		}
		w.want(ms[7].ID, Retry)
		if got, want := w.metrics.Totals(), (Totals{Retries: 100}); got != want {
			t.Errorf("totals = %+v, want %+v", got, want)
		}
		w.mailer.fail(nil)
		w.pass(2 * time.Minute)
		if got, want := w.metrics.Totals(), (Totals{Retries: 100, Delivered: 50}); got != want {
			t.Errorf("totals = %+v, want %+v", got, want)
		}
		for _, m := range ms {
			w.want(m.ID, Delivered)
		}
		if got := w.mailer.count(); len(got) != 50 || got[ms[0].ID] != 1 {
			t.Errorf("mails = %d, want one for each of 50", len(got))
		}
	})
}

// Messages that wait for a retry survive a restart.
func TestCourierRestart(t *testing.T) {
	inCourierWorld(t, func(w *courierWorld) {
		w.mailer.fail(errors.New("no"))
		ms := enqueue(t, w.q, Notice{Client: "c"}, people(3)...)
		w.pass(time.Second)
		w.stop()
		w.mailer.fail(nil)
		w.start()
		w.pass(30 * time.Second)
		w.want(ms[0].ID, Retry) // not yet
		w.pass(time.Minute)
		for _, m := range ms {
			w.want(m.ID, Delivered)
		}
	})
}

// A mail that is being sent when the daemon exits is finished if it is quick. Otherwise
// it stays in the queue as if it had not been tried.
func TestCourierStops(t *testing.T) {
	inCourierWorld(t, func(w *courierWorld) {
		w.mailer.hold = make(chan struct{})
		ms := enqueue(t, w.q, Notice{Client: "c"}, people(100)...)
		synctest.Wait()
		w.stop()
		w.mailer.hold = nil
		w.start()
		m, err := w.q.Message(ms[0].ID)
		if err != nil || m.Attempts != 0 {
			t.Errorf("message = %+v, %v; want no attempt counted", m, err)
		}
		w.pass(time.Second)
		if got := w.mailer.count(); len(got) != 100 {
			t.Errorf("messages delivered = %d, want 100", len(got))
		}

		w.mailer.hold = make(chan struct{})
		slow := enqueue(t, w.q, Notice{Client: "c"}, Person{Email: "slow@example.com"})[0]
		synctest.Wait()
		time.AfterFunc(courierGrace/2, func() { close(w.mailer.hold) })
		w.stop()
		w.start()
		w.want(slow.ID, Delivered)
	})
}

func TestCourierOutcomes(t *testing.T) {
	for _, tt := range []struct {
		name    string
		err     error
		version int
		want    Status
	}{
		{"unsubscribed", ErrUnsubscribed, V1, Unsubscribed},
		{"unsubscribed in v2", ErrUnsubscribed, V2, Delivered},
		{"undeliverable", ErrUndeliverable, V1, Undeliverable},
		{"refused", fmt.Errorf("550: %w", ErrRefused), V1, Failed},
		{"unanswered", fmt.Errorf("timeout: %w", ErrUnanswered), V1, Retry},
		{"broken template", errors.New("template: boom"), V1, Retry},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inCourierWorld(t, func(w *courierWorld) {
				w.make = func(Message, Notice) (Mail, error) { return Mail{}, tt.err }
				m := enqueue(t, w.q, Notice{Client: "c", Version: tt.version}, people(1)...)[0]
				w.pass(time.Second)
				w.want(m.ID, tt.want)
				if len(w.mailer.mails) != 0 {
					t.Errorf("mails = %+v, want none", w.mailer.mails)
				}
			})
		})
	}
}

// While addresses cannot be looked up a message stays queued.
func TestCourierDirectoryDown(t *testing.T) {
	inCourierWorld(t, func(w *courierWorld) {
		w.dir.fails = errors.New("no answer")
		w.dir.users["u"] = "u@example.com"
		m := enqueue(t, w.q, Notice{Client: "c"}, Person{GUID: "u"})[0]
		w.pass(time.Second)
		w.want(m.ID, Queued)
		w.dir.mu.Lock()
		w.dir.fails = nil
		w.dir.mu.Unlock()
		w.pass(time.Minute)
		w.want(m.ID, Delivered)
	})
}

// A panic fails one attempt of one message.
func TestCourierPanic(t *testing.T) {
	inCourierWorld(t, func(w *courierWorld) {
		w.make = func(m Message, n Notice) (Mail, error) {
			if m.Email == "user-1@example.com" {
				panic("template")
			}
			return plain(m, n)
		}
		ms := enqueue(t, w.q, Notice{Client: "c"}, people(3)...)
		w.pass(time.Second)
		for i, want := range []Status{Delivered, Retry, Delivered} {
			w.want(ms[i].ID, want)
		}
	})
}

// Old messages are dropped while the courier runs.
func TestCourierDeletesOldMessages(t *testing.T) {
	inCourierWorld(t, func(w *courierWorld) {
		m := enqueue(t, w.q, Notice{Client: "c"}, people(1)...)[0]
		w.pass(23 * time.Hour)
		w.want(m.ID, Delivered)
		w.pass(3 * time.Hour)
		if _, err := w.q.Message(m.ID); !errors.Is(err, ErrNoMessage) {
			t.Errorf("Message = %v, want ErrNoMessage", err)
		}
	})
}

// A few workers deliver many messages in the order of their arrival.
func TestCourierMany(t *testing.T) {
	inCourierWorld(t, func(w *courierWorld) {
		const n = 150
		enqueue(t, w.q, Notice{Client: "c"}, people(n)...)
		w.pass(time.Second)
		got := w.mailer.count()
		if len(got) != n {
			t.Errorf("messages delivered = %d, want %d", len(got), n)
		}
		for id, times := range got {
			if times != 1 {
				t.Errorf("message %s was sent %d times", id, times)
			}
		}
		if left, err := w.q.Waiting(); err != nil || left != 0 {
			t.Errorf("Waiting = %d, %v", left, err)
		}
	})
}

// slowMailer takes ten minutes for mails to one domain.
type slowMailer struct{ *fakeMailer }

func (s slowMailer) Send(ctx context.Context, m Mail) error {
	if strings.HasSuffix(m.To, "@slow.example.com") {
		select {
		case <-time.After(10 * time.Minute):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.fakeMailer.Send(ctx, m)
}

// A server that takes ten minutes for the mails to one domain holds up neither the mails
// to other domains nor the shutdown. The slow mails all arrive, and once.
func TestCourierSlowDomain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &courierWorld{t: t, path: filepath.Join(t.TempDir(), "dew.db"), mailer: &fakeMailer{}, dir: &fakeDirectory{users: map[string]string{}}, make: plain}
		w.wrap = slowMailer{w.mailer}
		w.start()
		defer func() { w.stop() }()
		const slow = maxParked + 60
		var to []Person
		for n := range slow {
			to = append(to, Person{Email: fmt.Sprintf("user-%d@slow.example.com", n)})
		}
		late := enqueue(t, w.q, Notice{Client: "c"}, to...)
		w.pass(slowAfter + 2*time.Second)
		quick := enqueue(t, w.q, Notice{Client: "c"}, people(50)...)
		w.pass(5 * time.Second)
		for _, m := range quick {
			w.want(m.ID, Delivered)
		}
		w.want(late[0].ID, Queued)
		began := time.Now()
		w.stop()
		if took := time.Since(began); took > courierGrace+time.Second {
			t.Errorf("stopping took %s", took)
		}
		w.start()
		w.pass(time.Duration(slow/maxSlowDomain+20) * 10 * time.Minute)
		got := w.mailer.count()
		if len(got) != slow+len(quick) {
			t.Errorf("delivered = %d, want %d", len(got), slow+len(quick))
		}
		for id, times := range got {
			if times != 1 {
				t.Errorf("message %s was sent %d times", id, times)
			}
		}
		if left, err := w.q.Waiting(); err != nil || left != 0 {
			t.Errorf("Waiting = %d, %v", left, err)
		}
	})
}

// A refused message is not tried again.
func TestCourierRefused(t *testing.T) {
	inCourierWorld(t, func(w *courierWorld) {
		w.mailer.fail(fmt.Errorf("550 unknown: %w", ErrRefused))
		m := enqueue(t, w.q, Notice{Client: "c"}, people(1)...)[0]
		w.pass(2 * time.Hour)
		w.want(m.ID, Failed)
		if w.mailer.tries != 1 {
			t.Errorf("attempts = %d, want 1", w.mailer.tries)
		}
		if m, err := w.q.Message(m.ID); err != nil || !strings.Contains(m.Problem, "550 unknown") {
			t.Errorf("message = %+v, %v; want the reason", m, err)
		}
	})
}
